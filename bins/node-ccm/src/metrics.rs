//! The metrics of node-ccm. Upstream's two histograms keep their names and bounds.

mod specimens;

use std::{sync::Arc, time::Duration};

use ccm_cloud::{ErrorKind, Lookup, LookupResult};
use ccm_kube::ApiError;
use ccm_runtime::metrics::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

use crate::plan::{Note, WaitReason};

/// Bounds of upstream's histograms, in seconds.
const INITIALISATION: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];
/// Bounds for the length of a refresh, in seconds.
const REFRESH: [f64; 10] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Bounds for the number of nodes in one lookup.
const BATCH: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0];

/// How a node stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum State {
    /// Not looked at yet, or there is no answer about it.
    #[default]
    Unknown,
    /// It has the taint and is about to be initialised.
    Pending,
    /// It has the taint, and something keeps it from being initialised.
    Waiting(WaitReason),
    /// It has the taint, and the API server does not take its writes.
    WriteFailing,
    /// It is initialised and as its instance.
    Initialised,
    /// It is initialised and its instance is gone.
    InstanceGone,
    /// The provider says that it is somebody else's.
    NotOurs,
    /// Its provider ID is another provider's.
    Foreign,
}

impl State {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Pending => "pending",
            Self::Waiting(_) | Self::WriteFailing => "waiting",
            Self::Initialised => "initialised",
            Self::InstanceGone => "instance_gone",
            Self::NotOurs => "not_ours",
            Self::Foreign => "foreign",
        }
    }

    const fn waits_for(self) -> Option<&'static str> {
        match self {
            Self::Waiting(reason) => Some(reason.as_str()),
            Self::WriteFailing => Some("api_server"),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabel {
    answer: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    kind: &'static str,
    result: &'static str,
}

/// All metrics of the controller. Clones share them.
#[derive(Clone)]
pub(crate) struct NodeMetrics {
    inner: Arc<Inner>,
}

struct Inner {
    taint_removal: Histogram,
    initial_sync: Histogram,
    nodes: Family<StateLabel, Gauge>,
    waiting: Family<ReasonLabel, Gauge>,
    foreign: Gauge,
    writes: Family<WriteLabels, Counter>,
    answers: Family<AnswerLabel, Counter>,
    batches: Histogram,
    label_drops: Family<ReasonLabel, Counter>,
    internal_ip_changes: Family<ResultLabel, Counter>,
    refreshes: Family<ResultLabel, Counter>,
    refresh_duration: Histogram,
    refresh_differing: Gauge,
}

impl NodeMetrics {
    /// The metrics, registered.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let this = Self { inner: Arc::new(Inner::new()) };
        this.inner.register(metrics);
        this.inner.begin();
        this
    }

    /// A node is in this state from now on.
    pub(crate) fn entered(&self, state: State) {
        self.count(state, 1);
    }

    /// A node is in this state no more.
    pub(crate) fn left(&self, state: State) {
        self.count(state, -1);
    }

    fn count(&self, state: State, by: i64) {
        let inner = &self.inner;
        inner.nodes.get_or_create(&StateLabel { state: state.as_str() }).inc_by(by);
        if let Some(reason) = state.waits_for() {
            inner.waiting.get_or_create(&ReasonLabel { reason }).inc_by(by);
        }
        if state == State::Foreign {
            inner.foreign.inc_by(by);
        }
    }

    /// A node of this age was initialised.
    pub(crate) fn initialised(&self, age: Duration) {
        self.inner.taint_removal.observe(age.as_secs_f64());
        self.inner.initial_sync.observe(age.as_secs_f64());
    }

    /// A write of this kind ended.
    pub(crate) fn written(&self, kind: &'static str, result: Result<(), &ApiError>) {
        let result = result.err().map_or("ok", ApiError::reason);
        self.inner.writes.get_or_create(&WriteLabels { kind, result }).inc();
    }

    /// One lookup of so many nodes was made.
    pub(crate) fn looked_up(&self, nodes: usize) {
        self.inner.batches.observe(nodes as f64);
    }

    /// The cloud answered like this about one node.
    pub(crate) fn answered(&self, answer: &LookupResult) {
        let answer = match answer {
            Ok(Lookup::Found(_)) => "found",
            Ok(Lookup::Gone(_)) => "gone",
            Ok(Lookup::NotOurs(_)) => "not_ours",
            Err(error) => error.kind.reason(),
        };
        self.inner.answers.get_or_create(&AnswerLabel { answer }).inc();
    }

    /// Something was noted about a node for the first time.
    pub(crate) fn noted(&self, note: &Note) {
        let dropped = |reason| self.inner.label_drops.get_or_create(&ReasonLabel { reason }).inc();
        let moved =
            |result| self.inner.internal_ip_changes.get_or_create(&ResultLabel { result }).inc();
        match note {
            Note::InvalidLabel { .. } => dropped("invalid"),
            Note::ReservedLabel { .. } => dropped("reserved"),
            Note::LabelKept { .. } => dropped("already_present"),
            Note::InternalIpChanged { .. } => moved("applied"),
            Note::InternalIpHeld { .. } => moved("held"),
            Note::NodeIpRefused(_) => 0,
        };
    }

    /// A list of the fleet ended: how many nodes differ from it, or why it failed.
    pub(crate) fn refreshed(&self, took: Duration, result: Result<usize, ErrorKind>) {
        let inner = &self.inner;
        inner.refresh_duration.observe(took.as_secs_f64());
        let label = result.err().map_or("ok", ErrorKind::reason);
        inner.refreshes.get_or_create(&ResultLabel { result: label }).inc();
        if let Ok(differing) = result {
            inner.refresh_differing.set(i64::try_from(differing).unwrap_or(i64::MAX));
        }
    }
}

impl Inner {
    fn new() -> Self {
        Self {
            taint_removal: Histogram::new(INITIALISATION),
            initial_sync: Histogram::new(INITIALISATION),
            nodes: Family::default(),
            waiting: Family::default(),
            foreign: Gauge::default(),
            writes: Family::default(),
            answers: Family::default(),
            batches: Histogram::new(BATCH),
            label_drops: Family::default(),
            internal_ip_changes: Family::default(),
            refreshes: Family::default(),
            refresh_duration: Histogram::new(REFRESH),
            refresh_differing: Gauge::default(),
        }
    }

    /// Shows the series that people wait for before there is anything to count: one that is
    /// born with its first event hides that event from `rate` and `increase`.
    fn begin(&self) {
        for kind in ["addresses", "taint", "labels"] {
            drop(self.writes.get_or_create(&WriteLabels { kind, result: "ok" }));
        }
        for reason in ["invalid", "reserved", "already_present"] {
            drop(self.label_drops.get_or_create(&ReasonLabel { reason }));
        }
        for result in ["applied", "held"] {
            drop(self.internal_ip_changes.get_or_create(&ResultLabel { result }));
        }
        drop(self.refreshes.get_or_create(&ResultLabel { result: "ok" }));
    }

    fn register(&self, to: &Metrics) {
        self.register_nodes(to);
        self.register_work(to);
    }

    fn register_nodes(&self, to: &Metrics) {
        to.register(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "[ALPHA] Time from the creation of a node to the removal of its uninitialized taint",
            self.taint_removal.clone(),
        );
        to.register(
            "node_controller_initial_node_sync_delay_seconds",
            "[ALPHA] Time from the creation of a node to the end of its initialisation",
            self.initial_sync.clone(),
        );
        to.register(
            "ccm_node_nodes",
            "[ALPHA] Nodes by how they stand, on the leader",
            self.nodes.clone(),
        );
        to.register(
            "ccm_node_waiting",
            "[ALPHA] Tainted nodes that wait, by what for, on the leader",
            self.waiting.clone(),
        );
        to.register(
            "ccm_node_foreign_nodes",
            "[ALPHA] Nodes whose provider ID has another provider's scheme, on the leader; they are left alone",
            self.foreign.clone(),
        );
    }

    fn register_work(&self, to: &Metrics) {
        to.register(
            "ccm_node_writes",
            "[ALPHA] Writes to nodes, by what was written and what the API server answered",
            self.writes.clone(),
        );
        to.register(
            "ccm_node_answers",
            "[ALPHA] Answers of the cloud to lookups, one per node",
            self.answers.clone(),
        );
        to.register(
            "ccm_node_lookup_batch_size",
            "[ALPHA] How many nodes one lookup in the cloud was about",
            self.batches.clone(),
        );
        to.register(
            "ccm_node_label_drops",
            "[ALPHA] Labels of the cloud that were left out, by reason, each counted once per node",
            self.label_drops.clone(),
        );
        to.register(
            "ccm_node_internal_ip_changes",
            "[ALPHA] Changes of the first InternalIP of a Ready node, by what was done",
            self.internal_ip_changes.clone(),
        );
        to.register(
            "ccm_node_refreshes",
            "[ALPHA] Lists of the whole fleet, one per period, by result",
            self.refreshes.clone(),
        );
        to.register(
            "ccm_node_refresh_duration_seconds",
            "[ALPHA] How long listing the fleet and comparing all nodes took",
            self.refresh_duration.clone(),
        );
        to.register(
            "ccm_node_refresh_differing",
            "[ALPHA] Nodes that differed from the last list of the fleet",
            self.refresh_differing.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_wait_for_is_there_before_it_happens() {
        let registry = Metrics::new();
        let _metrics = NodeMetrics::new(&registry);
        let text = registry.encode().unwrap();
        for series in [
            r#"ccm_node_writes_total{kind="taint",result="ok"} 0"#,
            r#"ccm_node_label_drops_total{reason="invalid"} 0"#,
            r#"ccm_node_internal_ip_changes_total{result="held"} 0"#,
            r#"ccm_node_refreshes_total{result="ok"} 0"#,
        ] {
            assert!(text.lines().any(|line| line == series), "{series} in\n{text}");
        }
    }
}
