//! Nodes that have changed when an answer about their routes comes.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind, NodeAddress};
use ccm_sim::{
    apiserver::{Action, Fault as ServerFault, Verb},
    cloud::{Operation, SimCloud},
    faults::{Effect, Fault, Trouble},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{World, cidr, instance, name, node};

/// The time that a call takes, and a moment in it.
const SLOW: Duration = Duration::from_secs(4);
const MEANWHILE: Duration = Duration::from_millis(1500);
/// The address of the next machine.
const OTHER: &str = "10.0.0.77";

/// A node is registered, and its route is being made.
async fn making() -> World {
    let cloud = SimCloud::new();
    let world = World::start(&cloud, "c-1", &["--cloud-call-timeout=10s"]).await;
    world.add_nodes([0]);
    world.reachable([0]).await;
    cloud.faults().add(Fault::new(Effect::Latency(SLOW)).on(Operation::ApplyRoutes));
    world.add_nodes([1]);
    sleep(MEANWHILE).await;
    world
}

fn other_address() -> Value {
    json!([{"type": "InternalIP", "address": OTHER}])
}

/// The machine of node 1 is rebuilt with another address; its node registers again, or goes on.
fn rebuilt(world: &World, registers: bool) {
    let mut machine = instance(&name(1));
    machine.addresses = vec![NodeAddress::new(ccm_cloud::AddressKind::InternalIp, OTHER)];
    world.cloud.add(machine);
    if !registers {
        return world.patch(&name(1), "status", json!({"status": {"addresses": other_address()}}));
    }
    world.delete_nodes([1]);
    let mut again = node(&name(1), &[&cidr(1)]);
    again["status"]["addresses"] = other_address();
    world.api.create(again).unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_answer_about_a_route_meets_only_the_node_that_it_was_asked_for() {
    for registers in [true, false] {
        let world = making().await;
        rebuilt(&world, registers);
        let counted = || world.metric("ccm_route_time_to_routes_seconds_count");
        for _ in 0..300 {
            sleep(Duration::from_millis(100)).await;
            let is_there = world.routes().get(&cidr(1)).is_some_and(|target| target == OTHER);
            let is_up = world.condition(&name(1)).is_some_and(|[status, ..]| status == "False");
            let shown = (is_up, counted());
            assert!(is_there || shown == (false, 1), "{registers}: {shown:?} {:?}", world.routes());
        }
        world.reachable([1]).await;
        assert_eq!((counted(), world.routes().len()), (2, 2), "{registers}");
    }
}

/// An error about an earlier node does not delay the next node of its name, and is not reported on it.
#[tokio::test(start_paused = true)]
async fn a_failure_of_the_node_of_before_is_none_of_the_next_one() {
    for registers in [true, false] {
        let world = making().await;
        let error = CloudError::new(ErrorKind::Invalid, "no port has this address");
        let fails = Effect::Routes(vec![name(1)], Trouble::Fail(error));
        world.cloud.faults().add(Fault::new(fails).on(Operation::ApplyRoutes).times(1));
        rebuilt(&world, registers);
        sleep(SLOW * 3).await;
        assert_eq!(world.routes().get(&cidr(1)).map(String::as_str), Some(OTHER), "{registers}");
        let told = world.events(&name(1)).into_iter().filter(|one| one.contains("no port"));
        assert_eq!(told.count(), 0, "{registers}");
    }
}

/// The answer to the write of the condition is a conflict, before the routes are planned again.
#[tokio::test(start_paused = true)]
async fn a_condition_follows_from_the_routes_of_the_node_that_is_there() {
    let cloud = SimCloud::new();
    let world = World::start(&cloud, "c-1", &[]).await;
    world.add_nodes([0]);
    world.reachable([0]).await;
    sleep(Duration::from_secs(5)).await;
    let slow = ServerFault::new(Action::Delay(Duration::from_millis(300)));
    world.api.faults().add(slow.verb(Verb::Patch).subresource("status").times(1));
    world.add_nodes([1]);
    world.until("there is a route", |world| world.routes().contains_key(&cidr(1))).await;
    sleep(Duration::from_millis(100)).await;
    rebuilt(&world, true);
    for _ in 0..100 {
        sleep(Duration::from_millis(20)).await;
        let is_there = world.routes().get(&cidr(1)).is_some_and(|target| target == OTHER);
        let shown = world.condition(&name(1));
        assert!(is_there || shown.is_none(), "{shown:?} {:?}", world.routes());
    }
    world.reachable([1]).await;
}

/// Its route is there all the time, and is right.
#[tokio::test(start_paused = true)]
async fn a_node_that_registers_again_at_once_is_another_one() {
    let cloud = SimCloud::new();
    let world = World::start(&cloud, "c-1", &[]).await;
    world.add_nodes([0, 1]);
    world.reachable([0, 1]).await;
    sleep(Duration::from_secs(5)).await;
    world.delete_nodes([1]);
    world.api.create(node(&name(1), &[&cidr(1)])).unwrap();
    world.reachable([1]).await;
    assert_eq!(world.metric("ccm_route_time_to_routes_seconds_count"), 3);
}
