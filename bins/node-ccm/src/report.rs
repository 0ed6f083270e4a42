//! User-visible reports: events on the node, and log lines.
//!
//! A lasting state is reported when it begins, when it changes and every ten minutes; a single
//! fact is reported once. The event recorder aggregates the rest.

use std::{sync::Arc, time::Duration};

use ccm_controller::{
    queue::Pace,
    reports::{Report, Reports, When},
};
use ccm_kube::{ApiError, events::EventRecorder};
use ccm_objects::Node;

use crate::{
    metrics::NodeMetrics,
    plan::{Note, Outcome, Plan, Wait, WaitReason},
};

/// Reports about nodes. Clones share one memory.
#[derive(Clone)]
pub(crate) struct NodeReports {
    reports: Arc<Reports>,
    metrics: NodeMetrics,
}

impl NodeReports {
    pub(crate) fn new(events: EventRecorder, metrics: NodeMetrics) -> Self {
        Self { reports: Arc::new(Reports::new(events, Duration::ZERO)), metrics }
    }

    /// Forgets the reports about a deleted node.
    pub(crate) fn forget(&self, name: &str) {
        self.reports.memory().forget(name);
    }

    fn report(&self, node: &Node, when: When, report: Report<'_>) -> bool {
        self.reports.report(&node.reference(), when, report)
    }

    /// Reports that a node keeps its taint, the reason, and the retry interval.
    pub(crate) fn wait(&self, node: &Node, Wait { reason, message }: &Wait, pace: Pace) {
        let (event, state, what) = match reason {
            WaitReason::Cloud(kind) => {
                ("WaitingForCloud", kind.reason(), "The node stays tainted until the cloud answers")
            }
            // A message with different facts gets an event of its own.
            WaitReason::InstanceNotFound => (
                "InstanceNotFound",
                &**message,
                "The node stays tainted because the cloud has no instance for it",
            ),
            WaitReason::NodeIp => (
                "InvalidNodeIP",
                &**message,
                "The node stays tainted until its annotation matches its instance",
            ),
        };
        let report = Report {
            topic: event,
            state,
            warning: true,
            line: format!("error syncing '{}': {message}, requeuing", node.name),
            reason: Some(reason.as_str()),
            event: Some((event, format!("{what}: {message}; retrying {pace}"))),
            ..Report::default()
        };
        self.report(node, When::Changed, report);
    }

    /// Reports that the API server rejects a write.
    pub(crate) fn refused(&self, node: &Node, what: &str, error: &ApiError, pace: Pace) {
        let (name, event) = (&node.name, "WriteFailed");
        let report = Report {
            topic: event,
            state: error.reason(),
            warning: true,
            line: format!(
                "error syncing '{name}': failed to write {what}: {error}, requeuing; retrying {pace}"
            ),
            reason: Some(error.reason()),
            event: Some((event, format!("Failed to write {what} of the node: {error}"))),
            ..Report::default()
        };
        self.report(node, When::Changed, report);
    }

    /// Reports that a node is another provider's. A waiting node also gets an event, because
    /// users debug its taint there.
    pub(crate) fn foreign(&self, node: &Node, schemes: &[String]) {
        let text = format!(
            "provider ID {} has no scheme of this provider ({}); the node is skipped",
            node.provider_id.as_deref().unwrap_or_default(),
            schemes.join(", ")
        );
        let waits = node.is_uninitialised();
        let report = Report {
            topic: if waits { "ForeignNode" } else { "Foreign" },
            state: &text,
            line: format!("Skip sync node {}: {text}", node.name),
            event: waits.then(|| ("ForeignNode", text.clone())),
            ..Report::default()
        };
        self.report(node, When::Once, report);
    }

    /// Reports that a node is skipped, and why. No event: most of these nodes are another
    /// provider's.
    pub(crate) fn skipped(&self, node: &Node, outcome: &Outcome) {
        let text = outcome.to_string();
        let line = format!("Skip sync node {}: {text}", node.name);
        let report = Report { topic: "LeftAlone", state: &text, line, ..Report::default() };
        self.report(node, When::Changed, report);
    }

    /// Reports the plan's notes, each one once. A note about a write is reported after it.
    pub(crate) fn notes(&self, node: &Node, plan: &Plan) {
        for note in plan.notes.iter().filter(|note| !is_about_write(note)) {
            self.note(node, When::Once, note);
        }
    }

    /// Reports that the plan's addresses were written, if that changes the first InternalIP of
    /// a Ready node.
    pub(crate) fn addresses_written(&self, node: &Node, plan: &Plan) {
        for note in plan.notes.iter().filter(|note| is_about_write(note)) {
            self.note(node, When::Always, note);
        }
    }

    fn note(&self, node: &Node, when: When, about: &Note) {
        let text = about.to_string();
        let (topic, is_event) = match about {
            Note::InvalidLabel { .. } => ("InvalidLabel", true),
            Note::ReservedLabel { .. } => ("ReservedLabel", false),
            Note::LabelKept { .. } => ("LabelKept", false),
            Note::InvalidAddress(_) => ("InvalidAddress", true),
            Note::NodeIpRefused(_) => ("InvalidNodeIP", true),
            Note::InternalIpChanged { .. } => ("NodeInternalIPChanged", true),
            Note::InternalIpHeld { .. } => ("NodeInternalIPHeld", true),
        };
        let report = Report {
            topic,
            state: &text,
            warning: true,
            line: text.clone(),
            event: is_event.then(|| (topic, text.clone())),
            ..Report::default()
        };
        if self.report(node, when, report) {
            self.metrics.noted(about);
        }
    }

    /// Reports that a node is initialised.
    pub(crate) fn initialised(&self, node: &Node) {
        let report = Report {
            line: format!("Successfully initialized node {} with cloud provider", node.name),
            event: Some(("Synced", "Node synced successfully".to_owned())),
            ..Report::default()
        };
        self.report(node, When::Always, report);
    }
}

fn is_about_write(note: &Note) -> bool {
    matches!(note, Note::InternalIpChanged { .. })
}
