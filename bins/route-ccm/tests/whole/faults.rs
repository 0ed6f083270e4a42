//! Routes that disappear and return on their own.

use std::time::Duration;

use ccm_sim::cloud::{SimCloud, routes::RouteWriteKind};
use serde_json::Value;
use tokio::time::sleep;

use crate::world::{World, cidr, net};

/// A shorter period holds at once, and not after the longer one.
#[tokio::test(start_paused = true)]
async fn a_shorter_period_needs_no_restart() {
    let cloud = SimCloud::new();
    let world = World::start(&cloud, "c-1", &["--route-reconciliation-period=24h"]).await;
    world.add_nodes(0..3);
    world.reachable(0..3).await;
    cloud.router().remove(net(&cidr(1)));
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.routes().len(), 2, "nothing has looked yet");
    world.configure(|settings| settings.route_reconciliation_period = Duration::from_mins(10));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.routes().len(), 3);
    let lists = cloud.calls().routes.list;
    sleep(Duration::from_hours(1)).await;
    let lists = cloud.calls().routes.list - lists;
    assert!((5..=6).contains(&lists), "{lists} in an hour");
}

/// Returns the events about repeated writes, with the objects that they are about.
fn told(world: &World) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let repeated = world.api.list("events").into_iter();
    let repeated = repeated.filter(|event| event["reason"] == "RepeatedWrite");
    let line = |event: Value| {
        let about = &event["involvedObject"];
        format!("{} {}: {}", text(&about["kind"]), text(&about["name"]), text(&event["message"]))
    };
    repeated.map(line).collect()
}

/// Another client creates a route again and again although its node is gone.
#[tokio::test(start_paused = true)]
async fn a_route_that_comes_again_and_again_is_reported_on_the_lease() {
    let cloud = SimCloud::new();
    let world = World::start(&cloud, "c-1", &["--route-reconciliation-period=10s"]).await;
    world.add_nodes(0..3);
    world.reachable(0..3).await;
    let route = cloud.router().to(net(&cidr(1))).remove(0);
    world.delete_nodes([1]);
    for _ in 0..600 {
        sleep(Duration::from_secs(1)).await;
        if cloud.router().to(net(&cidr(1))).is_empty() {
            cloud.router().add(route.clone());
        }
    }
    let [line] = told(&world).try_into().unwrap();
    let expect = format!("Lease route-ccm: Route {}: the write delete was answered", cidr(1));
    assert!(line.starts_with(&expect), "{line}");
    let gone = cloud.router().written(RouteWriteKind::Delete);
    assert!((3..=12).contains(&gone), "{gone} times in ten minutes");
}
