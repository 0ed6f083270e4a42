//! What is reported: metrics, events on the node, and log lines with the evidence.
//!
//! A state that lasts is reported when it begins and every ten minutes; one that comes and
//! goes, once a minute.

use std::{collections::HashMap, time::Duration};

use ccm_cloud::CloudError;
use ccm_controller::{
    brake::Transition,
    reports::{Memory, REPEAT, Report, Reports, When},
};
use ccm_kube::{
    ApiError,
    events::{EventKind, EventRecorder},
};
use ccm_objects::Node;
use ccm_runtime::health::Condition;

use crate::{
    execute::Stopped,
    metrics::LifecycleMetrics,
    observe,
    policy::{
        At, Breaker, Cause, Decision, Listing, LookedUp, Policy, Reason, Verdict,
        action::{APPROVED, Action, Marks, Write},
        shutdown::Step,
    },
};

/// How long a state that comes back is not reported again: answers that come and go must
/// not become a flood of events.
const RETURN: Duration = Duration::from_mins(1);

/// The topic of verdicts.
const VERDICT: &str = "verdict";

/// Reports to people, and what was reported.
pub(crate) struct Reporter {
    events: EventRecorder,
    reports: Reports,
    /// Kinds of errors of the cloud.
    errors: Memory,
    /// The line `breaker` of `/readyz?verbose`.
    breaker: Condition,
    pub(crate) metrics: LifecycleMetrics,
}

impl Reporter {
    /// Nothing was reported yet.
    pub(crate) fn new(
        events: EventRecorder,
        breaker: Condition,
        metrics: LifecycleMetrics,
    ) -> Self {
        let reports = Reports::new(events.clone(), RETURN);
        breaker.pass("not judged here: this replica does not lead");
        Self { events, reports, errors: Memory::new(REPEAT), breaker, metrics }
    }

    /// This replica leads from now on.
    pub(crate) fn leads(&self) {
        self.breaker.pass("closed; no list of the fleet was needed so far");
    }

    /// Forgets what was reported of a node.
    pub(crate) fn forget(&self, name: &str) {
        self.reports.memory().forget(name);
    }

    /// Reports what was decided about a node, unless it is nothing.
    pub(crate) fn decided(
        &self,
        node: Option<&Node>,
        decision: &Decision,
        now: At,
        policy: &Policy,
    ) {
        self.metrics.decided(&decision.verdict);
        let Decision { name, verdict, evidence, since, .. } = decision;
        let (memory, state) = (self.reports.memory(), verdict.as_str());
        let reason = verdict.reason();
        // A case may end before its decision, as all do when the breaker closes.
        let last = memory.state(name, VERDICT);
        let is_case = since.is_some() || last.is_some_and(|last| !last.starts_with("keep"));
        if matches!(verdict, Verdict::Keep(Reason::Exists | Reason::Ready)) && !is_case {
            memory.forget(name);
            return;
        }
        if *verdict == Verdict::Keep(Reason::AnotherNode) {
            // Mostly one that was deleted here a moment ago.
            tracing::debug!(node = &**name, "the node has vanished, or another has its name");
            return;
        }
        if !memory.changed(name, VERDICT, &format!("{state} {reason}")) {
            tracing::debug!(node = &**name, verdict = state, reason, %evidence, "as before");
            return;
        }
        let words = decision.words(now, policy);
        let proof = serde_json::to_value(evidence).unwrap_or_default().to_string();
        let (node_name, line) = (&**name, format!("node {name}: {}", words.text));
        if words.warning {
            tracing::warn!(node = node_name, verdict = state, reason, proof, "{line}");
        } else {
            tracing::info!(node = node_name, verdict = state, reason, proof, "{line}");
        }
        if let (Some(node), Some(event)) = (node, words.event) {
            let kind = if words.warning { EventKind::Warning } else { EventKind::Normal };
            let text = match evidence.first {
                Some(_) => format!("{}; {evidence}", words.text),
                None => words.text,
            };
            self.events.record(&node.reference(), kind, event, text);
        }
    }

    /// Reports what came of a write.
    pub(crate) fn ended(&self, action: &Action, result: &Result<(), Stopped>, now: At) {
        let refusal = match result {
            Ok(()) => Ok(()),
            Err(stopped) => stopped.refusal().map_or(Ok(()), Err),
        };
        if result.is_ok() || refusal.is_err() {
            match &action.write {
                Write::Delete(decision) => {
                    let since = decision.since.unwrap_or(now);
                    self.metrics.deleted(refusal, now.since(since));
                }
                Write::Marks(Marks { taint: Some((step, _)), .. }) => {
                    self.metrics.tainted(step.as_str(), refusal);
                }
                Write::Marks(_) => {}
            }
        }
        match (result, &action.write) {
            (Err(stopped), write) => self.stopped(&action.node, write, stopped),
            (Ok(()), Write::Delete(decision)) => self.deleted(&action.node, decision),
            (Ok(()), Write::Marks(marks)) => self.marked(&action.node, *marks),
        }
    }

    fn deleted(&self, node: &Node, decision: &Decision) {
        let name = &*node.name;
        let exempt = if observe::is_approved(node) {
            format!("; breaker and budget passed over by {APPROVED}")
        } else {
            String::new()
        };
        let evidence = &decision.evidence;
        let text = format!(
            "Deleting node {name} because it does not exist in the cloud provider; {evidence}{exempt}"
        );
        self.normal(node, "deleted", text.clone(), ("DeletingNode", text));
    }

    fn marked(&self, node: &Node, marks: Marks) {
        let report = |event: &'static str, text: String| {
            self.normal(node, event, format!("node {}: {text}", node.name), (event, text));
        };
        match marks.taint {
            Some((Step::Add, _)) => {
                report("NodeShutdown", "the machine is shut down; taint added".to_owned());
            }
            Some((Step::Remove, Some(_))) => {
                report("NodeRunning", "the machine runs; shutdown taint removed".to_owned());
            }
            Some((Step::Remove, None)) => {
                report("NodeRunning", "the node is Ready; shutdown taint removed".to_owned());
            }
            None => {}
        }
        if marks.end_approval {
            let text = format!("it is Ready, so the annotation {APPROVED} was taken away");
            report("NodeDeletionApprovalEnded", text);
        }
    }

    /// A decision that was not carried out is no failure if the node has changed meanwhile
    /// or this replica no longer leads: it is looked at again.
    fn stopped(&self, node: &Node, write: &Write, stopped: &Stopped) {
        let name = &node.name;
        match stopped.refusal() {
            None | Some(ApiError::Conflict | ApiError::NotFound) => {
                tracing::info!(node = &**name, reason = %stopped, "node {name}: {write} waits for another look");
            }
            Some(error) => {
                let (topic, event) = match write {
                    Write::Delete(_) => (
                        "deletion failed",
                        Some((
                            "DeletingNodeFailed",
                            format!("Failed deleting node {name}: {error}"),
                        )),
                    ),
                    Write::Marks(_) => ("marks failed", None),
                };
                let line = format!("node {name}: {write} failed, tried again: {error}");
                let state = error.reason();
                let reason = Some(state);
                let report =
                    Report { topic, state, warning: true, line, reason, proof: None, event };
                self.reports.report(&node.reference(), When::Changed, report);
            }
        }
    }

    fn normal(
        &self,
        node: &Node,
        topic: &'static str,
        line: String,
        event: (&'static str, String),
    ) {
        let (state, event) = ("", Some(event));
        let report =
            Report { topic, state, warning: false, line, reason: None, proof: None, event };
        self.reports.report(&node.reference(), When::Always, report);
    }

    /// Reports, once for each kind of error, that the cloud did not answer about nodes.
    pub(crate) fn answered(&self, lookups: &[LookedUp]) {
        let mut kinds: HashMap<&'static str, (usize, &LookedUp, &CloudError)> = HashMap::new();
        for lookup in lookups {
            self.metrics.answered(&lookup.result);
            if let Err(error) = &lookup.result {
                kinds.entry(error.kind.reason()).or_insert((0, lookup, error)).0 += 1;
            }
        }
        for (kind, (count, lookup, error)) in kinds {
            if self.errors.changed("", kind, "") {
                let name = &*lookup.name;
                tracing::warn!(
                    kind,
                    nodes = count,
                    %error,
                    "the cloud did not answer about {count} nodes, {name} among them: {error}; no node is deleted for that"
                );
            }
        }
    }

    /// Reports that the breaker opened, changed its cause or closed.
    pub(crate) fn breaker(&self, before: Breaker, after: Breaker) {
        let open = |cause: &Cause| {
            self.breaker.fail(format!("open, no node is deleted but approved ones: {cause}"));
        };
        match before.transition(after) {
            Transition::Opened(cause) => {
                self.metrics.opened(&cause);
                tracing::error!(cause = cause.as_str(), "no node is deleted: {cause}");
                open(&cause);
            }
            Transition::StaysOpen(known, cause) => {
                if known.as_str() != cause.as_str() {
                    tracing::error!(cause = cause.as_str(), "still no node is deleted: {cause}");
                }
                open(&cause);
            }
            Transition::Closed => {
                tracing::warn!("the cloud's list shows the fleet again; nodes are judged again");
                self.breaker.pass("closed");
            }
            Transition::StaysClosed => self.breaker.pass("closed"),
        }
    }
}

/// Reports a list that does not help, or not wholly.
pub(crate) fn list(list: &Listing) {
    match list {
        Listing::Failed(error) => {
            tracing::warn!(%error, "cannot list the fleet; no node is deleted until a list succeeds");
        }
        Listing::Read { malformed, .. } if *malformed > 0 => {
            tracing::warn!(
                malformed,
                "{malformed} entries of the cloud's list could not be understood; no node that they name is deleted"
            );
        }
        Listing::Read { .. } => {}
    }
}
