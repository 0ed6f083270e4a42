//! Going back to cloud-controller-manager: everything that its service controller
//! (k8s.io/cloud-provider) would write already exists, so it writes nothing.

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{cases::SOON, world::World};

/// Returns the fields that the Go controller reads of a Service, and its rule.
fn state(service: &Value) -> Value {
    json!({
        // `HasLBFinalizer` looks for this text anywhere in the list. Otherwise the controller adds
        // it.
        "finalizers": service["metadata"]["finalizers"],
        // `needsUpdate` compares spec and annotations between two versions of the Service.
        "spec": service["spec"],
        // `patchStatus`: the ingress list of the provider's answer and this one, entry by entry, as stored by the API
        // server (`ipMode` is VIP where it is missing); otherwise it replaces the list.
        "ingress": service["status"]["loadBalancer"]["ingress"],
    })
}

#[tokio::test(start_paused = true)]
async fn the_go_controller_finds_what_it_would_write() {
    let world = World::new().await;
    world.create(0);
    let created = world.service(0).unwrap();
    sleep(SOON).await;
    let service = world.service(0).unwrap();
    let [balancer] = &world.balancers_of(service["metadata"]["uid"].as_str().unwrap())[..] else {
        panic!("not one load balancer")
    };
    // Every provider in Go answers with the address of the load balancer.
    let floating = world.cloud.balancers().floating();
    let address = floating.keys().chain(&balancer.addresses).next().unwrap();
    let expect = json!({
        "finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
        "spec": created["spec"],
        "ingress": [{"ip": address.to_string(), "ipMode": "VIP"}],
    });
    assert_eq!(state(&service), expect);
    // After a change of type the Go controller wants no load balancer, and `needsCleanup` is the finalizer.
    world.patch(0, json!({"spec": {"type": "ClusterIP"}}));
    sleep(SOON).await;
    let state = state(&world.service(0).unwrap());
    assert_eq!((&state["finalizers"], &state["ingress"]), (&Value::Null, &Value::Null));
}
