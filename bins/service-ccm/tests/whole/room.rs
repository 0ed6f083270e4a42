//! The limit of load balancers per namespace.

use std::time::Duration;

use ccm_sim::{
    cloud::Operation,
    faults::{Fault, FaultEffect, Trouble},
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    cases::{SOON, on},
    world::{NODES, Variant, World},
};

const TWO: &[&str] = &["--max-load-balancers-per-namespace=2"];

/// Returns four Services in a namespace that may have two load balancers.
async fn four() -> World {
    let world = World::start(Variant::with(TWO)).await;
    (0..4).for_each(|number| world.create(number));
    sleep(SOON).await;
    world
}

fn with_addresses(world: &World) -> Vec<usize> {
    (0..5).filter(|number| world.service(*number).is_some() && world.has_address(*number)).collect()
}

fn waiting(world: &World) -> usize {
    let shown = world.metric::<String>("ccm_service_limit_waiting ");
    shown.trim_end_matches(".0").parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_service_above_the_limit_waits_until_another_one_goes() {
    let mut world = four().await;
    assert_eq!((with_addresses(&world), waiting(&world)), (vec![0, 1], 2));
    for number in [2, 3] {
        let service = world.service(number).unwrap();
        let shown = service["status"]["conditions"].to_string();
        assert!(shown.contains("LimitReached") && shown.contains("may have 2"), "{shown}");
        assert!(service["metadata"]["finalizers"].is_null(), "nothing to protect");
    }
    let said = world.events("LoadBalancerLimitReached");
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(world.plans().contains("max-load-balancers-per-namespace"), "{}", world.plans());
    // A waiting Service keeps its place after a restart, and Services with a load balancer are
    // served.
    world.restart().await;
    world.add_node(NODES);
    world.patch(1, json!({"metadata": {"annotations": {"sim/note": "other"}}}));
    sleep(2 * SOON).await;
    assert_eq!((with_addresses(&world), waiting(&world)), (vec![0, 1], 2));
    assert_eq!(world.members(1), NODES + 1);
    world.delete(0);
    sleep(SOON).await;
    assert!(world.service(0).is_none(), "a deletion does not wait");
    assert_eq!((with_addresses(&world), waiting(&world)), (vec![1, 2], 1));
    // Another type makes room as well, when the load balancer is gone.
    world.set_type(1, "ClusterIP");
    sleep(SOON).await;
    assert_eq!((with_addresses(&world), waiting(&world)), (vec![2, 3], 0));
    // It comes after the Services that have one, although it is older.
    world.set_type(1, "LoadBalancer");
    sleep(SOON).await;
    assert_eq!((with_addresses(&world), waiting(&world)), (vec![2, 3], 1));
    assert_eq!(world.ours().len(), 2);
}

/// An older Service asks while the load balancer of a younger one is being made.
#[tokio::test(start_paused = true)]
async fn the_last_room_is_given_once() {
    let world = World::start(Variant::with(&["--max-load-balancers-per-namespace=1"])).await;
    world.create(0);
    sleep(SOON).await;
    world.set_type(0, "ClusterIP");
    sleep(SOON).await;
    assert!(world.ours().is_empty());
    let slow = Fault::new(FaultEffect::Latency(Duration::from_secs(10)));
    world.cloud.faults().add(slow.on(Operation::EnsureLoadBalancers));
    world.create(1);
    sleep(Duration::from_secs(5)).await;
    world.set_type(0, "LoadBalancer");
    sleep(SOON).await;
    assert_eq!((with_addresses(&world), waiting(&world)), (vec![1], 1));
    assert_eq!(world.ours().len(), 1);
}

/// The next leader cannot read the load balancer of a Service that shows its address.
#[tokio::test(start_paused = true)]
async fn what_the_list_cannot_show_keeps_its_room() {
    let mut world = four().await;
    world.wrong = Some("--max-load-balancers-per-namespace=1");
    world.cloud.faults().add(on(Operation::ListLoadBalancers, 1, Trouble::Malformed));
    world.restart().await;
    sleep(SOON).await;
    let shown = world.service(1).unwrap()["status"]["conditions"].to_string();
    assert!(!shown.contains("LimitReached"), "{shown}");
    assert_eq!((with_addresses(&world), waiting(&world)), (vec![0, 1], 2));
}
