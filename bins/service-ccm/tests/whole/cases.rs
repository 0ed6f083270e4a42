//! Single cases in the same world. The numbers refer to docs/internal/parity-service.md.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_objects::service_keys::SOURCE_RANGES;
use ccm_sim::{
    apiserver::{Action, Fault as ApiFault, PatchKind, Verb},
    cloud::{Operation, balancers::SimBalancer},
    faults::{Fault, FaultEffect, Trouble},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{NODES, Variant, World};

pub(crate) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// This is longer than any wait of a controller without problems.
pub(crate) const SOON: Duration = Duration::from_secs(20);

impl World {
    pub(crate) async fn new() -> Self {
        Self::start(Variant::default()).await
    }

    pub(crate) fn create(&self, number: usize) {
        self.create_with(number, json!({}));
    }

    pub(crate) fn create_with(&self, number: usize, annotations: Value) {
        let name = format!("web-{number}");
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {"type": "LoadBalancer", "ports": [
                {"port": 80, "protocol": "TCP", "nodePort": 30080 + number}]},
        });
        self.api.create(service).unwrap();
    }

    /// Creates these Services and waits for their addresses.
    pub(crate) async fn with_services(numbers: std::ops::Range<usize>) -> Self {
        let world = Self::new().await;
        numbers.clone().for_each(|number| world.create(number));
        sleep(SOON).await;
        numbers.for_each(|number| assert!(world.has_address(number), "{number}"));
        world.cloud.reset_calls();
        world
    }

    pub(crate) fn patch(&self, number: usize, patch: Value) {
        let key = Self::service_key(number);
        self.api.patch("services", &key, "", PatchKind::Merge, patch).unwrap();
    }

    pub(crate) fn set_type(&self, number: usize, kind: &str) {
        self.patch(number, json!({"spec": {"type": kind}}));
    }

    pub(crate) fn delete(&self, number: usize) {
        self.api.delete("services", &Self::service_key(number)).unwrap();
    }

    pub(crate) fn has_address(&self, number: usize) -> bool {
        let service = self.service(number).unwrap();
        !service["status"]["loadBalancer"]["ingress"][0]["ip"].is_null()
    }

    pub(crate) fn members(&self, number: usize) -> usize {
        let uid = self.service(number).unwrap()["metadata"]["uid"].clone();
        let [balancer] = &self.balancers_of(uid.as_str().unwrap())[..] else {
            panic!("not one load balancer of {number}")
        };
        balancer.members.len()
    }

    /// Returns the messages of the events with this reason.
    pub(crate) fn events(&self, reason: &str) -> Vec<String> {
        let events = self.api.list("events").into_iter().filter(|event| event["reason"] == reason);
        events.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn refuse_writes(&self, code: u16, lasting: Duration) {
        let status = Action::Status { code, retry_after: None };
        let fault = ApiFault::new(status).verb(Verb::Patch).resource("services").lasting(lasting);
        self.api.faults().add(fault);
    }
}

pub(crate) fn is_protected(service: &Value) -> bool {
    let finalizers = service["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|one| one == FINALIZER))
}

pub(crate) fn on(operation: Operation, number: usize, trouble: Trouble) -> Fault {
    Fault::new(FaultEffect::LoadBalancers(vec![World::service_key(number)], trouble)).on(operation)
}

/// 36, 37: a conflict does not count as an error, and a Service that no longer exists does not need
/// a write.
#[tokio::test(start_paused = true)]
async fn a_write_that_finds_another_version_is_repeated_without_an_event() {
    for (code, has_address) in [(409, true), (404, false)] {
        let world = World::new().await;
        let status = Action::Status { code, retry_after: None };
        let fault = ApiFault::new(status).verb(Verb::Patch).resource("services").times(1);
        world.api.faults().add(fault);
        world.create(0);
        sleep(SOON).await;
        assert_eq!(world.has_address(0), has_address, "{code}");
        assert!(world.events("WriteFailed").is_empty(), "{code}");
    }
}

/// 9 to 15, 26 to 28: a change of the nodes is one call for all Services.
#[tokio::test(start_paused = true)]
async fn a_change_of_the_nodes_goes_out_to_all_load_balancers() {
    let world = World::new().await;
    world.api.delete("nodes", &World::node_name(0)).unwrap();
    sleep(SOON).await;
    assert_eq!(world.cloud.calls().load_balancers.set_members, 0, "there is no Service");
    let world = World::with_services(0..4).await;
    assert_eq!(world.events("EnsuringLoadBalancer")[0], "Ensuring load balancer");
    assert_eq!(world.events("EnsuredLoadBalancer")[0], "Ensured load balancer");
    world.set_type(3, "NodePort");
    sleep(SOON).await;
    world.cloud.reset_calls();
    world.add_node(NODES);
    sleep(SOON).await;
    let calls = world.cloud.calls().load_balancers;
    assert_eq!((calls.set_members, calls.items, calls.ensure), (1, 3, 0), "{calls:?}");
    for number in 0..3 {
        assert_eq!(world.members(number), NODES + 1);
    }
    assert_eq!(world.metric::<u32>("service_controller_loadbalancer_sync_total "), 3);
    assert_eq!(world.metric::<u32>("service_controller_nodesync_latency_seconds_count "), 1);
    assert_eq!(world.events("UpdatedLoadBalancer")[0], "Updated load balancer with new hosts");
}

/// A change of members that fails is repeated as such.
#[tokio::test(start_paused = true)]
async fn a_failed_change_of_members_is_repeated_and_may_become_needless() {
    let world = World::with_services(0..1).await;
    let down = Fault::new(FaultEffect::Unavailable).on(Operation::SetMembers);
    let fault = world.cloud.faults().add(down.clone());
    world.add_node(NODES);
    sleep(SOON).await;
    assert_eq!(world.members(0), NODES);
    assert!(world.metric::<u32>("service_controller_nodesync_error_total ") > 1);
    let text = &world.events("UpdateLoadBalancerFailed")[0];
    assert!(text.starts_with("Error updating load balancer with new hosts [node-00 "), "{text}");
    assert!(world.cloud.faults().remove(fault));
    sleep(2 * SOON).await;
    assert_eq!(world.members(0), NODES + 1);
    assert_eq!(world.cloud.calls().load_balancers.ensure, 0);
    // A node that comes and goes while nothing can be changed does not leave anything to repeat.
    let fault = world.cloud.faults().add(down);
    world.add_node(NODES + 1);
    sleep(SOON).await;
    let failing = "ccm_service_load_balancers{state=\"failing\"} ";
    assert_eq!(world.metric::<String>(failing), "1.0");
    world.api.delete("nodes", &World::node_name(NODES + 1)).unwrap();
    sleep(4 * SOON).await;
    assert_eq!(world.metric::<String>(failing), "0.0");
    let conditions = world.service(0).unwrap()["status"]["conditions"].to_string();
    assert!(conditions.contains("\"Provisioned\""), "{conditions}");
    assert!(world.cloud.faults().remove(fault));
}

/// 47: a call that hangs does not undo what has joined in the meantime, and does not delay another
/// Service.
#[tokio::test(start_paused = true)]
async fn a_slow_change_of_members_undoes_no_later_one() {
    let world = World::with_services(0..2).await;
    world.cloud.faults().add(on(Operation::SetMembers, 0, Trouble::Hang).times(1));
    world.add_node(NODES);
    sleep(Duration::from_secs(5)).await;
    assert_eq!((world.members(0), world.members(1)), (NODES, NODES + 1));
    world.add_node(NODES + 1);
    sleep(SOON).await;
    assert_eq!(world.members(1), NODES + 2);
    for _ in 0..120 {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.members(1), NODES + 2);
    }
    assert_eq!(world.members(0), NODES + 2);
}

/// 52, and created again before the controller has seen the deletion.
#[tokio::test(start_paused = true)]
async fn a_service_that_is_created_again_gets_a_load_balancer_of_its_own() {
    let world = World::with_services(0..1).await;
    let before = world.ours();
    world.patch(0, json!({"metadata": {"finalizers": null}}));
    world.delete(0);
    world.create(0);
    sleep(SOON).await;
    assert!(world.has_address(0));
    assert_eq!(world.ours().len(), 2);
    sleep(Duration::from_mins(10)).await;
    // The old load balancer does not belong to this Service, so it is kept and counted.
    assert_eq!(world.metric::<u32>("ccm_service_orphans "), 1);
    assert!(world.ours().iter().any(|one| one.id == before[0].id));
}

/// 41, and a deletion that the cloud postpones.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_is_repeated_with_back_off() {
    let world = World::with_services(0..2).await;
    let error = CloudError::new(ErrorKind::Unavailable, "down");
    world.cloud.faults().add(on(Operation::DeleteLoadBalancers, 0, Trouble::Fail(error)));
    world.delete(0);
    sleep(Duration::from_mins(10)).await;
    assert!(world.service(0).is_some());
    let calls = world.cloud.calls().load_balancers.delete;
    assert!((6..=10).contains(&calls), "{calls} in ten minutes");
    let text = &world.events("DeleteLoadBalancerFailed")[0];
    assert!(text.starts_with("Error deleting load balancer: "), "{text}");
    world.cloud.faults().clear();
    sleep(Duration::from_mins(6)).await;
    assert!(world.service(0).is_none());
    let later = CloudError::new(ErrorKind::Throttled, "later");
    let later = later.with_retry_after(Duration::from_secs(42));
    world.cloud.faults().add(on(Operation::DeleteLoadBalancers, 1, Trouble::Fail(later)).times(1));
    world.delete(1);
    sleep(Duration::from_secs(40)).await;
    assert!(world.service(1).is_some(), "the cloud asked for 42 s");
    sleep(Duration::from_secs(10)).await;
    assert!(world.service(1).is_none());
}

/// Fields that a person removes are written again, without a call to the cloud.
#[tokio::test(start_paused = true)]
async fn finalizer_and_status_that_a_person_removes_come_back() {
    let world = World::with_services(0..1).await;
    world.patch(0, json!({"metadata": {"finalizers": null}}));
    let status = json!({"status": {"loadBalancer": {"ingress": null}}});
    let key = World::service_key(0);
    world.api.patch("services", &key, "status", PatchKind::Merge, status).unwrap();
    assert!(!world.has_address(0));
    sleep(SOON).await;
    assert!(world.has_address(0));
    assert_eq!(world.service(0).unwrap()["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(world.cloud.calls().load_balancers.total(), 0);
}

/// Other calls are not preceded by a check for existence, and the list of a new leader may fail.
#[tokio::test(start_paused = true)]
async fn a_list_that_fails_delays_known_services_only_and_not_for_long() {
    let mut world = World::with_services(0..1).await;
    world.cloud.faults().add(Fault::new(FaultEffect::Unavailable).on(Operation::ListLoadBalancers));
    world.restart().await;
    world.create(1);
    sleep(SOON).await;
    assert!(world.has_address(1));
    world.delete(0);
    sleep(Duration::from_mins(15)).await;
    assert!(world.service(0).is_none());
    assert_eq!(world.ours().len(), 1);
}

/// Two load balancers of one Service, as a former leader's late write may leave them.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_duplicate_is_not_reported_as_the_end_of_the_load_balancer() {
    let world = World::with_services(0..1).await;
    let first = world.ours().remove(0);
    let second = SimBalancer { id: "lb-late".to_owned(), ..first.clone() };
    world.cloud.balancers().add(second);
    sleep(Duration::from_mins(10)).await;
    let ids: Vec<String> = world.ours().into_iter().map(|one| one.id).collect();
    assert_eq!(ids, [first.id]);
    let texts = world.events("DeletedLoadBalancer");
    assert_eq!(texts, ["Deleted the second load balancer of this Service"]);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_lanes_is_a_live_setting() {
    let world = World::start(Variant::with(&["--concurrent-service-syncs=1"])).await;
    world.reload(|settings| settings.concurrent_service_syncs = 2);
    world.cloud.faults().add(on(Operation::EnsureLoadBalancers, 0, Trouble::Hang));
    world.create(0);
    sleep(Duration::from_secs(5)).await;
    world.create(1);
    sleep(Duration::from_secs(5)).await;
    assert!(world.has_address(1), "it waits for the lane of the other");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_one_call_even_if_the_finalizer_cannot_be_removed_at_once() {
    let world = World::with_services(0..1).await;
    world.refuse_writes(500, SOON);
    world.delete(0);
    sleep(2 * SOON).await;
    assert!(world.service(0).is_none());
    assert_eq!(world.cloud.calls().load_balancers.delete, 1);
}

/// `/plan` says what waits for its retry, and why.
#[tokio::test(start_paused = true)]
async fn a_call_that_failed_is_on_the_page_as_held_until_it_is_repeated() {
    let world = World::with_services(0..3).await;
    let error = |kind| Trouble::Fail(CloudError::new(kind, "the cloud's words"));
    let faults = world.cloud.faults();
    faults.add(on(Operation::DeleteLoadBalancers, 0, error(ErrorKind::Unavailable)));
    faults.add(on(Operation::SetMembers, 1, error(ErrorKind::Forbidden)));
    faults.add(on(Operation::EnsureLoadBalancers, 2, error(ErrorKind::Invalid)));
    world.delete(0);
    world.add_node(NODES);
    world.patch(2, json!({"metadata": {"annotations": {"sim/note": "other"}}}));
    sleep(SOON).await;
    let plans = world.plans();
    assert!(plans.contains("held: 1 delete, 1 ensure, 1 set-members"), "{plans}");
    for text in [
        "delete (the Service has no load balancer any more), held: failed ",
        ", retry at 20",
        "unavailable: the cloud's words",
        "13 members, 0 leave (the nodes have changed), held: failed ",
        ": invalid: the cloud's words",
    ] {
        assert!(plans.contains(text), "{text:?} is not in {plans}");
    }
    faults.clear();
    world.patch(2, json!({"metadata": {"annotations": {"sim/note": null}}}));
    sleep(Duration::from_mins(10)).await;
    let plans = world.plans();
    assert!(plans.contains("objects: 0"), "{plans}");
}

/// `/plan` says why nothing is done for a Service.
#[tokio::test(start_paused = true)]
async fn a_service_that_nothing_can_be_done_for_is_on_the_page_with_the_reason() {
    let world = World::with_services(0..2).await;
    let ranges = |value: Value| json!({"metadata": {"annotations": {SOURCE_RANGES: value}}});
    world.patch(0, ranges(json!("nonsense")));
    let spec = json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/nobody",
        "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30091}]});
    let unserved = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "unserved", "namespace": "default"}, "spec": spec});
    world.api.create(unserved).unwrap();
    let error = CloudError::new(ErrorKind::QuotaExceeded, "no more load balancers");
    world.cloud.faults().add(on(Operation::EnsureLoadBalancers, 1, Trouble::Fail(error)));
    world.patch(1, json!({"metadata": {"annotations": {"sim/note": "other"}}}));
    sleep(SOON).await;
    let plans = world.plans();
    for text in [
        "  blocked: InvalidConfiguration: ",
        "  blocked: load balancer class example.com/nobody is not served here",
        "no more load balancers",
        "objects: 1; ",
        "objects blocked: 2",
    ] {
        assert!(plans.contains(text), "{text:?} is not in {plans}");
    }
    world.patch(0, ranges(Value::Null));
    world.api.delete("services", "default/unserved").unwrap();
    sleep(SOON).await;
    let plans = world.plans();
    assert!(!plans.contains("blocked"), "{plans}");
}
