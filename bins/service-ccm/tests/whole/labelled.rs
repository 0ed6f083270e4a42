//! Members in the cloud follow the labels of nodes within seconds.

use std::time::Duration;

use ccm_sim::apiserver::PatchKind;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    cases::SOON,
    world::{NODES, Variant, World},
};

/// The annotation of the simulated cloud that selects members.
const SELECTOR: &str = "sim/node-selector";
/// The first change after a quiet time goes out after a second.
const NEXT: Duration = Duration::from_secs(3);
/// How often Services were queued.
const WOKEN: &str = "workqueue_adds_total{name=\"service\"} ";

impl World {
    /// Returns a cloud that selects members by labels, and what the provider says of it.
    async fn selecting(arguments: &'static [&'static str], is_opaque: bool) -> Self {
        let mut world = Self::start(Variant::with(arguments)).await;
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
async fn a_service_that_comes_right_after_the_label_has_the_node() {
    let world = World::selecting(&[], false).await;
    world.create_with(0, json!({SELECTOR: "zone=a"}));
    sleep(SOON).await;
    // No load balancer selected by this label until now, and the nodes have had it for a long time.
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
    // A label of one Service's selector does not cost the other one a call.
    world.label(3, "pool", json!("blue"));
    sleep(SOON).await;
    assert_eq!((world.set_member_calls(), world.members(0)), (1, 4));
}
