//! A namespace is restored from a backup, or a manifest is copied: the annotations of service-ccm
//! then come from the user who creates the Services.

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    cases::{FINALIZER, SOON},
    world::World,
};

const ID: &str = "quartet.dev/load-balancer-id";

impl World {
    /// Creates a Service as a backup of another one has it. The API server drops its status.
    fn restore(&self, number: usize, annotations: Value, kind: &str) {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": format!("web-{number}"), "namespace": "default",
                "annotations": annotations, "finalizers": [FINALIZER]},
            "spec": {"type": kind, "ports": [
                {"port": 80, "protocol": "TCP", "nodePort": 30080 + number}]},
        });
        self.api.create(service).unwrap();
    }

    fn id(&self, number: usize) -> String {
        let id = self.service(number).unwrap()["metadata"]["annotations"][ID].clone();
        id.as_str().unwrap_or_default().to_owned()
    }
}

/// The Service of the backup still exists, with its load balancer.
#[tokio::test(start_paused = true)]
async fn a_copy_gets_a_load_balancer_of_its_own() {
    let world = World::with_services(0..1).await;
    let (id, before) = (world.id(0), world.ours());
    let digest = world.service(0).unwrap()["metadata"]["annotations"].clone();
    let more = |key: &str, value: &str| {
        let mut all = digest.clone();
        all[ID] = id.as_str().into();
        all[key] = value.into();
        all
    };
    let backups = [
        more("example.com/note", "x"),
        more("quartet.dev/load-balancer-digest", "1-00000000000000000000000000000001"),
        more("quartet.dev/load-balancer-controller", "kube-system/two"),
    ];
    for (number, annotations) in (1..).zip(backups) {
        world.restore(number, annotations.clone(), "LoadBalancer");
        sleep(SOON).await;
        assert!(world.has_address(number), "{annotations}: {}", world.service(number).unwrap());
        assert_ne!(world.id(number), id, "{annotations}");
    }
    assert_eq!((world.ours().len(), world.id(0)), (4, id.clone()));
    let now = world.ours().into_iter().find(|one| one.id == id);
    assert_eq!(now, before.into_iter().next(), "nobody has touched it");
    assert!(world.events("SyncLoadBalancerFailed").is_empty());
    // With the ID of another load balancer, nothing of that is deleted either.
    for number in 1..4 {
        world.delete(number);
    }
    world.restore(4, more("example.com/note", "x"), "ClusterIP");
    sleep(SOON).await;
    for number in 1..4 {
        assert!(world.service(number).is_none());
    }
    world.delete(4);
    sleep(SOON).await;
    assert!(world.service(4).is_none());
    assert_eq!(world.ours().len(), 1);
    assert_eq!(world.members(0), world.ours()[0].members.len());
}
