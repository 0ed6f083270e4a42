//! The limit of load balancers per namespace.

use std::time::Duration;

use ccm_sim::{
    cloud::Operation,
    faults::{Effect, Fault},
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    cases::SOON,
    world::{NODES, Variant, World},
};

const TWO: &[&str] = &["--max-load-balancers-per-namespace=2"];

/// Four Services in a namespace that may have two load balancers.
async fn four() -> World {
    let world = World::start(1, Variant::with(TWO)).await;
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
    // What waits stays at its place after a restart, and those that have one are served.
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
    // It comes after those that have one, although it is older.
    world.set_type(1, "LoadBalancer");
    sleep(SOON).await;
    assert_eq!((with_addresses(&world), waiting(&world)), (vec![2, 3], 1));
    assert_eq!(world.ours().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_stands_stays_when_the_limit_is_lowered() {
    let world = four().await;
    world.reload(|settings| settings.max_load_balancers_per_namespace = 1);
    sleep(SOON).await;
    world.patch(1, json!({"metadata": {"annotations": {"sim/note": "other"}}}));
    sleep(Duration::from_mins(10)).await;
    assert_eq!((with_addresses(&world), waiting(&world)), (vec![0, 1], 2));
    let shown = world.service(1).unwrap()["status"]["conditions"].to_string();
    assert!(shown.contains("\"Provisioned\""), "{shown}");
    world.delete(0);
    sleep(SOON).await;
    assert_eq!((with_addresses(&world), waiting(&world)), (vec![1], 2));
    world.reload(|settings| settings.max_load_balancers_per_namespace = 0);
    sleep(SOON).await;
    assert_eq!((with_addresses(&world), waiting(&world)), (vec![1, 2, 3], 0));
}

/// An older Service asks while the load balancer of a younger one is being made.
#[tokio::test(start_paused = true)]
async fn the_last_room_is_given_once() {
    let world = World::start(1, Variant::with(&["--max-load-balancers-per-namespace=1"])).await;
    world.create(0);
    sleep(SOON).await;
    world.set_type(0, "ClusterIP");
    sleep(SOON).await;
    assert!(world.ours().is_empty());
    let slow = Fault::new(Effect::Latency(Duration::from_secs(10)));
    world.cloud.faults().add(slow.on(Operation::EnsureLoadBalancers));
    world.create(1);
    sleep(Duration::from_secs(5)).await;
    world.set_type(0, "LoadBalancer");
    sleep(SOON).await;
    assert_eq!((with_addresses(&world), waiting(&world)), (vec![1], 1));
    assert_eq!(world.ours().len(), 1);
}

/// A user can write the annotation with the ID, and make a mistake.
#[tokio::test(start_paused = true)]
async fn a_copied_id_and_a_wrong_service_take_no_room() {
    let world = four().await;
    let id = world.service(0).unwrap()["metadata"]["annotations"]["quartet.dev/load-balancer-id"]
        .clone();
    world.create_with(4, json!({"quartet.dev/load-balancer-id": id}));
    sleep(SOON).await;
    assert_eq!((with_addresses(&world), waiting(&world)), (vec![0, 1], 3));
    // The first of those that wait cannot have a load balancer.
    let wrong = json!({"metadata": {"annotations": {"service.beta.kubernetes.io/load-balancer-source-ranges": "x"}}});
    world.patch(4, json!({"metadata": {"annotations": {"quartet.dev/load-balancer-id": null}}}));
    world.patch(2, wrong);
    sleep(SOON).await;
    world.delete(0);
    sleep(SOON).await;
    assert_eq!((with_addresses(&world), waiting(&world)), (vec![1, 3], 1));
}
