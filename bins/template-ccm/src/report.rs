//! User-visible reports: events on the node, and log lines.
//!
//! A lasting state is reported when it begins, when it changes and every ten minutes.

use std::time::Duration;

use ccm_controller::reports::{Report, Reports, When};
use ccm_kube::{ApiError, events::EventRecorder};
use ccm_objects::Node;

use crate::plan::{INSTANCE_NAME, Step};

/// Reports about nodes.
pub(crate) struct NodeReports(Reports);

impl NodeReports {
    pub(crate) fn new(events: EventRecorder) -> Self {
        Self(Reports::new(events, Duration::ZERO, ccm_controller::log_here!()))
    }

    /// Forgets the reports about a deleted node.
    pub(crate) fn forget(&self, name: &str) {
        self.0.memory().forget(name);
    }

    /// Reports that a step is done.
    pub(crate) fn written(&self, node: &Node, step: &Step) {
        let Step::SetName { name, .. } = step;
        let report = Report {
            line: format!("written: {step}"),
            event: Some(("InstanceNamed", format!("Set the annotation {INSTANCE_NAME} to {name}"))),
            ..Report::default()
        };
        self.0.report(&node.reference(), When::Always, report);
    }

    /// Reports that a node is skipped. No event: it may be another controller's.
    pub(crate) fn skipped(&self, node: &Node, why: &str) {
        let line = format!("Skip sync node {}: {why}", node.name);
        let report = Report { topic: "Skipped", state: why, line, ..Report::default() };
        self.0.report(&node.reference(), When::Changed, report);
    }

    /// Reports that the cloud has no answer.
    pub(crate) fn waits(&self, node: &Node, reason: &str, message: &str) {
        let text = format!("Waiting for the cloud to answer the lookup of the node: {message}");
        self.warn(node, "WaitingForCloud", reason, text);
    }

    /// Reports that the API server rejects a write.
    pub(crate) fn refused(&self, node: &Node, error: &ApiError) {
        let text = format!("Failed to write the annotation {INSTANCE_NAME}: {error}");
        self.warn(node, "WriteFailed", error.reason(), text);
    }

    fn warn(&self, node: &Node, topic: &'static str, reason: &str, text: String) {
        let report = Report {
            topic,
            state: reason,
            warning: true,
            line: text.clone(),
            reason: Some(reason),
            event: Some((topic, text)),
            ..Report::default()
        };
        self.0.report(&node.reference(), When::Changed, report);
    }
}
