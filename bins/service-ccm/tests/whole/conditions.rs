//! Conditions, events and metrics show the state of the cloud, even if it differs from the request.

use std::time::Duration;

use ccm_cloud::{CloudError, Cure, ErrorKind};
use ccm_sim::{
    cloud::{Operation, balancers::Times},
    faults::Trouble,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    cases::{SOON, on},
    lies::Lies,
    world::{NODES, World},
};

impl World {
    /// Returns status, reason and message of a condition.
    fn condition(&self, number: usize, kind: &str) -> (String, String, String) {
        let service = self.service(number).unwrap();
        let conditions = service["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let condition = conditions.into_iter().find(|one| one["type"] == kind).unwrap_or_default();
        let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"), text("message"))
    }

    fn serving(&self, number: usize) -> (String, String) {
        let (status, reason, _) = self.condition(number, "LoadBalancerServing");
        (status, reason)
    }

    fn ends(&self, number: usize) -> (String, String) {
        let (status, reason, _) = self.condition(number, "LoadBalancerProvisioning");
        (status, reason)
    }

    fn address(&self, number: usize) -> Value {
        self.service(number).unwrap()["status"]["loadBalancer"]["ingress"][0]["ip"].clone()
    }

    /// Counts the reports of events with this reason: events with the same text are one object.
    fn count(&self, reason: &str) -> u64 {
        let events = self.api.list("events").into_iter().filter(|event| event["reason"] == reason);
        events.map(|event| event["count"].as_u64().unwrap_or(1)).sum()
    }

    fn ensures(&self) -> u64 {
        let calls = self.cloud.calls().load_balancers.ensure;
        self.cloud.reset_calls();
        calls
    }
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_stays_empty_is_said_to_be_and_is_filled_with_back_off() {
    let world = World::new().await;
    world.lies.lock().no_members = true;
    world.create(0);
    sleep(SOON).await;
    assert_eq!(world.members(0), 0);
    assert_eq!(world.serving(0), pair("False", "NoMembers"));
    let (_, _, message) = world.condition(0, "LoadBalancerServing");
    assert!(message.contains("80/TCP"), "{message}");
    world.ensures();
    sleep(Duration::from_mins(10)).await;
    let calls = world.ensures();
    assert!((3..=9).contains(&calls), "{calls} in ten minutes");
    world.lies.lock().no_members = false;
    sleep(Duration::from_mins(6)).await;
    assert_eq!(world.members(0), NODES);
    assert_eq!(world.serving(0), pair("True", "Serving"));
    world.ensures();
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.ensures(), 0, "it has its members");
}

/// The Service exists before the first node that can be a member.
#[tokio::test(start_paused = true)]
async fn a_first_member_that_does_not_arrive_is_neither_an_update_nor_serving() {
    let world = World::new().await;
    for number in 0..NODES {
        world.api.delete("nodes", &World::node_name(number)).unwrap();
    }
    sleep(SOON).await;
    world.create(0);
    sleep(SOON).await;
    assert!(world.has_address(0));
    assert_eq!(world.serving(0), pair("False", "NoMembers"));
    let texts = world.events("UnAvailableLoadBalancer");
    assert_eq!(texts, ["There are no available nodes for LoadBalancer: the cluster has no node"]);
    world.lies.lock().not_seen = true;
    world.ensures();
    world.add_node(0);
    sleep(SOON).await;
    assert_eq!(world.ensures(), 1, "a full call at once, which adds it");
    assert_eq!((world.members(0), world.serving(0)), (1, pair("True", "Serving")));
    assert!(world.events("UpdatedLoadBalancer").is_empty());
    assert_eq!(world.metric::<u32>("service_controller_nodesync_latency_seconds_count "), 0);
}

#[tokio::test(start_paused = true)]
async fn what_the_provider_leaves_out_is_named_and_costs_no_calls() {
    let world = World::new().await;
    *world.lies.lock() = Lies {
        no_members: true,
        why_empty: Some("node-selector \"env=prod\" matches none of 12 nodes".to_owned()),
        ..Lies::default()
    };
    world.create(0);
    sleep(SOON).await;
    let (status, reason, message) = world.condition(0, "LoadBalancerServing");
    assert_eq!((&*status, &*reason), ("False", "NoMembers"));
    assert!(message.contains("\"env=prod\" matches none of 12 nodes"), "{message}");
    let events = world.events("UnAvailableLoadBalancer");
    assert!(events.len() == 1 && events[0].contains("env=prod"), "{events:?}");
    world.ensures();
    sleep(Duration::from_mins(20)).await;
    assert_eq!(world.ensures(), 0);
}

/// The cloud needs time, in one step or in several.
#[tokio::test(start_paused = true)]
async fn each_creation_and_each_change_has_its_end() {
    for nested in [true, false] {
        let world = World::new().await;
        let slow = Duration::from_secs(5);
        world.cloud.balancers().configure(|settings| {
            settings.nested = nested;
            settings.times = Times { create: slow, configure: slow, members: slow, delete: slow };
        });
        world.create(0);
        sleep(Duration::from_mins(1)).await;
        assert!(world.has_address(0));
        assert_eq!(world.events("EnsuringLoadBalancer").len(), 1, "nested {nested}");
        assert_eq!(world.events("EnsuredLoadBalancer").len(), 1, "nested {nested}");
        assert_eq!(world.serving(0), pair("True", "Serving"));
        world.add_node(NODES);
        sleep(Duration::from_mins(1)).await;
        assert_eq!(world.members(0), NODES + 1);
        assert_eq!(world.events("UpdatedLoadBalancer").len(), 1, "nested {nested}");
        world.patch(0, json!({"metadata": {"annotations": {"sim/note": "other"}}}));
        sleep(Duration::from_mins(1)).await;
        // One object counts all events with the same text.
        assert_eq!(world.count("EnsuredLoadBalancer"), 2, "nested {nested}");
        sleep(Duration::from_hours(2)).await;
        assert_eq!(world.count("EnsuredLoadBalancer"), 2, "nested {nested}");
        assert_eq!(world.count("UpdatedLoadBalancer"), 1, "nested {nested}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_is_gone_and_another_address_are_reported() {
    let world = World::with_services(0..2).await;
    let (before, id) = (world.address(0), id(&world, 0));
    world.cloud.balancers().remove(&id).unwrap();
    sleep(Duration::from_mins(6)).await;
    let after = world.address(0);
    assert!(after.is_string() && after != before, "{after}");
    let gone = world.events("LoadBalancerGone");
    assert!(gone.len() == 1 && gone[0].contains(&id), "{gone:?}");
    let expect = format!("{} -> {}", before.as_str().unwrap(), after.as_str().unwrap());
    let changed = world.events("LoadBalancerAddressChanged");
    assert!(changed.len() == 1 && changed[0].contains(&expect), "{changed:?}");
    assert_eq!(world.count("EnsuredLoadBalancer"), 3, "two creations and another one");
    for metric in ["ccm_service_address_changes_total ", "ccm_service_load_balancers_gone_total "] {
        assert_eq!(world.metric::<u32>(metric), 1, "{metric}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_members_that_finds_no_load_balancer_does_not_wait_for_the_next_list() {
    let world = World::with_services(0..2).await;
    world.cloud.balancers().remove(&id(&world, 0)).unwrap();
    world.add_node(NODES);
    sleep(SOON).await;
    assert_eq!(world.members(0), NODES + 1);
    // The cloud is asked about it before another load balancer is made.
    assert_eq!((world.count("LoadBalancerGone"), world.ensures()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_is_gone_and_cannot_be_made_again_does_not_serve() {
    let world = World::with_services(0..1).await;
    let (before, id) = (world.address(0), id(&world, 0));
    let error = CloudError::new(ErrorKind::QuotaExceeded, "no more load balancers");
    world.cloud.faults().add(on(Operation::EnsureLoadBalancers, 0, Trouble::Fail(error)));
    world.cloud.balancers().remove(&id).unwrap();
    sleep(Duration::from_mins(6)).await;
    assert_eq!(world.serving(0), pair("Unknown", "LoadBalancerGone"));
    assert_eq!(world.ends(0), pair("True", "QuotaExceeded"));
    assert_eq!(world.address(0), before, "no other address is proven");
    assert_eq!(world.events("LoadBalancerGone").len(), 1);
    assert!(world.events("LoadBalancerAddressChanged").is_empty());
    world.cloud.faults().clear();
    sleep(Duration::from_mins(6)).await;
    assert_eq!(world.serving(0), pair("True", "Serving"));
    assert_eq!(world.count("LoadBalancerGone"), 1);
}

#[tokio::test(start_paused = true)]
async fn while_another_load_balancer_is_made_the_address_stays_and_the_condition_says_why() {
    let world = World::with_services(0..1).await;
    let (before, id) = (world.address(0), id(&world, 0));
    world.cloud.balancers().configure(|settings| {
        settings.times.create = Duration::from_mins(4);
    });
    world.cloud.balancers().remove(&id).unwrap();
    sleep(Duration::from_mins(6)).await;
    assert_eq!(world.ours().len(), 1, "it is being made");
    assert_eq!(world.serving(0), pair("Unknown", "LoadBalancerGone"));
    assert_eq!(world.address(0), before);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(world.serving(0), pair("True", "Serving"));
    assert!(world.address(0) != before && world.count("LoadBalancerAddressChanged") == 1);
    assert_eq!((world.count("LoadBalancerGone"), world.count("EnsuredLoadBalancer")), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_shows_nothing_for_once_changes_no_condition() {
    let world = World::with_services(0..2).await;
    let lie = ccm_sim::faults::Fault::new(ccm_sim::faults::FaultEffect::EmptyList);
    world.cloud.faults().add(lie.on(Operation::ListLoadBalancers).times(1));
    let versions = |world: &World| {
        [0, 1].map(|number| world.service(number).unwrap()["metadata"]["resourceVersion"].clone())
    };
    let before = versions(&world);
    sleep(Duration::from_mins(20)).await;
    assert_eq!(versions(&world), before);
    assert!(world.events("LoadBalancerGone").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_was_begun_before_an_answer_shows_nothing_of_it() {
    let world = World::new().await;
    world.lies.lock().late_lists = Duration::from_secs(20);
    world.cloud.reset_calls();
    while world.cloud.calls().load_balancers.list == 0 {
        sleep(Duration::from_secs(1)).await;
    }
    world.create(0);
    sleep(Duration::from_mins(1)).await;
    assert!(world.has_address(0) && world.events("LoadBalancerGone").is_empty());
    assert_eq!(world.cloud.calls().load_balancers.items, 1, "one creation");
}

#[tokio::test(start_paused = true)]
async fn what_another_controller_is_responsible_for_says_so_and_costs_one_call_a_day() {
    let world = World::new().await;
    world.create_with(0, json!({"sim/elsewhere": "the appliance's own controller"}));
    sleep(SOON).await;
    let shown = || {
        let (status, reason, message) = world.condition(0, "LoadBalancerProvisioning");
        assert_eq!((&*status, &*reason), ("False", "Elsewhere"), "{message}");
        assert!(message.contains("the appliance's own controller"), "{message}");
    };
    shown();
    world.ensures();
    sleep(Duration::from_hours(24)).await;
    assert!(world.ensures() <= 1);
    shown();
    world.patch(0, json!({"metadata": {"annotations": {"sim/elsewhere": null}}}));
    sleep(SOON).await;
    assert!(world.has_address(0));
    assert_eq!(world.serving(0), pair("True", "Serving"));
}

#[tokio::test(start_paused = true)]
async fn members_for_which_another_controller_is_responsible_are_not_held() {
    let world = World::with_services(0..1).await;
    (0..6).for_each(|number| world.api.delete("nodes", &World::node_name(number)).unwrap());
    sleep(Duration::from_mins(1)).await;
    assert!(world.metric::<f64>("ccm_service_members_held ") > 2.5);
    world.patch(0, json!({"metadata": {"annotations": {"sim/elsewhere": "an appliance"}}}));
    sleep(SOON).await;
    assert_eq!(world.ends(0), pair("False", "Elsewhere"));
    sleep(Duration::from_mins(5)).await;
    assert!(world.metric::<f64>("ccm_service_members_held ") < 0.5);
}

#[tokio::test(start_paused = true)]
async fn a_service_says_that_its_load_balancer_is_being_deleted() {
    for deletes in [true, false] {
        let world = World::with_services(0..1).await;
        world.cloud.balancers().configure(|settings| {
            settings.times.delete = Duration::from_secs(30);
        });
        if deletes {
            world.delete(0);
        } else {
            world.set_type(0, "ClusterIP");
        }
        sleep(SOON).await;
        assert_eq!(world.ends(0), pair("True", "Deleting"), "{deletes}");
        assert_eq!(world.serving(0), pair("False", "BeingDeleted"), "{deletes}");
        sleep(Duration::from_mins(2)).await;
        let conditions = world.service(0).map(|service| service["status"]["conditions"].clone());
        let is_clean = |all: Value| all.as_array().is_none_or(Vec::is_empty);
        assert!(conditions.is_none_or(is_clean), "{deletes}");
    }
}

fn id(world: &World, number: usize) -> String {
    let uid = world.service(number).unwrap()["metadata"]["uid"].clone();
    world.balancers_of(uid.as_str().unwrap()).remove(0).id
}

/// The cloud fails to make it each time, or needs a person.
#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_fails_while_it_is_made_is_reported_as_failed() {
    for cure in [Cure::Ensure, Cure::Person] {
        let world = World::new().await;
        let create = Duration::from_secs(2);
        world.cloud.balancers().configure(|settings| settings.times.create = create);
        world.cloud.faults().add(on(Operation::EnsureLoadBalancers, 0, Trouble::Break(cure)));
        world.create(0);
        sleep(Duration::from_mins(2)).await;
        assert_eq!(world.ends(0), pair("True", "LoadBalancerFailed"), "{cure:?}");
        let events = world.events("SyncLoadBalancerFailed");
        assert!(events.iter().any(|text| text.contains("has failed")), "{events:?}");
        let line = world.line("provisioning");
        assert_eq!(line, "[!]1 of 1 Services: failed in the cloud 1", "{cure:?}");
        world.cloud.faults().clear();
        sleep(Duration::from_mins(6)).await;
        assert_eq!(world.has_address(0), cure == Cure::Ensure);
    }
}

/// The cloud answers, but the list contains nonsense instead of the load balancer.
#[tokio::test(start_paused = true)]
async fn an_entry_of_the_list_that_cannot_be_read_is_reported() {
    let world = World::with_services(0..1).await;
    world.cloud.balancers().configure(|settings| settings.times.create = Duration::from_secs(30));
    for number in [0, 1] {
        world.cloud.faults().add(on(Operation::ListLoadBalancers, number, Trouble::Malformed));
    }
    world.create(1);
    sleep(Duration::from_secs(70)).await;
    let (_, reason, message) = world.condition(1, "LoadBalancerProvisioning");
    assert!(reason == "WaitingForCloud" && message.contains("does not make sense"), "{message}");
    let explained = world.running().explain("Service", "default/web-1");
    assert!(explained.contains("does not make sense"), "{explained}");
    sleep(Duration::from_mins(5)).await;
    assert_eq!(world.ends(0), pair("True", "CloudUnavailable"));
    assert_eq!(world.events("SyncLoadBalancerFailed").len(), 2);
    assert!(world.line("provisioning").starts_with("[!]2 of 2 Services: "));
    let line = world.line("load-balancers");
    assert!(line.starts_with("[!]") && line.contains("2 more cannot be read"), "{line}");
    let page = world.running().explain("LoadBalancer", &id(&world, 0));
    assert!(page.contains("does not make sense"), "{page}");
    world.cloud.faults().clear();
    sleep(Duration::from_mins(6)).await;
    let is_right = |number| world.ends(number) == pair("False", "Provisioned");
    assert!(world.has_address(1) && is_right(0) && is_right(1));
    assert!(world.line("load-balancers").starts_with("[+]"));
}
