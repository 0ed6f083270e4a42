//! The condition `NetworkUnavailable`, and nodes with problems.

use std::time::Duration;

use ccm_sim::{
    apiserver::{Action, Fault as ServerFault, Verb},
    cloud::{Operation, SimCloud},
    faults::{Fault, FaultEffect},
};
use ccm_testing::Log;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::world::{World, cidr, name, node};

/// Returns the node with this condition.
fn with_condition(mut node: Value, status: &str, reason: &str) -> Value {
    node["status"]["conditions"] =
        json!([{"type": "NetworkUnavailable", "status": status, "reason": reason}]);
    node
}

/// Before the first list the routes are not known: a node that joins is marked, and the conditions
/// of other nodes stay.
#[tokio::test(start_paused = true)]
async fn a_node_that_joins_is_marked_while_the_table_cannot_be_listed() {
    let cloud = SimCloud::new();
    let fault = cloud.faults().add(Fault::new(FaultEffect::Unavailable).on(Operation::ListRoutes));
    let world = World::start(&cloud, "c-1", &[]).await;
    world.add(with_condition(node(&name(1), &[&cidr(1)]), "False", "RouteCreated"));
    let start = Instant::now();
    world.add_nodes([2]);
    world.add(node("without", &[]));
    let why = world.shows(&name(2), "True", "NoRouteCreated").await;
    assert!((5..8).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert!(why.contains("cannot list the routes: unavailable"), "{why}");
    sleep(Duration::from_mins(10)).await;
    assert_eq!(world.metric("ccm_route_nodes{state=\"incomplete\"}"), 1);
    assert_eq!(world.metric("ccm_route_nodes{state=\"without_pod_cidrs\"}"), 1);
    for (name, count) in [(&name(1), 0), (&name(2), 1), (&"without".to_owned(), 0)] {
        assert_eq!(world.writes_to(name), count, "{name}");
    }
    cloud.faults().remove(fault);
    sleep(Duration::from_mins(1)).await;
    world.reachable([1, 2]).await;
    assert_eq!((world.writes_to(&name(1)), world.writes_to(&name(2))), (0, 2));
}

/// Another program assigns pod CIDRs. If it does not, that is reported once.
#[tokio::test(start_paused = true)]
async fn a_node_that_gets_no_pod_cidr_is_reported() {
    let world = World::start(&SimCloud::new(), "c-1", &[]).await;
    world.add(node("without", &[]));
    world.add(node("late", &[]));
    sleep(Duration::from_secs(50)).await;
    world.patch("late", "", json!({"spec": {"podCIDR": cidr(7), "podCIDRs": [cidr(7)]}}));
    assert_eq!(world.events("without"), [""; 0], "a new node has a moment");
    sleep(Duration::from_mins(30)).await;
    let [event] = world.events("without").try_into().unwrap();
    assert!(event.starts_with("NoPodCIDR: node without has no podCIDRs"), "{event}");
    assert!(event.contains("--allocate-node-cidrs"), "{event}");
    assert_eq!(world.events("late"), [""; 0]);
    assert_eq!(world.writes_to("without"), 0);
}

/// route-ccm logs a condition only if the node has it.
#[tokio::test(start_paused = true)]
async fn a_condition_that_is_not_stored_is_not_logged_as_written() {
    let log = Log::new();
    let _listening = log.listen(tracing::Level::INFO);
    let world = World::start(&SimCloud::new(), "c-1", &[]).await;
    let policy = ServerFault::new(Action::TakeBack("/status/conditions"));
    let policy = world.api.faults().add(policy.verb(Verb::Patch).resource("nodes"));
    world.add(node(&name(1), &[&cidr(1)]));
    sleep(Duration::from_mins(3)).await;
    assert!(world.writes_to(&name(1)) > 0);
    assert_eq!(log.lines_with("NetworkUnavailable=False"), 0, "{}", log.text());
    world.api.faults().remove(policy);
    world.shows(&name(1), "False", "RouteCreated").await;
    assert_eq!(log.lines_with("NetworkUnavailable=False"), 1, "{}", log.text());
}
