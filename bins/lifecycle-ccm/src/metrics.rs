//! The metrics of lifecycle-ccm. Upstream's two keep their names and labels.

mod specimens;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use ccm_controller::brake::Usage;
use ccm_kube::ApiError;
use ccm_runtime::metrics::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
};

use crate::{
    court::{At, Cause, Counts, Doubt, Reason, Testimony, Verdict},
    docket::Line,
};

/// Bounds of the time from the first answer "gone" to the deletion, in seconds.
const TO_DELETION: [f64; 9] = [5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];
/// Bounds of the time that a node waits for a verdict, in seconds: a node that exists is
/// known to do so within a pass, one that is gone after the confirmation period.
const TO_VERDICT: [f64; 11] = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    operation: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    verdict: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabel {
    verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaintLabels {
    action: &'static str,
    result: &'static str,
}

/// How all nodes stand, for the gauge.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct States {
    pub(crate) ready: usize,
    pub(crate) foreign: usize,
    pub(crate) unselected: usize,
    pub(crate) shutdown: usize,
    pub(crate) undecided: Line,
}

/// All metrics of the controller. Clones share them.
#[derive(Clone)]
pub(crate) struct LifecycleMetrics {
    inner: Arc<Inner>,
}

struct Inner {
    passes: Histogram,
    answers: Family<CallLabels, Counter>,
    nodes: Family<StateLabel, Gauge>,
    verdicts: Family<VerdictLabels, Counter>,
    deletions: Family<ResultLabel, Counter>,
    to_deletion: Histogram,
    to_verdict: Family<VerdictLabel, Histogram, fn() -> Histogram>,
    longest_wait: Gauge<f64, AtomicU64>,
    taints: Family<TaintLabels, Counter>,
    breaker: Gauge,
    openings: Family<CauseLabel, Counter>,
    budget_limit: Gauge,
    budget_used: Gauge,
    oldest_case: Gauge<f64, AtomicU64>,
}

impl LifecycleMetrics {
    /// The metrics, registered.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let this = Self { inner: Arc::new(Inner::new()) };
        this.inner.register(metrics);
        this.inner.begin();
        this
    }

    /// A pass took so long.
    pub(crate) fn passed(&self, took: Duration) {
        self.inner.passes.observe(took.as_secs_f64());
    }

    /// The cloud answered like this about one node.
    pub(crate) fn answered(&self, testimony: &Testimony) {
        let result = match testimony {
            Testimony::Present(_) => "success",
            Testimony::Gone(_) => "instance_not_found",
            Testimony::NotOurs(_) => "not_ours",
            Testimony::NoAnswer(error) => error.kind.reason(),
        };
        let labels = CallLabels { operation: "instance_exists", result };
        self.inner.answers.get_or_create(&labels).inc();
    }

    /// The court said this.
    pub(crate) fn ruled(&self, verdict: &Verdict) {
        let labels = VerdictLabels { verdict: verdict.as_str(), reason: verdict.reason() };
        self.inner.verdicts.get_or_create(&labels).inc();
    }

    /// A node waited so long until the court said what is to be done about it.
    pub(crate) fn settled(&self, verdict: &'static str, waited: Duration) {
        let labels = VerdictLabel { verdict };
        self.inner.to_verdict.get_or_create(&labels).observe(waited.as_secs_f64());
    }

    /// A deletion ended; `open_for` is how long the case was open.
    pub(crate) fn deleted(&self, result: Result<(), &ApiError>, open_for: Duration) {
        if result.is_ok() {
            self.inner.to_deletion.observe(open_for.as_secs_f64());
        }
        let result = result.err().map_or("ok", ApiError::reason);
        self.inner.deletions.get_or_create(&ResultLabel { result }).inc();
    }

    /// The shutdown taint was written.
    pub(crate) fn tainted(&self, action: &'static str, result: Result<(), &ApiError>) {
        let result = result.err().map_or("ok", ApiError::reason);
        self.inner.taints.get_or_create(&TaintLabels { action, result }).inc();
    }

    /// The breaker opened.
    pub(crate) fn opened(&self, cause: &Cause) {
        self.inner.openings.get_or_create(&CauseLabel { cause: cause.as_str() }).inc();
    }

    /// The oldest open case has been open for so long; `None` if there is none.
    pub(crate) fn waits(&self, oldest_case: Option<Duration>) {
        self.inner.oldest_case.set(oldest_case.unwrap_or_default().as_secs_f64());
    }

    /// How things stand after a pass.
    pub(crate) fn stand(&self, open: bool, budget: Usage, counts: Counts, states: States) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let inner = &self.inner;
        inner.breaker.set(open.into());
        inner.budget_limit.set(number(budget.limit));
        inner.budget_used.set(number(budget.used));
        inner.longest_wait.set(states.undecided.longest.as_secs_f64());
        for (state, count) in [
            ("ready", states.ready),
            ("foreign", states.foreign),
            ("not_selected", states.unselected),
            ("shutdown", states.shutdown),
            ("watched", counts.watched),
            ("suspected", counts.suspected),
            ("undecided", states.undecided.nodes),
        ] {
            inner.nodes.get_or_create(&StateLabel { state }).set(number(count));
        }
    }
}

impl Inner {
    fn new() -> Self {
        Self {
            passes: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            answers: Family::default(),
            nodes: Family::default(),
            verdicts: Family::default(),
            deletions: Family::default(),
            to_deletion: Histogram::new(TO_DELETION),
            to_verdict: Family::new_with_constructor(|| Histogram::new(TO_VERDICT)),
            longest_wait: Gauge::default(),
            taints: Family::default(),
            breaker: Gauge::default(),
            openings: Family::default(),
            budget_limit: Gauge::default(),
            budget_used: Gauge::default(),
            oldest_case: Gauge::default(),
        }
    }

    /// Shows the series that people wait for before there is anything to count: one that is
    /// born with its first event hides that event from `rate` and `increase`.
    fn begin(&self) {
        let verdicts = Reason::ALL
            .map(Verdict::Keep)
            .into_iter()
            .chain(Doubt::ALL.map(|why| Verdict::Suspect { look_again: At::default(), why }))
            .chain([Verdict::Delete, Verdict::BreakerOpen, Verdict::OverBudget { until: None }]);
        for verdict in verdicts {
            let labels = VerdictLabels { verdict: verdict.as_str(), reason: verdict.reason() };
            drop(self.verdicts.get_or_create(&labels));
        }
        for verdict in ["keep", "delete"] {
            drop(self.to_verdict.get_or_create(&VerdictLabel { verdict }));
        }
        for cause in ["empty", "shrunk", "contradiction"] {
            drop(self.openings.get_or_create(&CauseLabel { cause }));
        }
        drop(self.deletions.get_or_create(&ResultLabel { result: "ok" }));
        for action in ["add", "remove"] {
            drop(self.taints.get_or_create(&TaintLabels { action, result: "ok" }));
        }
    }

    fn register(&self, to: &Metrics) {
        self.register_passes(to);
        self.register_court(to);
    }

    fn register_passes(&self, to: &Metrics) {
        to.register(
            "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
            "[ALPHA] How long a pass over the nodes that are not Ready took",
            self.passes.clone(),
        );
        to.register(
            "cloud_node_lifecycle_controller_cloud_provider_calls",
            "[ALPHA] Answers of the cloud about nodes, one per node and lookup, by operation and result",
            self.answers.clone(),
        );
        to.register(
            "ccm_lifecycle_nodes",
            "[ALPHA] Nodes by how they stand, on the leader; suspected and undecided ones are also watched",
            self.nodes.clone(),
        );
        to.register(
            "ccm_lifecycle_taints",
            "[ALPHA] Requests to add or remove the shutdown taint, by what the API server answered",
            self.taints.clone(),
        );
    }

    fn register_court(&self, to: &Metrics) {
        to.register(
            "ccm_lifecycle_verdicts",
            "[ALPHA] What the court said, once per node and hearing",
            self.verdicts.clone(),
        );
        to.register(
            "ccm_lifecycle_time_to_verdict_seconds",
            "[ALPHA] From seeing that a node is not Ready, or is in doubt again, to knowing what to do: keep or delete",
            self.to_verdict.clone(),
        );
        to.register(
            "ccm_lifecycle_longest_wait_seconds",
            "[ALPHA] How long the node that has waited longest for a verdict has waited, at the last pass; 0 if none waits",
            self.longest_wait.clone(),
        );
        to.register(
            "ccm_lifecycle_deletions",
            "[ALPHA] Requests to delete a node, by what the API server answered",
            self.deletions.clone(),
        );
        to.register(
            "ccm_lifecycle_time_to_deletion_seconds",
            "[ALPHA] Time from the cloud's first word that an instance is gone to the deletion of its node",
            self.to_deletion.clone(),
        );
        to.register(
            "ccm_lifecycle_breaker_open",
            "[ALPHA] Whether the breaker is open: 1 while the list of the fleet is not believable and nothing is deleted, 0 otherwise",
            self.breaker.clone(),
        );
        to.register(
            "ccm_lifecycle_breaker_openings",
            "[ALPHA] How often the breaker opened, by cause",
            self.openings.clone(),
        );
        to.register(
            "ccm_lifecycle_budget_limit",
            "[ALPHA] How many nodes may be deleted in one window of the budget, as the cluster is now",
            self.budget_limit.clone(),
        );
        to.register(
            "ccm_lifecycle_budget_used",
            "[ALPHA] How many nodes were deleted in the window that ends now",
            self.budget_used.clone(),
        );
        to.register(
            "ccm_lifecycle_oldest_case_seconds",
            "[ALPHA] For how long the node that is suspected longest has been so without being deleted or kept; 0 without one",
            self.oldest_case.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_wait_for_is_there_before_it_happens() {
        let registry = Metrics::new();
        let _metrics = LifecycleMetrics::new(&registry);
        let text = registry.encode().unwrap();
        for series in [
            r#"ccm_lifecycle_breaker_openings_total{cause="empty"} 0"#,
            r#"ccm_lifecycle_deletions_total{result="ok"} 0"#,
            r#"ccm_lifecycle_verdicts_total{verdict="delete",reason=""} 0"#,
            r#"ccm_lifecycle_verdicts_total{verdict="suspect",reason="listed"} 0"#,
            r#"ccm_lifecycle_time_to_verdict_seconds_count{verdict="keep"} 0"#,
            r#"ccm_lifecycle_taints_total{action="add",result="ok"} 0"#,
        ] {
            assert!(text.lines().any(|line| line == series), "{series} in\n{text}");
        }
    }
}
