//! The metrics of lifecycle-ccm. Upstream's two keep their names and labels.

use std::time::Duration;

use ccm_cloud::{ErrorKind, Lookup, LookupResult};
use ccm_controller::brake::Usage;
use ccm_kube::{ApiError, ApiReason};
use ccm_metrics::{
    Counter, Every, Family, FloatGauge, Gauge, Histogram, LabelSet, Text, exponential_buckets,
    label, metrics,
};

use strum::{IntoStaticStr, VariantNames};

use crate::policy::{At, Cause, Counts, Doubt, Reason, Verdict, backlog::Line};

/// Bounds of the time from the first answer "gone" to the deletion, in seconds.
const TO_DELETION: [f64; 9] = [5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];
/// Bounds of the time that a node waits for a verdict, in seconds: a node that exists is
/// known to do so within a pass, one that is gone after the confirmation period.
const TO_VERDICT: [f64; 11] = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];

/// The only operation of upstream's counter.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum Operation {
    InstanceExists,
}

/// The kinds of the cloud's answers about a node.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum Said {
    Success,
    InstanceNotFound,
    NotOurs,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum State {
    Ready,
    Foreign,
    NotSelected,
    Shutdown,
    Watched,
    Suspected,
    Undecided,
}

label!(Operation, Said, State, Cause);
label! {
    /// What became of the wait for a verdict.
    struct Settled { "keep", "delete" }
}
label! {
    /// What was done to the shutdown taint.
    struct Action { "add", "remove" }
}

impl LabelSet for Verdict {
    fn texts(self) -> Vec<Text> {
        vec![self.as_str().into(), self.reason().into()]
    }

    fn every() -> Vec<Vec<Text>> {
        let keep = Reason::ALL.iter().map(|reason| Self::Keep(*reason));
        let suspect = |why: &Doubt| Self::Suspect { look_again: At::default(), why: *why };
        keep.chain(Doubt::ALL.iter().map(suspect))
            .chain([Self::Delete, Self::BreakerOpen, Self::OverBudget { until: None }])
            .map(Self::texts)
            .collect()
    }
}

type Answered = Result<(), ApiReason>;

metrics! {
    /// All metrics of the controller. Clones share them.
    pub(crate) struct LifecycleMetrics {
        /// How long a pass over the nodes that are not Ready took
        [ALPHA] cloud_node_lifecycle_controller_monitor_nodes_duration_seconds => passes: Histogram,
            bounds exponential_buckets(0.001, 2.0, 15);
        /// Answers of the cloud about nodes, one per node and lookup, by operation and result
        [ALPHA] cloud_node_lifecycle_controller_cloud_provider_calls { operation, result } => answers:
            Family<Counter, (Operation, Result<Said, ErrorKind>)>;
        /// Nodes by how they stand, on the leader; suspected and undecided ones are also watched
        [ALPHA] ccm_lifecycle_nodes { state } => nodes: Family<Gauge, State>;
        /// Requests to add or remove the shutdown taint, by what the API server answered
        [ALPHA] ccm_lifecycle_taints { action, result } => taints: Family<Counter, (Action, Answered)>,
            begin (Every, Ok(()));
        /// What the policy said, once per node and answers
        [ALPHA] ccm_lifecycle_verdicts { verdict, reason } => verdicts: Family<Counter, Verdict>, begin Every;
        /// From seeing that a node is not Ready, or is in doubt again, to knowing what to do: keep or delete
        [ALPHA] ccm_lifecycle_time_to_verdict_seconds { verdict } => to_verdict: Family<Histogram, Settled>,
            bounds TO_VERDICT, begin Every;
        /// How long the node that has waited longest for a verdict has waited, at the last pass; 0 if none waits
        [ALPHA] ccm_lifecycle_longest_wait_seconds => longest_wait: FloatGauge;
        /// Requests to delete a node, by what the API server answered
        [ALPHA] ccm_lifecycle_deletions { result } => deletions: Family<Counter, Answered>, begin [Ok(())];
        /// Time from the cloud's first word that an instance is gone to the deletion of its node
        [ALPHA] ccm_lifecycle_time_to_deletion_seconds => to_deletion: Histogram, bounds TO_DELETION;
        /// Whether the breaker is open: 1 while the list of the fleet is not believable and nothing is deleted,
        /// 0 otherwise
        [ALPHA] ccm_lifecycle_breaker_open => breaker: Gauge;
        /// How often the breaker opened, by cause
        [ALPHA] ccm_lifecycle_breaker_openings { cause } => openings: Family<Counter, Cause>, begin Every;
        /// How many nodes may be deleted in one window of the budget, as the cluster is now
        [ALPHA] ccm_lifecycle_budget_limit => budget_limit: Gauge;
        /// How many nodes were deleted in the window that ends now
        [ALPHA] ccm_lifecycle_budget_used => budget_used: Gauge;
        /// For how long the node that is suspected longest has been so without being deleted or kept; 0 without one
        [ALPHA] ccm_lifecycle_oldest_case_seconds => oldest_case: FloatGauge;
    }
}

/// The states of all nodes, for the gauge.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct States {
    pub(crate) ready: usize,
    pub(crate) foreign: usize,
    pub(crate) unselected: usize,
    pub(crate) shutdown: usize,
    pub(crate) undecided: Line,
}

impl LifecycleMetrics {
    /// Records the duration of a pass.
    pub(crate) fn passed(&self, took: Duration) {
        self.passes.observe(took.as_secs_f64());
    }

    /// Records the cloud's answer about one node.
    pub(crate) fn answered(&self, result: &LookupResult) {
        let result = match result {
            Ok(Lookup::Found(_)) => Ok(Said::Success),
            Ok(Lookup::Gone(_)) => Ok(Said::InstanceNotFound),
            Ok(Lookup::NotOurs(_)) => Ok(Said::NotOurs),
            Err(error) => Err(error.kind),
        };
        self.answers.of((Operation::InstanceExists, result)).inc();
    }

    /// Records a verdict of the policy.
    pub(crate) fn decided(&self, verdict: &Verdict) {
        self.verdicts.of(*verdict).inc();
    }

    /// Records how long a node waited for its verdict.
    pub(crate) fn settled(&self, verdict: &'static str, waited: Duration) {
        self.to_verdict.of(Settled(verdict)).observe(waited.as_secs_f64());
    }

    /// Records the end of a deletion; `open_for` is how long the case was open.
    pub(crate) fn deleted(&self, result: Result<(), &ApiError>, open_for: Duration) {
        if result.is_ok() {
            self.to_deletion.observe(open_for.as_secs_f64());
        }
        self.deletions.of(result.map_err(ApiReason::from)).inc();
    }

    /// Records a write of the shutdown taint.
    pub(crate) fn tainted(&self, action: &'static str, result: Result<(), &ApiError>) {
        self.taints.of((Action(action), result.map_err(ApiReason::from))).inc();
    }

    /// Records that the breaker opened.
    pub(crate) fn opened(&self, cause: &Cause) {
        self.openings.of(*cause).inc();
    }

    /// Sets how long the oldest open case has been open; `None` if there is none.
    pub(crate) fn waits(&self, oldest_case: Option<Duration>) {
        self.oldest_case.set(oldest_case.unwrap_or_default().as_secs_f64());
    }

    /// Sets the gauges after a pass.
    pub(crate) fn stand(&self, open: bool, budget: Usage, counts: Counts, states: States) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.breaker.set(open.into());
        self.budget_limit.set(number(budget.limit));
        self.budget_used.set(number(budget.used));
        self.longest_wait.set(states.undecided.longest.as_secs_f64());
        for (state, count) in [
            (State::Ready, states.ready),
            (State::Foreign, states.foreign),
            (State::NotSelected, states.unselected),
            (State::Shutdown, states.shutdown),
            (State::Watched, counts.watched),
            (State::Suspected, counts.suspected),
            (State::Undecided, states.undecided.nodes),
        ] {
            self.nodes.of(state).set(number(count));
        }
    }
}

#[cfg(test)]
mod tests {
    use ccm_runtime::metrics::Metrics;

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
