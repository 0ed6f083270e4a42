//! Load balancers that another controller has made, and their adoption.

use std::time::Duration;

use ccm_cloud::{ClusterId, Owner};
use ccm_sim::{
    apiserver::PatchKind,
    cloud::{Operation, balancers::SimBalancer},
    faults::{Fault, FaultEffect},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    cases::SOON,
    world::{NODES, Variant, World},
};

const ADOPT: &str = "quartet.dev/adopt-load-balancer";
const ID: &str = "quartet.dev/load-balancer-id";

/// The maker of the load balancers.
#[derive(Clone, Copy)]
pub(crate) enum Maker {
    /// A controller that records no owners.
    Older,
    /// This program, before the cluster was rebuilt with another UID.
    Before,
}

impl Maker {
    /// Turns this load balancer into one of this maker for the same Service.
    fn marks(self, balancer: &mut SimBalancer) {
        let mut owner = balancer.owners.remove(0);
        owner.uid.clear();
        owner.cluster.uid.clear();
        balancer.applied = None;
        balancer.members.iter_mut().for_each(|member| member.node.clear());
        match self {
            Self::Older => balancer.made_for = Some(owner),
            Self::Before => {
                let cluster = ClusterId { uid: "c-0".to_owned(), ..owner.cluster };
                balancer.owners.push(Owner { uid: "u-0".to_owned(), cluster, ..owner });
            }
        }
    }
}

impl World {
    /// Creates Services whose load balancers another controller has made, with finalizer and
    /// address, before a process of this program begins.
    pub(crate) async fn of(maker: Maker, services: usize, variant: Variant) -> Self {
        let mut world = Self::start(variant).await;
        (0..services).for_each(|number| world.create(number));
        sleep(SOON).await;
        world.stop();
        for balancer in world.ours() {
            world.cloud.balancers().update(&balancer.id, |balancer| maker.marks(balancer));
        }
        for number in 0..services {
            assert!(world.has_address(number), "{number}");
            let none = json!({"metadata": {"annotations": null}, "status": {"conditions": null}});
            world.patch(number, none.clone());
            let key = Self::service_key(number);
            world.api.patch("services", &key, "status", PatchKind::Merge, none).unwrap();
        }
        world.cloud.balancers().reset_writes();
        world
    }

    /// Returns the load balancer at the address of this Service.
    fn at_address(&self, number: usize) -> SimBalancer {
        let service = self.service(number).unwrap();
        let address = service["status"]["loadBalancer"]["ingress"][0]["ip"].clone();
        let mut all = self.cloud.balancers().all();
        all.retain(|one| one.addresses.iter().any(|own| address == own.to_string()));
        all.remove(0)
    }

    /// Returns reason and message of the condition.
    pub(crate) fn provisioning(&self, number: usize) -> (String, String) {
        let service = self.service(number).unwrap();
        let conditions = service["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let of_type = |one: &&Value| one["type"] == "LoadBalancerProvisioning";
        let found = conditions.iter().find(of_type).cloned().unwrap_or_default();
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        (text("reason"), text("message"))
    }

    fn adopt(&self, number: usize, id: &str) {
        self.patch(number, json!({"metadata": {"annotations": {ADOPT: id}}}));
    }

    fn assert_nothing_is_written(&self) {
        assert_eq!(self.cloud.balancers().writes(), []);
    }
}

/// Checks that the load balancer belongs to the Service as before: the same addresses, listeners
/// and members.
fn assert_only_the_record_differs(before: &SimBalancer, after: SimBalancer) {
    let owner = after.owners[0].clone();
    assert_eq!((&*owner.cluster.uid, after.made_for.clone()), ("c-1", None));
    let expect = SimBalancer {
        owners: vec![owner],
        made_for: None,
        version: after.version,
        ..before.clone()
    };
    assert_eq!(after, expect);
}

#[tokio::test(start_paused = true)]
async fn what_another_controller_made_is_adopted_after_approval_and_only_its_record_changes() {
    for maker in [Maker::Older, Maker::Before] {
        let mut world = World::of(maker, 2, Variant::default()).await;
        let before = [0, 1].map(|number| world.at_address(number));
        // The lists take some time, and no Service continues before all of them have arrived.
        let slow = Fault::new(FaultEffect::Latency(Duration::from_secs(5)));
        world.cloud.faults().add(slow.on(Operation::ListLoadBalancers));
        world.restart().await;
        sleep(Duration::from_hours(1)).await;
        world.assert_nothing_is_written();
        let id = &before[0].id;
        let (reason, message) = world.provisioning(0);
        assert_eq!(reason, "WaitingForAdoption");
        assert!(message.contains(&format!("{ADOPT}={id}")), "{message}");
        let plans = world.plans();
        for text in ["adopt: record the owner; so far: ", "was made by another controller", id] {
            assert!(plans.contains(text), "{text:?} is not in {plans}");
        }
        assert!(
            plans.contains(&format!("held: the annotation {ADOPT}={id} is not set")),
            "{plans}"
        );

        world.adopt(0, id);
        sleep(SOON).await;
        let writes = world.cloud.balancers().reset_writes();
        assert_eq!(writes.len(), 1, "{writes:?}");
        assert!(writes[0].line.starts_with("record the owner"), "{writes:?}");
        assert_only_the_record_differs(&before[0], world.at_address(0));
        assert_eq!(world.provisioning(0).0, "Provisioned");
        let service = world.service(0).unwrap();
        assert_eq!(service["metadata"]["annotations"][ID], **id);
        // The other one still waits.
        assert_eq!(world.provisioning(1).0, "WaitingForAdoption");
        assert!(!world.plans().contains(&format!("{ADOPT}={id}")), "{}", world.plans());
        sleep(Duration::from_hours(2)).await;
        world.restart().await;
        sleep(Duration::from_hours(1)).await;
        world.assert_nothing_is_written();

        // From now on it is like any other load balancer.
        world.add_node(NODES);
        sleep(SOON).await;
        assert_eq!(world.at_address(0).members.len(), NODES + 1);
        assert_eq!(world.at_address(1), before[1]);
    }
}

#[tokio::test(start_paused = true)]
async fn all_are_adopted_if_the_setting_says_so() {
    let variant = Variant::with(&["--adopt-load-balancers=true"]);
    let mut world = World::of(Maker::Older, 3, variant).await;
    let before = [0, 1, 2].map(|number| world.at_address(number));
    world.restart().await;
    sleep(SOON).await;
    let writes = world.cloud.balancers().writes();
    assert!(writes.len() == 3 && writes.iter().all(|one| one.line.starts_with("record the owner")));
    for (number, before) in before.iter().enumerate() {
        assert_only_the_record_differs(before, world.at_address(number));
        assert_eq!(world.provisioning(number).0, "Provisioned");
    }
}

/// A wrong request does not create or change anything, and is carried out at once when it is
/// corrected.
#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_fulfilled_says_why_and_changes_nothing() {
    let mut world = World::of(Maker::Older, 1, Variant::default()).await;
    world.restart().await;
    world.create(1);
    sleep(SOON).await;
    world.cloud.balancers().reset_writes();
    let (old, neighbours) = (world.at_address(0), world.at_address(1));
    let before = world.cloud.balancers().all();
    for (id, why) in [
        ("lb-none", "load balancer lb-none not found"),
        ("of-others-0", "load balancer of-others-0 has no owner"),
        ("of-others-1", "load balancer of-others-1 belongs to default/web-0"),
        (&*neighbours.id, "belongs to default/web-1, not to default/web-0"),
    ] {
        world.adopt(0, id);
        // A condition is rewritten at most once in 30 s.
        sleep(Duration::from_mins(1)).await;
        let (shown, message) = world.provisioning(0);
        assert_eq!(shown, "InvalidConfiguration", "{id}: {message}");
        let setting = format!("annotation {ADOPT}: ");
        assert!(message.contains(&setting) && message.contains(why), "{message}");
        assert!(world.plans().contains(id), "{}", world.plans());
    }
    sleep(Duration::from_hours(1)).await;
    world.assert_nothing_is_written();
    assert_eq!(world.cloud.balancers().all(), before);
    world.adopt(0, &old.id);
    sleep(SOON).await;
    assert_only_the_record_differs(&old, world.at_address(0));
    assert_eq!(world.cloud.balancers().reset_writes().len(), 1);
}

/// Without a list it is not known whether another controller has made a load balancer.
#[tokio::test(start_paused = true)]
async fn a_list_that_fails_for_long_gives_no_service_a_second_load_balancer() {
    let mut world = World::of(Maker::Older, 1, Variant::default()).await;
    let down = Fault::new(FaultEffect::Unavailable).on(Operation::ListLoadBalancers);
    let fault = world.cloud.faults().add(down);
    world.restart().await;
    sleep(Duration::from_hours(1)).await;
    world.assert_nothing_is_written();
    assert!(world.cloud.faults().remove(fault));
    sleep(Duration::from_mins(15)).await;
    world.assert_nothing_is_written();
    assert_eq!(world.provisioning(0).0, "WaitingForAdoption");
}

/// A setting that changes while Services wait for its word.
#[tokio::test(start_paused = true)]
async fn what_waits_is_adopted_when_the_setting_changes() {
    let mut world = World::of(Maker::Older, 2, Variant::default()).await;
    world.restart().await;
    sleep(SOON).await;
    assert_eq!(world.provisioning(0).0, "WaitingForAdoption");
    sleep(Duration::from_mins(2)).await;
    world.assert_nothing_is_written();
    world.reload(|settings| settings.adopt_load_balancers = true);
    sleep(3 * SOON).await;
    for number in 0..2 {
        assert_eq!(world.provisioning(number).0, "Provisioned");
    }
}
