//! Races, frozen leaders, and a provider that changes what it offers.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    apiserver::{Action, Fault as ApiFault, PatchKind, Verb},
    cloud::Operation,
    faults::Trouble,
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    cases::{FINALIZER, SOON, on},
    world::{Variant, World},
};

impl World {
    fn conditions(&self, number: usize) -> String {
        self.service(number).unwrap()["status"]["conditions"].to_string()
    }

    fn delay_protection(&self, action: Action) {
        let fault = ApiFault::new(action).verb(Verb::Patch).resource("services");
        self.api.faults().add(fault.times(1));
    }
}

/// The write of the finalizer names UID and version: a Service that is deleted in the meantime, or
/// created again under its name, does not get it, and nothing is created for it.
#[tokio::test(start_paused = true)]
async fn a_service_that_is_deleted_while_it_gets_its_finalizer_gets_no_load_balancer() {
    for again in [false, true] {
        let world = World::new().await;
        world.delay_protection(Action::Delay(Duration::from_secs(3)));
        world.create(0);
        let uid = world.service(0).unwrap()["metadata"]["uid"].clone();
        sleep(Duration::from_secs(1)).await;
        assert!(world.service(0).unwrap()["metadata"]["finalizers"].is_null(), "still on its way");
        world.delete(0);
        assert!(world.service(0).is_none(), "it had no finalizer");
        if again {
            world.create(0);
        }
        sleep(SOON).await;
        assert_eq!(world.ours().len(), usize::from(again));
        assert!(world.balancers_of(uid.as_str().unwrap()).is_empty());
        assert_eq!(world.service(0).is_some_and(|_| world.has_address(0)), again);
    }
}

/// It is not known whether the API server has stored the finalizer: nothing is created before it
/// shows it.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_the_finalizer_is_no_answer() {
    let world = World::new().await;
    world.delay_protection(Action::DropAfterApply);
    world.create(0);
    sleep(Duration::from_millis(100)).await;
    world.delete(0);
    sleep(Duration::from_mins(1)).await;
    assert!(world.service(0).is_none() && world.ours().is_empty());
    world.delay_protection(Action::DropBeforeApply);
    world.create(1);
    sleep(Duration::from_mins(1)).await;
    assert!(world.has_address(1));
}

/// A leader is frozen in the middle of a creation, another takes over, and the first one's write
/// arrives later.
#[tokio::test(start_paused = true)]
async fn a_frozen_leaders_creation_changes_no_address() {
    for fences in [true, false] {
        let mut world = World::new().await;
        world.cloud.balancers().configure(|settings| settings.fences = fences);
        let late = Trouble::Late(Duration::from_secs(40));
        world.cloud.faults().add(on(Operation::EnsureLoadBalancers, 1, late).times(1));
        world.create(1);
        sleep(Duration::from_secs(2)).await;
        assert!(world.ours().is_empty(), "on its way");
        world.restart().await;
        sleep(SOON).await;
        assert!(world.has_address(1));
        let id = world.ours()[0].id.clone();
        sleep(Duration::from_secs(30)).await;
        assert_eq!(world.ours().len(), if fences { 1 } else { 2 }, "it has arrived");
        sleep(Duration::from_mins(6)).await;
        let left: Vec<String> = world.ours().into_iter().map(|one| one.id).collect();
        assert_eq!(left, [id]);
    }
}

/// A provider that has no load balancers any more.
#[tokio::test(start_paused = true)]
async fn a_service_says_that_the_provider_offers_no_load_balancers() {
    let world = World::with_services(0..2).await;
    world.cloud.balancers().configure(|settings| settings.offered = false);
    world.create(2);
    world.set_type(0, "ClusterIP");
    sleep(Duration::from_mins(1)).await;
    let shown = world.conditions(2);
    assert!(shown.contains("LoadBalancersNotOffered"), "{shown}");
    assert!(shown.contains("the cloud does not offer load balancers"), "{shown}");
    assert!(world.service(2).unwrap()["metadata"]["finalizers"].is_null(), "nothing to protect");
    let deleted = world.conditions(0);
    assert!(deleted.contains("DeletionFailed"), "{deleted}");
    assert_eq!(world.service(0).unwrap()["metadata"]["finalizers"], json!([FINALIZER]));
    // The calls are about the new load balancer, and the existing one that is checked again.
    assert!(world.conditions(1).contains("LoadBalancersNotOffered"));
    assert_eq!(world.events("SyncLoadBalancerFailed").len(), 2);
    assert_eq!(world.events("DeleteLoadBalancerFailed").len(), 1);
    assert_eq!(world.ours().len(), 2);
    world.cloud.balancers().configure(|settings| settings.offered = true);
    sleep(Duration::from_mins(6)).await;
    assert!(world.has_address(2) && world.conditions(2).contains("\"Provisioned\""));
    assert!(world.service(0).unwrap()["metadata"]["finalizers"].is_null());
    assert_eq!(world.ours().len(), 2);
}

/// Two Services want the same port of one load balancer: the condition has the cloud's words, and
/// no other Service is delayed.
#[tokio::test(start_paused = true)]
async fn ports_that_collide_are_a_conflict_of_one_service() {
    let world = World::with_services(0..1).await;
    let what = "load balancer lb-shared has a listener on TCP port 80 already, of default/other";
    let error = CloudError::new(ErrorKind::Conflict, what);
    world.cloud.faults().add(on(Operation::EnsureLoadBalancers, 1, Trouble::Fail(error)));
    world.create(1);
    world.create(2);
    sleep(SOON).await;
    let shown = world.conditions(1);
    assert!(shown.contains("\"Conflict\"") && shown.contains(what), "{shown}");
    assert!(world.events("SyncLoadBalancerFailed")[0].contains(what));
    assert!(world.has_address(0) && world.has_address(2) && !world.has_address(1));
}

/// Settings apply from the moment at which they change.
#[tokio::test(start_paused = true)]
async fn a_class_that_is_served_from_now_on_waits_for_nothing() {
    let world = World::new().await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web-0", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/new", "ports": [
            {"port": 80, "protocol": "TCP", "nodePort": 30080}]},
    });
    world.api.create(service).unwrap();
    sleep(SOON).await;
    assert!(!world.has_address(0));
    world.reload(|settings| settings.load_balancer_classes.push("example.com/new".to_owned()));
    sleep(SOON).await;
    assert!(world.has_address(0));
}

#[tokio::test(start_paused = true)]
async fn a_new_interval_and_new_taints_count_at_once() {
    let variant = Variant::with(&["--member-update-interval=1h0m0s"]);
    let world = World::start(variant).await;
    world.create(0);
    sleep(SOON).await;
    let before = world.members(0);
    let taint =
        json!({"spec": {"taints": [{"key": "example.com/leaves", "effect": "NoSchedule"}]}});
    world.api.patch("nodes", &World::node_name(0), "", PatchKind::Merge, taint).unwrap();
    sleep(SOON).await;
    assert_eq!(world.members(0), before);
    world.reload(|settings| settings.scale_down_taints.push("example.com/leaves".to_owned()));
    sleep(SOON).await;
    assert_eq!(world.members(0), before - 1);
    world.add_node(20);
    sleep(SOON).await;
    world.add_node(21);
    sleep(SOON).await;
    assert_eq!(world.members(0), before, "the second one waits for an hour");
    world.reload(|settings| settings.member_update_interval = Duration::from_secs(10));
    sleep(SOON).await;
    assert_eq!(world.members(0), before + 1);
}
