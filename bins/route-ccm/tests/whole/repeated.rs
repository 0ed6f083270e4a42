//! Changes of routes that the cloud confirms and does not keep.

use std::time::Duration;

use ccm_sim::cloud::{SimCloud, routes::RouteWriteKind};
use serde_json::Value;
use tokio::time::sleep;

use crate::world::{World, cidr, name, net};

/// The events about repeated writes, with the objects that they are about.
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

/// Something deletes the route of a node again and again.
#[tokio::test(start_paused = true)]
async fn a_route_that_goes_again_and_again_is_reported_on_its_node() {
    let cloud = SimCloud::new();
    let world = World::start(&cloud, "c-1", &["--route-reconciliation-period=10s"]).await;
    world.add_nodes(0..3);
    world.reachable(0..3).await;
    for _ in 0..600 {
        sleep(Duration::from_secs(1)).await;
        cloud.router().remove(net(&cidr(1)));
    }
    let [line] = told(&world).try_into().unwrap();
    let expect = format!("Node {}: Route {}: the write create was answered", name(1), cidr(1));
    assert!(line.starts_with(&expect), "{line}");
    let made = cloud.router().written(RouteWriteKind::Create) - 3;
    assert!((3..=12).contains(&made), "{made} times in ten minutes");
    assert!(world.metric("ccm_repeated_writes_total{object=\"Route\",write=\"create\"}") > 0);
}

/// Something makes a route again and again whose node is gone.
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
