//! User-visible reports: events on the node, and log lines.
//!
//! A lasting state is reported when it begins, when it changes and every ten minutes; a single
//! fact is reported once. The event recorder aggregates the rest.

use std::{sync::Arc, time::Duration};

use ccm_controller::{
    brake::{Hold, approval},
    queue::Pace,
    repeat_reports,
    repeats::Repeated,
    reports::{Report, Reports, When},
};
use ccm_kube::{ApiError, events::EventRecorder};
use ccm_objects::Node;

use crate::{
    metrics::NodeMetrics,
    plan::{APPROVED, Note, Outcome, Plan, Step, Wait, WaitReason, text},
};

/// Reports about nodes. Clones share one memory.
#[derive(Clone)]
pub(crate) struct NodeReports {
    reports: Arc<Reports>,
    metrics: NodeMetrics,
}

impl NodeReports {
    pub(crate) fn new(events: EventRecorder, metrics: NodeMetrics) -> Self {
        Self {
            reports: Arc::new(Reports::new(events, Duration::ZERO, ccm_controller::log_here!())),
            metrics,
        }
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
        let (event, what) = reason.event();
        // A message with different facts gets its own event.
        let state = match reason {
            WaitReason::Cloud(kind) => kind.reason(),
            _ => &**message,
        };
        let line = format!("error syncing '{}': {message}, requeuing", node.name);
        let text = format!("The node stays tainted {what}: {message}; retrying {pace}");
        let reason = reason.to_string();
        let report = Report::warning(event, state, line).because(&reason).with_event(event, text);
        self.report(node, When::Changed, report);
    }

    /// Reports that the API server rejects a write.
    pub(crate) fn refused(&self, node: &Node, what: &str, error: &ApiError, pace: Pace) {
        let (name, event, state) = (&node.name, "WriteFailed", error.reason());
        let line = format!(
            "error syncing '{name}': failed to write {what}: {error}, requeuing; retrying {pace}"
        );
        let text = format!("Failed to write {what} of the node: {error}");
        let report = Report::warning(event, state, line).because(state).with_event(event, text);
        self.report(node, When::Changed, report);
    }

    /// Reports that a node belongs to another provider. A waiting node also gets an event, because
    /// users debug its taint there: a warning, because it may wait for a controller that does not
    /// run.
    pub(crate) fn foreign(&self, node: &Node, why: &str) {
        let waits = node.is_uninitialised();
        let what = match waits {
            true => "it stays tainted until the controller of its cloud initialises it",
            false => "the node is skipped",
        };
        let text = format!("{why}; {what}");
        let line = format!("Skip sync node {}: {text}", node.name);
        let report = match waits {
            true => Report::warning("ForeignNode", &text, line).with_event("ForeignNode", &*text),
            false => Report::line("Foreign", &text, line),
        };
        self.report(node, When::Once, report);
    }

    /// Reports that a node is not selected. A waiting node also gets an event.
    pub(crate) fn not_selected(&self, node: &Node) {
        let (name, topic) = (&node.name, "NodeNotSelected");
        let text = "--node-selector of node-ccm does not select this node; it stays tainted until another controller initialises it, or its labels or the selector change";
        let line = format!("Skip sync node {name}: --node-selector does not select it");
        let report = match node.is_uninitialised() {
            true => Report::warning(topic, text, line).with_event(topic, text),
            false => Report::line(topic, "", line),
        };
        self.report(node, When::Once, report);
    }

    /// Reports that a node is skipped, and why. Most do not get an event, because they belong to
    /// another provider.
    pub(crate) fn skipped(&self, node: &Node, outcome: &Outcome) {
        let text = outcome.to_string();
        let line = format!("Skip sync node {}: {text}", node.name);
        let event = outcome.event(node.is_ready());
        let warning = event.is_some();
        let report = Report { warning, event, ..Report::line("LeftAlone", &text, line) };
        self.report(node, When::Changed, report);
    }

    /// Reports that nodes have the same provider ID.
    pub(crate) fn duplicate(&self, node: &Node, id: &str, names: &str) {
        let text = format!(
            "nodes {names} have the same provider ID {id}: delete the Node objects that are stale"
        );
        self.warn(node, "DuplicateProviderID", &text, &text);
    }

    /// Reports that the brake holds the plan.
    pub(crate) fn held(&self, node: &Node, plan: &Plan, hold: Hold) {
        let state = if hold == Hold::Breaker { "breaker" } else { "budget" };
        let ignored = approval::ignored(node.annotation(APPROVED), node.labels.get(APPROVED));
        let state = format!("{state}{}", ignored.unwrap_or_default());
        let text = text::held(node, plan, hold);
        self.warn(node, "NodeChangeHeld", &state, &text);
    }

    /// Reports that another writer undoes a correction again and again.
    pub(crate) fn repeated(&self, node: &Node, plan: &Plan, repeated: &Repeated) {
        let text = text::repeated(node, plan, repeated);
        self.warn(node, repeat_reports::REASON, &repeated.kind, &text);
    }

    /// Reports that the API server has answered a write as done but has not stored it.
    pub(crate) fn not_stored(&self, node: &Node, repeated: &Repeated) {
        if repeated.is_news {
            let text = repeated.to_string();
            let report = Report::of_node(node, repeat_reports::REASON, &repeated.kind, &text);
            self.report(node, When::Always, report);
        }
    }

    /// Reports a lasting state as a warning.
    fn warn(&self, node: &Node, topic: &'static str, state: &str, text: &str) {
        self.report(node, When::Changed, Report::of_node(node, topic, state, text));
    }

    /// Reports the plan's notes, each one once. A note about a write is reported after it.
    pub(crate) fn notes(&self, node: &Node, plan: &Plan) {
        for note in plan.notes.iter().filter(|note| note.change().is_none()) {
            self.note(node, When::Once, note);
        }
    }

    /// Reports a change of a Ready node that was made.
    pub(crate) fn made(&self, node: &Node, change: &Note) {
        self.note(node, When::Always, change);
    }

    fn note(&self, node: &Node, when: When, about: &Note) {
        let text = about.to_string();
        let (topic, is_event) = about.event();
        let event = is_event.then(|| (topic, text.clone()));
        // This is upstream's rule, and often intended.
        let warning = !matches!(about, Note::FamilyLeftOut { .. });
        let report = Report { warning, event, ..Report::line(topic, &text, &*text) };
        if self.report(node, when, report) {
            self.metrics.noted(about);
        }
    }

    /// Logs that a node is about to be initialised.
    pub(crate) fn begins(node: &Node) {
        let name = &*node.name;
        tracing::info!(node = name, "Initializing node {name} with cloud provider");
    }

    /// Logs a step that was stored. New nodes are reported as a whole. For an initialised node each change is
    /// reported, so that a person who sees a label or an address change can find its cause.
    pub(crate) fn stored(node: &Node, step: &Step, outcome: &Outcome) {
        let node = &*node.name;
        let text = step.to_string();
        let line = text.lines().map(str::trim).collect::<Vec<_>>().join(", ");
        if *outcome == Outcome::InSync {
            tracing::info!(node, "written: {line}");
        } else {
            tracing::debug!(node, "written: {line}");
        }
    }

    /// Reports that a node is initialised.
    pub(crate) fn initialised(&self, node: &Node) {
        let line = format!("Successfully initialized node {} with cloud provider", node.name);
        let report = Report::line("", "", line).with_event("Synced", "Node synced successfully");
        self.report(node, When::Always, report);
    }
}
