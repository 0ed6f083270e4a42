//! What the condition says besides its status.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::{Operation, SimCloud},
    faults::{Effect, Fault, Trouble},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{World, cidr, name, node};

fn shown(world: &World, number: usize) -> Value {
    let node = world.api.get("nodes", &name(number)).unwrap();
    let mut all = node["status"]["conditions"].as_array().unwrap().clone();
    all.retain(|one| one["type"] == "NetworkUnavailable");
    all.remove(0)
}

/// Fails the changes of the first node with this error.
fn fail(world: &World, kind: ErrorKind, text: &str) {
    world.cloud.faults().clear();
    let fails = Effect::Routes(vec![name(1)], Trouble::Fail(CloudError::new(kind, text)));
    world.cloud.faults().add(Fault::new(fails).on(Operation::ApplyRoutes));
}

/// The route is made for longer than the grace time; then it fails, for one reason after another.
#[tokio::test(start_paused = true)]
async fn the_message_follows_the_kind_of_the_reason() {
    let cloud = SimCloud::new();
    let world = World::start(&cloud, "c-1", &["--cloud-call-timeout=20s"]).await;
    cloud.faults().add(Fault::new(Effect::Hang).on(Operation::ApplyRoutes).times(1));
    world.add_nodes([1]);
    let why = world.shows(&name(1), "True", "NoRouteCreated").await;
    assert!(why.ends_with("the route of 10.244.1.0/24 is being made"), "{why}");
    let since = shown(&world, 1)["lastTransitionTime"].clone();
    fail(&world, ErrorKind::QuotaExceeded, "3 routes, request 17");
    sleep(Duration::from_secs(60)).await;
    let first = shown(&world, 1);
    let why = first["message"].as_str().unwrap();
    assert!(why.contains("quota_exceeded: 3 routes"), "{why}");
    assert_eq!(first["lastTransitionTime"], since, "the status is the same");
    assert!(first["lastHeartbeatTime"].is_string(), "{first}");
    // Other words of the same kind of reason are not written.
    let writes = world.writes_to(&name(1));
    for number in 4..10 {
        fail(&world, ErrorKind::QuotaExceeded, &format!("{number} routes, request {number}9"));
        world.patch(
            &name(1),
            "status",
            json!({"status": {"addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "ExternalIP", "address": format!("198.51.100.{number}")},
            ]}}),
        );
        sleep(Duration::from_mins(4)).await;
    }
    let why = shown(&world, 1)["message"].to_string();
    assert!(why.contains("quota_exceeded"), "{why}");
    let rewritten = world.writes_to(&name(1)) - writes;
    assert!(rewritten <= 12, "{rewritten} writes in 24 minutes");
    fail(&world, ErrorKind::Unauthorized, "not your router");
    sleep(Duration::from_mins(11)).await;
    let why = shown(&world, 1)["message"].to_string();
    assert!(why.contains("unauthorized: not your router"), "{why}");
    cloud.faults().clear();
    sleep(Duration::from_mins(6)).await;
    world.reachable([1]).await;
}

/// A failure that stays the same costs one write, by the next leader as well.
#[tokio::test(start_paused = true)]
async fn a_message_that_is_right_is_not_written() {
    let cloud = SimCloud::new();
    let mut world = World::start(&cloud, "c-1", &[]).await;
    fail(&world, ErrorKind::QuotaExceeded, "no more");
    world.add_nodes([1]);
    world.shows(&name(1), "True", "NoRouteCreated").await;
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.writes_to(&name(1)), 1);
    world.restart().await;
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.writes_to(&name(1)), 1);
    // That of cloud-controller-manager says nothing.
    let words = json!({"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated",
        "message": "RouteController failed to create a route"});
    world.patch(&name(1), "status", json!({"status": {"conditions": [words]}}));
    world.restart().await;
    sleep(Duration::from_mins(1)).await;
    assert!(world.condition(&name(1)).unwrap()[2].contains("quota_exceeded"));
}

/// As cloud-controller-manager does, each write has the time of the write.
#[tokio::test(start_paused = true)]
async fn each_write_has_the_time_of_the_heartbeat() {
    let world = World::start(&SimCloud::new(), "c-1", &[]).await;
    world.add(node(&name(1), &[&cidr(1)]));
    world.reachable([1]).await;
    let condition = shown(&world, 1);
    assert!(condition["lastHeartbeatTime"].is_string(), "{condition}");
    assert_eq!(condition["lastHeartbeatTime"], condition["lastTransitionTime"]);
}
