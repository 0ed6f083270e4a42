//! Turns changes of nodes, the queue, lists and settings into events.

pub(crate) mod lookups;
pub(crate) mod refresh;
pub(crate) mod workers;

use std::sync::Arc;

use ccm_cloud::{Claim, Cloud, Lookup, LookupResult};
use ccm_controller::{instances, left_over::LeftOver};
use ccm_kube::store::{Change, Store};
use ccm_objects::{Node, Shared as Name, Taint, node_keys};
use ccm_runtime::program::{Context, Program};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    machine::{Event, NodeFacts, Params, SeenNode},
    perform::Performer,
    settings::NodeSettings,
};

/// Turns nodes, settings and the cloud's traits into events.
#[derive(Clone)]
pub(crate) struct Translator {
    cloud: Arc<dyn Cloud>,
    store: Store<Node>,
    settings: watch::Receiver<Arc<NodeSettings>>,
    is_observing: bool,
}

impl Translator {
    pub(crate) fn new<P: Program<Settings = NodeSettings>>(
        context: &Context<P>,
        store: &Store<Node>,
    ) -> Self {
        Self {
            cloud: Arc::clone(&context.cloud),
            store: store.clone(),
            settings: context.settings.clone(),
            is_observing: context.plans.is_observing(),
        }
    }

    /// Returns the settings of the machine.
    pub(crate) fn params(&self) -> Params {
        let settings = self.settings.borrow();
        Params {
            policy: settings.policy(),
            selector: settings.node_selector.clone(),
            budget: settings.budget(),
            per_second: settings.node_correction_qps,
            period: settings.node_status_update_frequency,
            is_observing: self.is_observing,
        }
    }

    fn seen(&self, node: &Arc<Node>) -> SeenNode {
        let cloud = &*self.cloud;
        SeenNode {
            node: Arc::clone(node),
            claim: instances::claim(cloud, node),
            id: instances::canonical_id(cloud, node).map(std::borrow::Cow::into_owned),
            labels_only_add: instances::traits(cloud).labels_only_add,
        }
    }

    /// Returns the other nodes with the provider ID of the instance that the cloud has found for
    /// this one.
    fn rivals(&self, node: &Node, answer: &LookupResult) -> Vec<Arc<Node>> {
        let Ok(Lookup::Found(instance)) = answer else { return Vec::new() };
        let has_its_id = |other: &Node| instances::has_id_of(&*self.cloud, other, instance);
        self.store.matching(|other| other.name != node.name && has_its_id(other))
    }

    /// Collects the facts about the node with this name that are outside of the machine, for its explanation.
    pub(crate) fn shown(&self, name: &str) -> NodeFacts {
        let is_listed = self.store.is_synced();
        let Some(node) = self.store.get(name) else {
            return NodeFacts { is_listed, ..NodeFacts::default() };
        };
        let (cloud, seen, is_selected) = (&*self.cloud, self.seen(&node), self.selects(&node));
        let is_left_out = !is_selected || seen.claim == Some(Claim::Foreign);
        let why = || instances::why_left_out(cloud, &node, is_selected);
        let has_its_id = |other: &Node| {
            let id = instances::canonical_id(cloud, other);
            other.name != node.name && id.is_some() && id.as_deref() == seen.id.as_deref()
        };
        NodeFacts {
            rivals: self.store.matching(has_its_id),
            is_selected,
            why_left_out: is_left_out.then(why),
            is_listed,
            seen: Some(seen),
        }
    }

    /// Returns true if `--node-selector` selects this node.
    fn selects(&self, node: &Node) -> bool {
        self.settings.borrow().node_selector.matches(node)
    }

    /// Returns the taint of this node that lifecycle-ccm should remove. lifecycle-ccm reports it on
    /// excluded nodes.
    pub(crate) fn left_over(&self, node: &Node) -> Option<LeftOver> {
        let is_off = |taint: &Taint| taint.is(node_keys::SHUTDOWN, "NoSchedule");
        let is_left = node.is_ready() && node.taints.iter().any(is_off);
        (is_left && self.is_ours(node)?).then_some(LeftOver::Shutdown)
    }

    /// Returns true if the node may belong to this provider; `None` while this is unknown.
    fn is_ours(&self, node: &Node) -> Option<bool> {
        if !self.selects(node) {
            return Some(false);
        }
        instances::claim(&*self.cloud, node).map(|claim| claim != Claim::Foreign)
    }

    /// Returns the event of a change of a node.
    pub(crate) fn change(&self, change: Change<Node>) -> Event {
        match change {
            Change::Added(node) => Event::Added(self.seen(&node)),
            Change::Updated { old, new } => Event::Updated { old, new: self.seen(&new) },
            Change::Deleted(node) => Event::Deleted(node),
        }
    }

    /// Starts leading, when the store is new.
    pub(crate) fn start_leading(&self, performer: &Performer) {
        // Before the list, so that nodes between the list and the first change are not missed.
        performer.hear(Event::StoreIsNew);
        for node in self.store.list() {
            performer.hear(Event::Listed(self.seen(&node)));
            self.if_gone(performer, &node.name);
        }
    }

    /// Tells the machine of a node that has gone in the meantime.
    fn if_gone(&self, performer: &Performer, name: &Name) {
        if self.store.get(name).is_none() {
            performer.hear(Event::Gone(Name::clone(name)));
        }
    }

    /// Tells the machine of other settings until the token is cancelled.
    pub(crate) async fn follow_settings(
        mut self,
        performer: Arc<Performer>,
        token: CancellationToken,
    ) {
        while let Some(Ok(())) = token.run_until_cancelled(self.settings.changed()).await {
            self.settings.borrow_and_update();
            performer.hear(Event::Set(self.params()));
        }
        token.cancelled().await;
    }
}
