//! The metrics of lifecycle-ccm. Upstream's two keep their names and labels.

use std::time::Duration;

use ccm_cloud::{ErrorKind, Lookup, LookupResult};
use ccm_kube::{ApiError, ApiReason};
use ccm_metrics::{
    Counter, Every, Family, FloatGauge, Gauge, Histogram, LabelSet, Text, exponential_buckets,
    label, level, metrics,
};

use strum::{IntoStaticStr, VariantArray as _, VariantNames};

use crate::{
    machine::Gauges,
    policy::{At, Cause, Doubt, Reason, Verdict, shutdown::TaintStep},
};

/// Bounds of the time from the first answer "gone" to the deletion, in seconds.
const TO_DELETION: [f64; 9] = [5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];
/// Bounds of the time that a node waits for a verdict, in seconds: one pass if the instance
/// exists, the confirmation period if it is gone.
const TO_VERDICT: [f64; 11] = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];

/// The only operation of upstream's counter.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum Operation {
    InstanceExists,
}

/// The results of a lookup, besides errors.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum LookupOutcome {
    Success,
    InstanceNotFound,
    NotOurs,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum NodeState {
    Ready,
    Foreign,
    NotSelected,
    Shutdown,
    Watched,
    Suspected,
    Replaced,
    Marked,
    Undecided,
}

label!(Operation, LookupOutcome, NodeState, Cause, TaintStep);
label! {
    /// The verdict that ended a wait.
    struct Settled { "keep", "delete" }
}
impl LabelSet for Verdict {
    fn texts(self) -> Vec<Text> {
        vec![self.as_str().into(), self.reason().into()]
    }

    fn every() -> Vec<Vec<Text>> {
        let keep = Reason::VARIANTS.iter().map(|reason| Self::Keep(*reason));
        let suspect = |why: &Doubt| Self::Suspect { look_again: At::default(), why: *why };
        keep.chain(Doubt::VARIANTS.iter().map(suspect))
            .chain([Self::Delete, Self::BreakerOpen, Self::OverBudget { until: None }])
            .map(Self::texts)
            .collect()
    }
}

type Answered = Result<(), ApiReason>;

metrics! {
    /// All metrics of the controller. Clones share them.
    pub(crate) struct LifecycleMetrics {
        /// Duration of a pass over the nodes that are not Ready
        [ALPHA] cloud_node_lifecycle_controller_monitor_nodes_duration_seconds => passes: Histogram,
            bounds exponential_buckets(0.001, 2.0, 15);
        /// Results of cloud lookups, one per node and lookup, by operation and result
        [ALPHA] cloud_node_lifecycle_controller_cloud_provider_calls { operation, result } => answers:
            Family<Counter, (Operation, Result<LookupOutcome, ErrorKind>)>;
        /// Nodes by state, on the leader; suspected, replaced and undecided nodes are also counted as watched
        [ALPHA] ccm_lifecycle_nodes { state } => nodes: Family<Gauge, NodeState>;
        /// Requests to add or remove the shutdown taint, by result at the API server
        [ALPHA] ccm_lifecycle_taints { action, result } => taints: Family<Counter, (TaintStep, Answered)>,
            begin (Every, Ok(()));
        /// Decisions of the deletion policy, one per node and lookup, by verdict and reason
        [ALPHA] ccm_lifecycle_verdicts { verdict, reason } => verdicts: Family<Counter, Verdict>, begin Every;
        /// Time from a node's becoming not Ready, or from a new answer that its instance is gone, to the decision to keep or delete it
        [ALPHA] ccm_lifecycle_time_to_verdict_seconds { verdict } => to_verdict: Family<Histogram, Settled>,
            bounds TO_VERDICT, begin Every;
        /// Waiting time of the node that has waited longest for a verdict, at the last pass; 0 if
        /// no node waits
        [ALPHA] ccm_lifecycle_longest_wait_seconds => longest_wait: FloatGauge;
        /// Requests to delete a node, by result at the API server
        [ALPHA] ccm_lifecycle_deletions { result } => deletions: Family<Counter, Answered>, begin [Ok(())];
        /// Time from the cloud's first answer that an instance is gone to the deletion of its node
        [ALPHA] ccm_lifecycle_time_to_deletion_seconds => to_deletion: Histogram, bounds TO_DELETION;
        /// 1 while the breaker is open: the list of the fleet is implausible, and no unapproved
        /// node is deleted; 0 otherwise
        [ALPHA] ccm_lifecycle_breaker_open => breaker: Gauge;
        /// Openings of the breaker, by cause
        [ALPHA] ccm_lifecycle_breaker_openings { cause } => openings: Family<Counter, Cause>, begin Every;
        /// Maximum number of deletions per budget window, for the current number of nodes
        [ALPHA] ccm_lifecycle_budget_limit => budget_limit: Gauge;
        /// Deletions in the current budget window
        [ALPHA] ccm_lifecycle_budget_used => budget_used: Gauge;
        /// Age of the oldest open case: a node that is neither deleted nor kept since the cloud reported its instance as gone; 0 without one
        [ALPHA] ccm_lifecycle_oldest_case_seconds => oldest_case: FloatGauge;
    }
}

impl LifecycleMetrics {
    /// Records the duration of a pass.
    pub(crate) fn passed(&self, took: Duration) {
        self.passes.observe(took.as_secs_f64());
    }

    /// Records the cloud's answer about one node.
    pub(crate) fn count_answer(&self, result: &LookupResult) {
        let result = match result {
            Ok(Lookup::Found(_)) => Ok(LookupOutcome::Success),
            Ok(Lookup::Gone(_)) => Ok(LookupOutcome::InstanceNotFound),
            Ok(Lookup::NotOurs(_)) => Ok(LookupOutcome::NotOurs),
            Err(error) => Err(error.kind),
        };
        self.answers.series((Operation::InstanceExists, result)).inc();
    }

    /// Records a verdict of the policy.
    pub(crate) fn decided(&self, verdict: &Verdict) {
        self.verdicts.series(*verdict).inc();
    }

    /// Records how long a node waited for its verdict.
    pub(crate) fn settled(&self, verdict: &'static str, waited: Duration) {
        self.to_verdict.series(Settled(verdict)).observe(waited.as_secs_f64());
    }

    /// Records the end of a deletion; `open_for` is how long the case was open.
    pub(crate) fn deleted(&self, result: Result<(), &ApiError>, open_for: Duration) {
        if result.is_ok() {
            self.to_deletion.observe(open_for.as_secs_f64());
        }
        self.deletions.series(result.map_err(ApiReason::from)).inc();
    }

    /// Records a write of the shutdown taint.
    pub(crate) fn tainted(&self, step: TaintStep, result: Result<(), &ApiError>) {
        self.taints.series((step, result.map_err(ApiReason::from))).inc();
    }

    /// Records that the breaker opened.
    pub(crate) fn opened(&self, cause: &Cause) {
        self.openings.series(*cause).inc();
    }

    /// Sets the gauges after a pass.
    pub(crate) fn set_gauges(&self, gauges: &Gauges) {
        let Gauges { budget, counts, undecided, .. } = gauges;
        self.oldest_case.set(gauges.oldest_case.unwrap_or_default().as_secs_f64());
        self.breaker.set(gauges.is_open.into());
        self.budget_limit.set(level(budget.limit));
        self.budget_used.set(level(budget.used));
        self.longest_wait.set(undecided.longest.as_secs_f64());
        for (state, count) in [
            (NodeState::Ready, gauges.ready),
            (NodeState::Foreign, gauges.foreign),
            (NodeState::NotSelected, gauges.not_selected),
            (NodeState::Marked, gauges.marked),
            (NodeState::Shutdown, gauges.shutdown),
            (NodeState::Watched, counts.watched),
            (NodeState::Suspected, counts.suspected),
            (NodeState::Replaced, counts.replaced),
            (NodeState::Undecided, undecided.nodes),
        ] {
            self.nodes.series(state).set(level(count));
        }
    }
}

#[cfg(test)]
mod tests {
    use ccm_runtime::metrics::Metrics;

    use super::*;

    #[test]
    fn counters_start_at_zero() {
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
