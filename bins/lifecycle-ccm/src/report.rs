//! Reports of decisions: events on the node and log lines with the evidence.
//!
//! A lasting state is reported when it begins and every ten minutes; a flapping one, once a
//! minute.

use std::{sync::Arc, time::Duration};

use ccm_controller::reports::{Report, Reports, When};
use ccm_kube::events::EventRecorder;
use ccm_objects::Node;

use crate::policy::{At, Decision, Policy, Reason, Verdict};

/// How long a recurring state is not reported again, so that flapping answers do not cause a
/// flood of events.
const FLAP_SUPPRESSION: Duration = Duration::from_mins(1);

/// The topic of verdicts.
const VERDICT: &str = "verdict";

/// The reports of this program.
pub(crate) fn reports(events: EventRecorder) -> Arc<Reports> {
    Arc::new(Reports::new(events, FLAP_SUPPRESSION, ccm_controller::log_here!()))
}

/// Reports the decision about a node, unless nothing is done. `foreign` says why the node is another
/// provider's, if that is the reason.
pub(crate) fn decided(
    reports: &Reports,
    node: Option<&Node>,
    decision: &Decision,
    (now, policy): (At, &Policy),
    foreign: Option<String>,
) {
    let Decision { name, verdict, evidence, since, .. } = decision;
    // A case may end before its decision: all cases do when the breaker closes.
    let last = reports.memory().state(name, VERDICT);
    let is_case = since.is_some() || last.is_some_and(|last| !last.starts_with("keep"));
    if matches!(verdict, Verdict::Keep(Reason::Exists | Reason::Ready)) && !is_case {
        return reports.memory().forget(name);
    }
    // Usually a node that this controller has just deleted.
    let Some(node) = node.filter(|_| *verdict != Verdict::Keep(Reason::AnotherNode)) else {
        return tracing::debug!(node = &**name, "the node was deleted or replaced");
    };
    let mut message = decision.message(now, policy);
    message.text = foreign.unwrap_or(message.text);
    let text = match evidence.first {
        Some(_) => format!("{}; {evidence}", message.text),
        None => message.text.clone(),
    };
    let state = format!("{} {}", verdict.as_str(), verdict.reason());
    let report = Report {
        warning: message.warning,
        verdict: Some(verdict.as_str()),
        proof: Some(serde_json::to_value(evidence).unwrap_or_default().to_string()),
        event: message.event.map(|event| (event, text)),
        ..Report::line(VERDICT, &state, format!("node {name}: {}", message.text))
            .because(verdict.reason())
    };
    reports.report(&node.reference(), When::Changed, report);
}
