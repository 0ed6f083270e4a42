//! The metrics of node-ccm. Upstream's two histograms keep their names and bounds.

use std::{collections::BTreeMap, time::Duration};

use ccm_cloud::{ErrorKind, LookupResult};
use ccm_controller::instances::LookupOutcome;
use ccm_kube::{ApiError, ApiReason};
use ccm_metrics::{Counter, Every, Family, Gauge, Histogram, label, level, metrics};
use strum::{IntoStaticStr, VariantArray, VariantNames};

use crate::{
    machine::{NodeState, Problem},
    plan::{Field, Note, WaitReason},
};

/// Bounds of upstream's histograms, in seconds.
const INITIALISATION: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];
/// Bounds for the length of a refresh, in seconds.
const REFRESH: [f64; 10] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Bounds of the number of nodes in one lookup, as a batch has at most 500.
const BATCH: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0];

impl NodeState {
    /// Returns the reason why the node waits, in the words of `ccm_node_waiting`.
    pub(crate) fn why(self) -> Option<&'static str> {
        self.waits_for().map(|what| what.map_or_else(ErrorKind::reason, Into::into))
    }

    const fn waits_for(self) -> Option<Result<WaitsFor, ErrorKind>> {
        match self {
            Self::Waiting(WaitReason::Cloud(kind)) => Some(Err(kind)),
            Self::Waiting(WaitReason::InstanceNotFound) => Some(Ok(WaitsFor::InstanceNotFound)),
            Self::Waiting(WaitReason::NodeIp) => Some(Ok(WaitsFor::NodeIp)),
            Self::Waiting(WaitReason::NoAddress) => Some(Ok(WaitsFor::NoAddress)),
            Self::Waiting(WaitReason::Identity) => Some(Ok(WaitsFor::Identity)),
            Self::WriteFailing => Some(Ok(WaitsFor::ApiServer)),
            _ => None,
        }
    }
}

/// The need of a waiting node, unless the lookup itself failed.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum WaitsFor {
    InstanceNotFound,
    NodeIp,
    NoAddress,
    Identity,
    ApiServer,
}

/// Why a label is skipped.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum LabelDrop {
    Invalid,
    Reserved,
    AlreadyPresent,
}

/// The fate of a change of the first InternalIP.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum IpChange {
    Applied,
    Held,
}

/// The handling of a node whose provider ID nothing confirms.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum Unconfirmed {
    Held,
    Reported,
}

label!(NodeState, WaitsFor, LabelDrop, IpChange, Problem, Unconfirmed);
label! {
    /// The kind of a write.
    struct WriteKind { "addresses", "taint", "labels" }
}

metrics! {
    /// All metrics of the controller. Clones share them.
    pub(crate) struct NodeMetrics {
        /// Time from the creation of a node to the removal of its uninitialized taint
        [ALPHA] node_controller_cloud_provider_taint_removal_delay_seconds => taint_removal: Histogram,
            bounds INITIALISATION;
        /// Time from the creation of a node to the end of its initialisation
        [ALPHA] node_controller_initial_node_sync_delay_seconds => initial_sync: Histogram,
            bounds INITIALISATION;
        /// Nodes by state, on the leader
        [ALPHA] ccm_node_nodes { state } => nodes: Family<Gauge, NodeState>;
        /// Nodes that keep the uninitialized taint, by the reason why they cannot be initialised yet, on the leader
        [ALPHA] ccm_node_waiting { reason } => waiting: Family<Gauge, Result<WaitsFor, ErrorKind>>;
        /// Nodes whose provider ID has another provider's scheme, on the leader; node-ccm skips them
        [ALPHA] ccm_node_foreign_nodes => foreign: Gauge;
        /// Writes to nodes, by kind and by result at the API server
        [ALPHA] ccm_node_writes { kind, result } => writes: Family<Counter, (WriteKind, Result<(), ApiReason>)>,
            begin (Every, Ok(()));
        /// Results of cloud lookups, one per node
        [ALPHA] ccm_node_answers { answer } => answers: Family<Counter, Result<LookupOutcome, ErrorKind>>;
        /// Number of nodes per cloud lookup
        [ALPHA] ccm_node_lookup_batch_size => batches: Histogram, bounds BATCH;
        /// Maximum number of nodes per cloud lookup, on the leader: 500, or fewer while the cloud does not answer
        /// large lookups in time
        [ALPHA] ccm_node_lookup_batch_limit => batch_limit: Gauge;
        /// Initialised nodes that wait for their turn to be written, on the leader
        [ALPHA] ccm_node_corrections_waiting => corrections_waiting: Gauge;
        /// Labels from the cloud that were not set on the node, by reason, each counted once per node
        [ALPHA] ccm_node_label_drops { reason } => label_drops: Family<Counter, LabelDrop>, begin Every;
        /// Changes of the first InternalIP of a Ready node in the cloud, by whether they were applied or held
        [ALPHA] ccm_node_internal_ip_changes { result } => internal_ip_changes: Family<Counter, IpChange>,
            begin Every;
        /// Nodes whose provider ID nothing confirms, or another node has, by whether they were held or only reported,
        /// each counted once
        [ALPHA] ccm_node_unconfirmed_identities { result } => unconfirmed: Family<Counter, Unconfirmed>,
            begin Every;
        /// Initialised nodes with a problem that node-ccm does not fix, by problem, at the last
        /// refresh
        [ALPHA] ccm_node_irregular_nodes { problem } => irregular: Family<Gauge, Problem>, begin Every;
        /// Lookups of all nodes, one per period, by result; an error means that no node was answered
        [ALPHA] ccm_node_refreshes { result } => refreshes: Family<Counter, Result<(), ErrorKind>>,
            begin [Ok(())];
        /// Duration of a lookup of all nodes including the comparison with them
        [ALPHA] ccm_node_refresh_duration_seconds => refresh_duration: Histogram, bounds REFRESH;
        /// Initialised nodes that differed from the cloud's answers in the last lookup of all nodes
        [ALPHA] ccm_node_refresh_differing => refresh_differing: Gauge;
    }
}

impl NodeMetrics {
    /// Records that this number of nodes has entered the state, or left it if negative.
    pub(crate) fn count(&self, state: NodeState, by: i64) {
        self.nodes.series(state).inc_by(by);
        if let Some(reason) = state.waits_for() {
            self.waiting.series(reason).inc_by(by);
        }
        if state == NodeState::Foreign {
            self.foreign.inc_by(by);
        }
    }

    /// Records that a node of this age was initialised.
    pub(crate) fn initialised(&self, age: Duration) {
        self.taint_removal.observe(age.as_secs_f64());
        self.initial_sync.observe(age.as_secs_f64());
    }

    /// Records the end of a write of this kind.
    pub(crate) fn written(&self, kind: &'static str, result: Result<(), &ApiError>) {
        self.writes.series((WriteKind(kind), result.map_err(ApiReason::from))).inc();
    }

    /// Records a lookup with this number of nodes.
    pub(crate) fn looked_up(&self, nodes: usize) {
        self.batches.observe(nodes as f64);
    }

    /// Records the maximum number of nodes in a lookup.
    pub(crate) fn limit_lookups(&self, nodes: usize) {
        self.batch_limit.set(level(nodes));
    }

    /// Records the number of initialised nodes that wait for their turn.
    pub(crate) fn corrections_wait(&self, nodes: usize) {
        self.corrections_waiting.set(level(nodes));
    }

    /// Records the cloud's answer about one node.
    pub(crate) fn count_answer(&self, answer: &LookupResult) {
        self.answers.series(LookupOutcome::from_result(answer)).inc();
    }

    /// Records a note that is new for its node.
    pub(crate) fn noted(&self, note: &Note) {
        let dropped = |reason| self.label_drops.series(reason).inc();
        let moved = |result| self.internal_ip_changes.series(result).inc();
        match note {
            Note::InvalidLabel { .. } => dropped(LabelDrop::Invalid),
            Note::ReservedLabel { .. } => dropped(LabelDrop::Reserved),
            Note::LabelKept { .. } => dropped(LabelDrop::AlreadyPresent),
            Note::Doubted(_) => self.unconfirmed.series(Unconfirmed::Reported).inc(),
            Note::Changes { field: Field::InternalIp, .. } => moved(IpChange::Applied),
            Note::InternalIpHeld { .. } => moved(IpChange::Held),
            Note::Changes { .. }
            | Note::InternalIpRestored { .. }
            | Note::InvalidAddress(_)
            | Note::FamilyLeftOut { .. }
            | Note::InvalidLabelPolicy(_)
            | Note::NodeIpRefused(_) => 0,
        };
    }

    /// Records that a node is held because nothing confirms its provider ID.
    pub(crate) fn held_unconfirmed(&self) {
        self.unconfirmed.series(Unconfirmed::Held).inc();
    }

    /// Records how many nodes have each problem.
    pub(crate) fn irregular(&self, counts: &BTreeMap<Problem, usize>) {
        for &problem in <Problem as VariantArray>::VARIANTS {
            self.irregular
                .series(problem)
                .set(level(counts.get(&problem).copied().unwrap_or_default()));
        }
    }

    /// Records the end of a lookup of all nodes: how many differ from their instances, or why no
    /// node was answered.
    pub(crate) fn refreshed(&self, took: Duration, result: Result<usize, ErrorKind>) {
        self.refresh_duration.observe(took.as_secs_f64());
        self.refreshes.series(result.map(drop)).inc();
        if let Ok(differing) = result {
            self.refresh_differing.set(level(differing));
        }
    }
}

#[cfg(test)]
mod tests;
