//! Tenants: constant activity of one of them does not delay others.

use std::time::Duration;

use ccm_sim::{
    apiserver::PatchKind,
    cloud::Operation,
    faults::{Fault, FaultEffect},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::world::World;

/// The Services of the tenant that edits, and the edits in a second.
const MANY: usize = 300;
const EDITS: u32 = 43;

fn service(namespace: &str, number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": format!("web-{number}"), "namespace": namespace},
        "spec": {"type": "LoadBalancer", "ports": [
            {"port": 80, "protocol": "TCP", "nodePort": 30080}]},
    })
}

/// Returns a world with a slow cloud that makes calls about one load balancer, in which one tenant
/// has many Services and edits them until `end`.
async fn busy(end: Duration) -> World {
    let world = World::new().await;
    for name in ["noisy", "quiet"] {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        world.api.create(namespace).unwrap();
    }
    (0..MANY).for_each(|number| drop(world.api.create(service("noisy", number)).unwrap()));
    sleep(Duration::from_mins(1)).await;
    world.cloud.balancers().configure(|settings| settings.traits.max_batch = 1);
    let slow = Fault::new(FaultEffect::Latency(Duration::from_millis(800)));
    world.cloud.faults().add(slow.on(Operation::EnsureLoadBalancers));
    let (begin, mut number) = (Instant::now(), 0);
    while begin.elapsed() < end {
        edit(&world, number);
        number += 1;
        sleep(Duration::from_secs(1) / EDITS).await;
    }
    world
}

fn edit(world: &World, number: usize) {
    let key = format!("noisy/web-{}", number % MANY);
    let patch = json!({"metadata": {"annotations": {"sim/note": number.to_string()}}});
    world.api.patch("services", &key, "", PatchKind::Merge, patch).unwrap();
}

/// Returns how long it takes until the load balancer of this Service is requested, while edits go
/// on.
async fn requested(world: &World, namespace: &str) -> Duration {
    let made = world.api.create(service(namespace, 0)).unwrap();
    let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
    let (begin, mut number) = (Instant::now(), 0);
    while world.balancers_of(&uid).is_empty() {
        assert!(begin.elapsed() < Duration::from_mins(5), "it is not requested");
        edit(world, number);
        number += 1;
        sleep(Duration::from_secs(1) / EDITS).await;
    }
    begin.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_edits_all_the_time_delays_no_other_one() {
    let world = busy(Duration::from_secs(15)).await;
    let other = requested(&world, "quiet").await;
    eprintln!(
        "{MANY} Services edited {EDITS} times a second: another is requested after {other:?}"
    );
    assert!(other < Duration::from_secs(2), "{other:?}");
}

/// The load balancer of a Service that changes all the time changes at the Service's rate, and is
/// deleted at once.
#[tokio::test(start_paused = true)]
async fn a_service_that_changes_all_the_time_has_a_rate_of_its_own() {
    let world = World::new().await;
    world.create(0);
    sleep(Duration::from_mins(2)).await;
    world.cloud.reset_calls();
    for number in 0..1000 {
        let note = json!({"sim/note": number.to_string()});
        world.patch(0, json!({"metadata": {"annotations": note}}));
        sleep(Duration::from_millis(100)).await;
    }
    let calls = world.cloud.calls().load_balancers.ensure;
    assert!((14..=30).contains(&calls), "{calls} calls in 100 s");
    let paced = "ccm_workqueue_paced_adds_total{name=\"service\"} ";
    assert!(world.metric::<u64>(paced) > 9);
    world.delete(0);
    sleep(Duration::from_secs(3)).await;
    assert!(world.ours().is_empty(), "a deletion does not wait");
}
