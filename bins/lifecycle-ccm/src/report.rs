//! Reports of decisions and of writes: events on the node and log lines with the evidence.
//!
//! A lasting state is reported when it begins and every ten minutes; a flapping one, once a
//! minute.

use std::{fmt::Display, sync::Arc, time::Duration};

use ccm_base::message::one_line;
use ccm_cloud::Cloud;
use ccm_controller::reports::{Report, Reports, When};
use ccm_kube::{ApiError, events::EventRecorder};
use ccm_objects::Node;

use crate::{
    machine::effect::{Decided, Told},
    metrics::LifecycleMetrics,
    policy::{
        Decision, Reason, Verdict,
        action::{Action, Marks, Write, ignored_approval},
        text,
    },
};

/// The time for which a recurring state is not reported again, so that flapping answers do not
/// cause a flood of events.
const FLAP_SUPPRESSION: Duration = Duration::from_mins(1);

/// The longest text about a node of another provider.
const FOREIGN: usize = 400;

/// The topic of verdicts.
const VERDICT: &str = "verdict";

/// Returns the reports of this program.
pub(crate) fn reports(events: EventRecorder) -> Arc<Reports> {
    Arc::new(Reports::new(events, FLAP_SUPPRESSION, ccm_controller::log_here!()))
}

/// Returns why a node belongs to another provider.
pub(crate) fn foreign(cloud: &dyn Cloud, node: &Node) -> String {
    let id = node.provider_id.as_deref().unwrap_or_default();
    one_line(&format!("its provider ID {id} {}", cloud.why_foreign(id)), FOREIGN)
}

/// Reports the decision about a node, unless nothing is done. `foreign` says why the node belongs
/// to another provider, if that is the reason.
pub(crate) fn decided(reports: &Reports, decided: &Decided, foreign: Option<String>) {
    let Decided { node, decision, message, .. } = decided;
    let Decision { name, verdict, evidence, since, .. } = decision;
    // A case may end before its decision: all cases do when the breaker closes.
    let last = reports.memory().state(name, VERDICT);
    let is_case = since.is_some() || last.is_some_and(|last| !last.starts_with("keep"));
    if matches!(verdict, Verdict::Keep(Reason::Exists | Reason::Ready)) && !is_case {
        return reports.memory().forget(name);
    }
    // Usually this controller has just deleted the node.
    let Some(node) = node.as_ref().filter(|_| *verdict != Verdict::Keep(Reason::AnotherNode))
    else {
        return tracing::debug!(node = &**name, "the node was deleted or replaced");
    };
    let said = foreign.as_ref().unwrap_or(&message.text);
    let text = match evidence.first {
        Some(_) => format!("{said}; {evidence}"),
        None => said.clone(),
    };
    // An approval that does not approve is news.
    let is_held = matches!(verdict, Verdict::BreakerOpen | Verdict::OverBudget { .. });
    let ignored = ignored_approval(node).filter(|_| is_held).unwrap_or_default();
    let state = format!("{} {}{ignored}", verdict.as_str(), verdict.reason());
    let report = Report {
        warning: message.warning,
        verdict: Some(verdict.as_str()),
        proof: Some(serde_json::to_value(evidence).unwrap_or_default().to_string()),
        event: message.event.map(|event| (event, text)),
        ..Report::line(VERDICT, &state, format!("node {name}: {said}")).because(verdict.reason())
    };
    reports.report(&node.reference(), When::Changed, report);
}

/// Reports the result of a write that was sent. A write that was not stored has been reported with
/// its answer.
pub(crate) fn told(reports: &Reports, metrics: &LifecycleMetrics, told: &Told) {
    let Told { action, result, open_for } = told;
    let answer = result.as_ref().map(|_| ());
    match &action.write {
        Write::Delete(_) | Write::Proof(..) => metrics.deleted(answer, *open_for),
        Write::Marks(Marks { taint: Some((step, _)), .. }) => metrics.tainted(*step, answer),
        Write::Marks(_) => {}
    }
    let (node, name) = (&action.node.reference(), &action.node.name);
    let report = |(topic, text): (&'static str, String)| {
        let line = Report::line(topic, "", format!("node {name}: {text}"));
        reports.report(node, When::Always, line.with_event(topic, text));
    };
    match (result, &action.write) {
        (Err(error), _) => report_failure(reports, action, error),
        (Ok(_), Write::Delete(decision)) => report(text::deleted(&action.node, decision)),
        (Ok(true), Write::Marks(marks)) => text::marked(*marks).for_each(report),
        (Ok(_), Write::Marks(_) | Write::Proof(..)) => {}
    }
}

/// Reports a failed write. If the node has changed in the meantime, that is not a failure:
/// lifecycle-ccm looks the node up again.
fn report_failure(reports: &Reports, action: &Action, error: &ApiError) {
    if matches!(error, ApiError::Conflict | ApiError::NotFound) {
        return postponed(action, error);
    }
    let (name, what) = (&action.node.name, action.write.words().what);
    let line = format!("node {name}: {what} failed, retrying: {error}");
    let mut report = Report::warning(what, error.reason(), line).because(error.reason());
    if !matches!(action.write, Write::Marks(_)) {
        let text = format!("Failed deleting node {name}: {error}");
        report = report.with_event("DeletingNodeFailed", text);
    }
    reports.report(&action.node.reference(), When::Changed, report);
}

/// Reports a write that was not sent because this replica does not lead any more, or the decision
/// does not hold.
pub(crate) fn postponed(action: &Action, reason: &impl Display) {
    let (name, what) = (&action.node.name, action.write.words().what);
    tracing::info!(node = &**name, %reason, "node {name}: {what} postponed until the next lookup");
}
