//! The known state of nodes and instances, and which nodes need work.

mod agreed;
pub(crate) mod brake;
pub(crate) mod census;
pub(crate) mod intake;
pub(crate) mod lookups;
pub(crate) mod refresh;
pub(crate) mod waiting;

use std::{sync::Arc, time::Duration};

use ccm_base::Backoff;
use ccm_cloud::{Claim, Cloud, Lookup, LookupResult};
use ccm_controller::{
    corrector::Corrector,
    guard::Guard,
    instances,
    inventory::Inventory,
    left_over::LeftOver,
    lookups::Answers,
    queue::{Priority, QueueConfig, QueueMetrics, WorkQueue},
    repeat_reports::RepeatMetrics,
    states::States,
};
use ccm_kube::store::Store;
use ccm_objects::{Node, Shared as Name, Taint, node_keys};
use ccm_runtime::{
    plans::Plans,
    program::{Context, Program},
};
use tokio::sync::watch;

use self::agreed::AgreedNodes;
use crate::{
    metrics::{NodeMetrics, State},
    report::NodeReports,
    settings::NodeSettings,
};

/// Upstream's name of the queue: the label of its metrics.
pub(crate) const QUEUE: &str = "Nodes";

/// The shared inputs of the controller's parts.
#[derive(Clone)]
pub(crate) struct Handles {
    pub(crate) cloud: Arc<dyn Cloud>,
    pub(crate) store: Store<Node>,
    pub(crate) queue: WorkQueue<Name>,
    pub(crate) inventory: Inventory,
    pub(crate) answers: Answers,
    pub(crate) states: Arc<States<State>>,
    /// Lets initialised nodes be written.
    pub(crate) corrector: Arc<Corrector>,
    pub(crate) guard: Guard,
    pub(crate) agreed: AgreedNodes,
    pub(crate) reports: NodeReports,
    pub(crate) plans: Plans,
    pub(crate) settings: watch::Receiver<Arc<NodeSettings>>,
    pub(crate) metrics: NodeMetrics,
    pub(crate) repeats: RepeatMetrics,
}

impl Handles {
    pub(crate) fn new<P: Program<Settings = NodeSettings>>(context: &Context<P>) -> Self {
        let metrics = NodeMetrics::new(&context.metrics);
        let inventory = Inventory::new();
        inventory.register(&context.metrics);
        let queue_metrics = QueueMetrics::new(&context.metrics);
        let store = Store::new();
        let (counts, waits) = (metrics.clone(), metrics.clone());
        let rate = context.settings.borrow().node_correction_qps;
        Self {
            cloud: Arc::clone(&context.cloud),
            guard: brake::guard(context, &store),
            agreed: AgreedNodes::default(),
            store,
            queue: WorkQueue::new(QUEUE, queue_config(), &queue_metrics),
            inventory,
            answers: Answers::default(),
            states: Arc::new(States::new(move |state, by| counts.count(state, by))),
            corrector: Arc::new(Corrector::new(rate, move |nodes| waits.corrections_wait(nodes))),
            reports: NodeReports::new(context.events.clone(), metrics.clone()),
            plans: context.plans.clone(),
            settings: context.settings.clone(),
            metrics,
            repeats: RepeatMetrics::beginning(&context.metrics, "Node", "addresses"),
        }
    }

    /// Returns true if `--node-selector` selects this node.
    pub(crate) fn selects(&self, node: &Node) -> bool {
        self.settings.borrow().node_selector.matches(node)
    }

    /// Which provider owns the node; `None` while this is unknown. What is not selected is treated
    /// like another provider's.
    pub(crate) fn claim(&self, node: &Node) -> Option<Claim> {
        if !self.selects(node) {
            return Some(Claim::Foreign);
        }
        instances::claim(&*self.cloud, node)
    }

    /// The other nodes with the provider ID of the instance that the cloud has found for this one.
    pub(crate) fn rivals(&self, node: &Node, answer: &LookupResult) -> Vec<Arc<Node>> {
        let Ok(Lookup::Found(instance)) = answer else { return Vec::new() };
        let has_its_id = |other: &Node| instances::has_id_of(&*self.cloud, other, instance);
        self.store.matching(|other| other.name != node.name && has_its_id(other))
    }

    /// The taint of this node that lifecycle-ccm should remove. lifecycle-ccm reports it on nodes that are left out.
    pub(crate) fn left_over(&self, node: &Node) -> Option<LeftOver> {
        let is_off = |taint: &Taint| taint.is(node_keys::SHUTDOWN, "NoSchedule");
        let is_left = node.is_ready() && node.taints.iter().any(is_off);
        (is_left && self.is_ours(node)?).then_some(LeftOver::Shutdown)
    }

    /// Returns true if the node may be this provider's; `None` while this is unknown.
    pub(crate) fn is_ours(&self, node: &Node) -> Option<bool> {
        self.claim(node).map(|claim| claim != Claim::Foreign)
    }
}

/// The back-off after failures. Upstream begins with 5 ms, which makes eight calls to a failing
/// cloud within a second.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };

/// How the queue spaces its retries.
fn queue_config() -> QueueConfig {
    QueueConfig { waits: RETRY, ..QueueConfig::default() }
}

/// How soon to sync a node after this change; `None` if the plan reads none of the changed
/// fields. Most updates are of that kind.
///
/// A change that a person or kubelet makes to fix something is urgent: it also shortens a
/// back-off. Other changes do not, so that a busy node does not cause calls to a failing
/// cloud.
fn sync_priority(old: &Node, new: &Node) -> Option<Priority> {
    let identified = old.has_identity_of(new);
    let annotated = old.annotations == new.annotations;
    if new.is_uninitialised() && (!old.is_uninitialised() || !identified || !annotated) {
        return Some(Priority::Urgent);
    }
    let same = identified
        && annotated
        && old.labels == new.labels
        && old.taints == new.taints
        && old.addresses == new.addresses
        // A held InternalIP is released when the node stops being Ready.
        && (new.is_ready() || !old.is_ready());
    (!same).then_some(Priority::Routine)
}

#[cfg(test)]
mod tests;
