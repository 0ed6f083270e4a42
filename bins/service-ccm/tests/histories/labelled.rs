//! Members follow the labels of nodes, to the cloud and within seconds.

use std::time::Duration;

use ccm_cloud::LoadBalancers;
use ccm_sim::apiserver::PatchKind;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    cases::SOON,
    services::SELECTOR,
    world::{NODES, Variant, World},
};

/// The first change after a quiet time goes out after a second.
const NEXT: Duration = Duration::from_secs(3);
/// A leader to which nothing was left reads the members of all load balancers by then.
const LOOK: Duration = Duration::from_mins(6);
/// How often Services were queued.
const WOKEN: &str = "workqueue_adds_total{name=\"service\"} ";

impl World {
    /// A cloud that selects members by labels, and what the provider says of it.
    async fn selecting(arguments: &'static [&'static str], is_opaque: bool) -> Self {
        let mut world = Self::start(1, Variant::with(arguments)).await;
        world.stop();
        world.cloud.balancers().configure(|settings| settings.traits.member_labels = true);
        world.lies.lock().is_opaque = is_opaque;
        world.restart().await;
        sleep(SOON).await;
        world
    }

    pub(crate) fn patch_node(&self, number: usize, patch: Value) {
        let name = Self::node_name(number);
        self.api.patch("nodes", &name, "", PatchKind::Merge, patch).unwrap();
    }

    fn label(&self, number: usize, key: &str, value: Value) {
        self.patch_node(number, json!({"metadata": {"labels": {key: value}}}));
    }

    fn set_member_calls(&self) -> u64 {
        self.cloud.calls().load_balancers.set_members
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_joins_and_leaves_by_its_label() {
    for is_opaque in [false, true] {
        let mut world = World::selecting(&[], is_opaque).await;
        (0..3).for_each(|number| world.label(number, "pool", json!("blue")));
        sleep(SOON).await;
        world.create_with(0, json!({SELECTOR: "pool=blue"}));
        world.create(1);
        sleep(SOON).await;
        assert_eq!((world.members(0), world.members(1)), (3, NODES), "{is_opaque}");
        world.label(3, "pool", json!("blue"));
        sleep(NEXT).await;
        assert_eq!((world.members(0), world.members(1)), (4, NODES), "{is_opaque}: it joins");
        world.label(0, "pool", json!("red"));
        sleep(SOON).await;
        assert_eq!(world.members(0), 3, "{is_opaque}: it leaves");
        // A label that only changes while nobody leads.
        world.stop();
        world.label(4, "pool", json!("blue"));
        world.restart().await;
        sleep(LOOK).await;
        assert_eq!(world.members(0), 4, "{is_opaque}: the next leader sees it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_comes_right_after_the_label_has_the_node() {
    let world = World::selecting(&[], false).await;
    world.create_with(0, json!({SELECTOR: "zone=a"}));
    sleep(SOON).await;
    // A label by which nothing selected until now, on nodes that have had it for long.
    (0..4).for_each(|number| world.label(number, "pool", json!("blue")));
    world.create_with(1, json!({SELECTOR: "pool=blue"}));
    sleep(NEXT).await;
    assert_eq!((world.members(0), world.members(1)), (0, 4));
}

#[tokio::test(start_paused = true)]
async fn a_label_that_no_service_selects_by_costs_nothing() {
    let world = World::selecting(&[], false).await;
    world.create_with(0, json!({SELECTOR: "pool=blue"}));
    world.create(1);
    (0..3).for_each(|number| world.label(number, "pool", json!("blue")));
    sleep(Duration::from_mins(2)).await;
    assert_eq!((world.members(0), world.members(1)), (3, NODES));
    world.cloud.reset_calls();
    let adds: u64 = world.metric(WOKEN);
    for turn in 0..20 {
        world.label(turn % NODES, "example.com/load", json!(turn.to_string()));
        sleep(Duration::from_secs(2)).await;
    }
    let woken = world.metric::<u64>(WOKEN) - adds;
    assert_eq!((world.set_member_calls(), woken), (0, 0));
    // A label of one Service's selector costs the other one no call.
    world.label(3, "pool", json!("blue"));
    sleep(SOON).await;
    assert_eq!((world.set_member_calls(), world.members(0)), (1, 4));
}

#[tokio::test(start_paused = true)]
async fn nodes_that_a_load_balancer_does_not_select_do_not_count() {
    let world = World::selecting(&[], false).await;
    world.create_with(0, json!({SELECTOR: "pool=blue"}));
    (0..4).for_each(|number| world.label(number, "pool", json!("blue")));
    sleep(SOON).await;
    assert_eq!(world.members(0), 4);
    // The list lacks all of its members, and is short by a third of the nodes.
    (0..4).for_each(|number| world.api.delete("nodes", &World::node_name(number)).unwrap());
    sleep(Duration::from_mins(5)).await;
    assert_eq!(world.members(0), 2, "at least half stay");
    assert!(LoadBalancers::traits(&world.cloud).member_labels);
}

/// The provider's own setting selects other nodes for all load balancers: about the first minutes.
#[tokio::test(start_paused = true)]
async fn a_wrong_node_selector_of_the_provider_leaves_half_of_the_members() {
    for wrong in ["pool=none", "pool=blue"] {
        let mut world = World::selecting(&[], false).await;
        (0..3).for_each(|number| world.label(number, "pool", json!("blue")));
        (0..2).for_each(|number| world.create(number));
        sleep(SOON).await;
        for selector in ["", wrong, ""] {
            world.cloud.balancers().configure(|settings| settings.selector = selector.to_owned());
            world.restart().await;
            sleep(LOOK).await;
            let is_wrong = !selector.is_empty();
            let least = if is_wrong { NODES.div_ceil(2) } else { NODES };
            let found = [0, 1].map(|number| world.members(number));
            assert!(found.into_iter().all(|count| count >= least), "{selector}: {found:?}");
            assert_eq!(world.metric::<f64>("ccm_service_members_held ") > 0.5, is_wrong);
        }
    }
}
