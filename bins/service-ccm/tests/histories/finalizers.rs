//! The finalizer that all cloud controllers share, and the writes to a Service, after a change of
//! its type. The API server has removed the class then.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    apiserver::PatchKind,
    cloud::{Operation, balancers::SimBalancer},
    faults::{Effect, Fault},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    cases::{FINALIZER, SOON},
    watched::is_protected,
    without::Lists,
    world::{Variant, World},
};

/// The class of a program that serves only its own class.
const CLASS: &str = "example.com/ours";
const CLASSES: Variant = Variant::with(&[
    "--load-balancer-classes=example.com/ours",
    "--serve-classless-services=false",
]);
const DELETES: Variant = Variant::with(&["--orphaned-load-balancers=delete"]);
const UNCLAIMED: &str = "ccm_service_unclaimed_finalizers ";
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

    fn has_unclaimed(&self) -> bool {
        self.metric::<f64>(UNCLAIMED) > 0.5
    }

    fn refuse_deletions(&self, lasting: Duration) {
        let error = Effect::Error(CloudError::new(ErrorKind::Conflict, "not now"));
        self.cloud
            .faults()
            .add(Fault::new(error).on(Operation::DeleteLoadBalancers).lasting(lasting));
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_loses_class_and_type_is_released() {
    let world = World::start(1, CLASSES).await;
    world.create_of_class(0, CLASS, json!({}));
    sleep(SOON).await;
    assert!(world.has_address(0));
    world.set_type(0, "ClusterIP");
    sleep(SOON).await;
    assert!(world.ours().is_empty() && world.is_clean(0), "{}", world.traces(0));
    world.delete(0);
    sleep(SOON).await;
    assert!(world.service(0).is_none());
}

/// The Service shows its controller to another process as well.
#[tokio::test(start_paused = true)]
async fn a_new_leader_releases_what_the_last_one_has_served() {
    // The last leader could not delete the load balancer, or deleted it and kept the finalizer.
    for is_deleted in [false, true] {
        for deleting in [false, true] {
            let mut world = World::start(1, CLASSES).await;
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
    let variant = Variant { without: Some(Lists), ..CLASSES };
    let mut world = World::start(1, variant).await;
    world.create_of_class(0, CLASS, json!({}));
    sleep(SOON).await;
    world.stop();
    world.set_type(0, "ClusterIP");
    world.restart().await;
    sleep(SOON).await;
    assert!(world.ours().is_empty() && world.is_clean(0), "{}", world.traces(0));
}

/// The Services of another controller that needs time to clean up; this program has the defaults.
#[tokio::test(start_paused = true)]
async fn nothing_of_another_controller_is_touched_after_its_service_lost_its_class() {
    for deleting in [false, true] {
        let world = World::new().await;
        let metadata = json!({"finalizers": [FINALIZER], "annotations": {"other.io/id": "7"}});
        world.create_of_class(0, "other.io/x", metadata);
        sleep(SOON).await;
        world.set_type(0, "ClusterIP");
        if deleting {
            world.delete(0);
        }
        let theirs = world.traces(0);
        sleep(4 * MINUTE).await;
        assert_eq!(world.traces(0), theirs);
        assert_eq!(world.cloud.calls().load_balancers.delete, 0);
        // The other controller has time to clean up: service-ccm does not report the finalizer yet.
        assert!(!world.has_unclaimed());
        assert!(world.events("UnclaimedFinalizer").is_empty());
        sleep(2 * MINUTE).await;
        assert_eq!((world.has_unclaimed(), world.traces(0)), (true, theirs));
        let events = world.events("UnclaimedFinalizer");
        assert!(events.len() == 1 && events[0].contains("kubectl patch service -n default web-0"));
        assert!(events[0].contains(FINALIZER) && world.plans().contains(FINALIZER));
        world.patch(0, json!({"metadata": {"finalizers": null}}));
        sleep(SOON).await;
        assert!(!world.has_unclaimed());
        assert_eq!(world.cloud.calls().load_balancers.delete, 0);
    }
}

/// Two service-ccm with separate clouds and Leases; this one has the defaults.
#[tokio::test(start_paused = true)]
async fn what_another_service_ccm_has_served_is_left_to_it() {
    let world = World::new().await;
    let condition = json!({"status": {"conditions": [{"type": "LoadBalancerProvisioning",
        "status": "False", "reason": "Provisioned", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let metadata = json!({"finalizers": [FINALIZER], "annotations": {
        "quartet.dev/load-balancer-controller": "kube-system/service-ccm-a"}});
    world.create_of_class(0, CLASS, metadata);
    let key = World::service_key(0);
    world.api.patch("services", &key, "status", PatchKind::Merge, condition).unwrap();
    world.set_type(0, "ClusterIP");
    let theirs = world.traces(0);
    sleep(MINUTE).await;
    assert_eq!((world.traces(0), world.cloud.calls().load_balancers.delete), (theirs, 0));
    // By type and class this program serves the Service now.
    world.set_type(0, "LoadBalancer");
    sleep(SOON).await;
    assert!(world.has_address(0));
    let annotations = world.service(0).unwrap()["metadata"]["annotations"].clone();
    assert!(annotations["quartet.dev/load-balancer-controller"].is_null(), "{annotations}");
}

/// A program with another Lease writes its name to each Service, and nothing more.
#[tokio::test(start_paused = true)]
async fn a_program_with_a_lease_of_its_own_signs() {
    let variant = Variant::with(&["--leader-elect-resource-name=service-ccm-a"]);
    let mut world = World::start(1, variant).await;
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

/// `kubectl replace` with a manifest of another type without finalizers.
#[tokio::test(start_paused = true)]
async fn a_load_balancer_whose_service_lost_type_and_finalizer_at_once_is_an_orphan() {
    for (variant, is_deleted) in [(DELETES, true), (Variant::default(), false)] {
        let world = World::start(1, variant).await;
        (0..3).for_each(|number| world.create(number));
        sleep(SOON).await;
        world.patch(0, json!({"metadata": {"finalizers": null}, "spec": {"type": "ClusterIP"}}));
        sleep(SOON).await;
        assert!(world.is_clean(0), "{}", world.traces(0));
        assert_eq!(world.ours().len(), 3, "not before it is proved");
        sleep(14 * MINUTE).await;
        assert_eq!((world.ours().len(), world.metric("ccm_service_orphans ")), (3, 1));
        sleep(20 * MINUTE).await;
        assert_eq!(world.ours().len(), if is_deleted { 2 } else { 3 });
        assert!(world.has_address(1) && world.has_address(2));
    }
}

impl World {
    /// Creates three Services; the first one loses type and finalizer in one update.
    async fn with_a_bare_service() -> Self {
        let world = Self::start(1, DELETES).await;
        (0..3).for_each(|number| world.create(number));
        sleep(SOON).await;
        world.patch(0, json!({"metadata": {"finalizers": null}, "spec": {"type": "ClusterIP"}}));
        sleep(SOON).await;
        world.cloud.reset_calls();
        world
    }

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

#[tokio::test(start_paused = true)]
async fn a_service_that_is_changed_back_in_time_keeps_its_load_balancer() {
    for minutes in [1, 8, 14] {
        let world = World::with_a_bare_service().await;
        let before = world.ours();
        sleep(minutes * MINUTE).await;
        world.set_type(0, "LoadBalancer");
        sleep(40 * MINUTE).await;
        assert!(world.is_served(0));
        let ids = |all: Vec<SimBalancer>| all.into_iter().map(|one| one.id).collect::<Vec<_>>();
        assert_eq!(ids(world.ours()), ids(before), "{minutes} minutes");
        assert_eq!(world.metric::<u32>("ccm_service_orphans_deleted_total "), 0);
    }
}

/// The API server answers that the Service asks for no load balancer; then the Service asks again.
#[tokio::test(start_paused = true)]
async fn a_service_that_is_changed_back_during_the_deletion_gets_another_load_balancer() {
    let world = World::with_a_bare_service().await;
    let slow = Effect::Latency(Duration::from_secs(20));
    world.cloud.faults().add(Fault::new(slow).on(Operation::DeleteLoadBalancers));
    while world.cloud.calls().load_balancers.delete == 0 {
        sleep(Duration::from_secs(1)).await;
    }
    world.set_type(0, "LoadBalancer");
    // Before the next audit.
    sleep(MINUTE).await;
    assert!(world.is_served(0), "{:?}", world.service(0));
    assert_eq!(world.metric::<u32>("ccm_service_orphans_deleted_total "), 1);
}
