//! The finalizer that all cloud controllers share, and the writes to a Service, after a change of
//! its type: the API server has then removed the class.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::Operation,
    faults::{Fault, FaultEffect},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    cases::{SOON, is_protected},
    world::{Variant, World},
};

/// The class of a program that serves only its own class.
const CLASS: &str = "example.com/ours";
const CLASSES: Variant = Variant::with(&[
    "--load-balancer-classes=example.com/ours",
    "--serve-classless-services=false",
]);
const MINUTE: Duration = Duration::from_mins(1);

impl World {
    /// Creates a Service of this class, with this metadata and a name.
    fn create_of_class(&self, number: usize, class: &str, metadata: Value) {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"type": "LoadBalancer", "loadBalancerClass": class, "ports": [
                {"port": 80, "protocol": "TCP", "nodePort": 30080 + number}]},
        });
        service["metadata"]["name"] = json!(format!("web-{number}"));
        service["metadata"]["namespace"] = json!("default");
        self.api.create(service).unwrap();
    }

    /// Returns what controllers have written to the Service.
    pub(crate) fn traces(&self, number: usize) -> Value {
        let service = self.service(number).unwrap();
        let (metadata, status) = (&service["metadata"], &service["status"]);
        let annotations = metadata["annotations"].as_object().filter(|all| !all.is_empty());
        let conditions = status["conditions"].as_array().filter(|all| !all.is_empty());
        let ingress = &status["loadBalancer"]["ingress"];
        json!([metadata["finalizers"], annotations, conditions, ingress])
    }

    /// Returns true if the writes of service-ccm are gone. The annotations of the provider may stay.
    pub(crate) fn is_clean(&self, number: usize) -> bool {
        let traces = self.traces(number);
        let annotations = traces[1].as_object().map(|all| all.keys()).into_iter().flatten();
        let mut ours = annotations.filter(|key| key.starts_with("quartet.dev/"));
        ours.next().is_none() && [0, 2, 3].iter().all(|part| traces[*part].is_null())
    }

    fn refuse_deletions(&self, lasting: Duration) {
        let error = FaultEffect::Error(CloudError::new(ErrorKind::Conflict, "not now"));
        self.cloud
            .faults()
            .add(Fault::new(error).on(Operation::DeleteLoadBalancers).lasting(lasting));
    }
}

/// The Service shows its controller to another process as well.
#[tokio::test(start_paused = true)]
async fn a_new_leader_releases_what_the_last_one_has_served() {
    // The last leader could not delete the load balancer, or deleted it and kept the finalizer.
    for is_deleted in [false, true] {
        for deleting in [false, true] {
            let mut world = World::start(CLASSES).await;
            world.create_of_class(0, CLASS, json!({}));
            sleep(SOON).await;
            world.refuse_deletions(MINUTE);
            world.set_type(0, "NodePort");
            if deleting {
                world.delete(0);
            }
            sleep(SOON).await;
            world.stop();
            assert!(is_protected(&world.service(0).unwrap()));
            if is_deleted {
                let id = world.ours().remove(0).id;
                world.cloud.balancers().remove(&id);
            }
            world.end_faults().await;
            world.restart().await;
            sleep(SOON).await;
            assert!(world.ours().is_empty());
            let is_done = if deleting { world.service(0).is_none() } else { world.is_clean(0) };
            assert!(is_done, "{is_deleted} {deleting}: {:?}", world.service(0));
        }
    }
}

/// A provider without lists does not show load balancers: the annotation names them.
#[tokio::test(start_paused = true)]
async fn without_a_list_the_service_says_what_is_to_be_deleted() {
    let variant = Variant { no_lists: true, ..CLASSES };
    let mut world = World::start(variant).await;
    world.create_of_class(0, CLASS, json!({}));
    sleep(SOON).await;
    world.stop();
    world.set_type(0, "ClusterIP");
    world.restart().await;
    sleep(SOON).await;
    assert!(world.ours().is_empty() && world.is_clean(0), "{}", world.traces(0));
}

/// A program with another Lease writes its name to each Service, and nothing more.
#[tokio::test(start_paused = true)]
async fn a_program_with_a_lease_of_its_own_signs() {
    let variant = Variant::with(&["--leader-elect-resource-name=service-ccm-a"]);
    let mut world = World::start(variant).await;
    world.create(0);
    sleep(SOON).await;
    let version = |world: &World| {
        let metadata = world.service(0).unwrap()["metadata"].clone();
        assert_eq!(
            metadata["annotations"]["quartet.dev/load-balancer-controller"],
            "kube-system/service-ccm-a"
        );
        metadata["resourceVersion"].clone()
    };
    let before = version(&world);
    world.restart().await;
    sleep(10 * MINUTE).await;
    assert_eq!(version(&world), before);
    world.set_type(0, "ClusterIP");
    sleep(SOON).await;
    assert!(world.is_clean(0), "{}", world.traces(0));
}

impl World {
    /// Returns true if the Service shows the address of its only load balancer.
    pub(crate) fn is_served(&self, number: usize) -> bool {
        let service = self.service(number).unwrap();
        let shown = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
        match &self.balancers_of(service["metadata"]["uid"].as_str().unwrap())[..] {
            [one] => one.addresses.iter().any(|address| *shown == address.to_string()),
            _ => false,
        }
    }
}
