//! User-visible reports: events on the node, and log lines.
//!
//! A lasting state is reported when it begins, when it changes and every ten minutes; a single
//! fact is reported once. The event recorder aggregates the rest.

use std::{sync::Arc, time::Duration};

use ccm_controller::{
    brake::Hold,
    corrections::Contested,
    queue::Pace,
    reports::{Report, Reports, When},
};
use ccm_kube::{ApiError, events::EventRecorder};
use ccm_objects::Node;

use crate::{
    metrics::NodeMetrics,
    plan::{APPROVED, Field, Note, Outcome, Plan, Step, Wait, WaitReason, text},
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
            WaitReason::NoAddress => (
                "NoNodeAddress",
                &**message,
                "The node stays tainted until it has an address (--node-addresses-required)",
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

    /// Reports that a node is skipped, and why. Most have no event, because they are another
    /// provider's.
    pub(crate) fn skipped(&self, node: &Node, outcome: &Outcome) {
        let text = outcome.to_string();
        let line = format!("Skip sync node {}: {text}", node.name);
        let event = match outcome {
            Outcome::Unconfirmed(id) => Some((
                "InstanceUnconfirmed",
                format!(
                    "The cloud has {id} with the name of this node, but neither its system UUID nor an address of it: the node is not written. If {id} is its instance, set spec.providerID to it"
                ),
            )),
            Outcome::InstanceGone if node.is_ready() => Some((
                "InstanceGone",
                "The instance of this Ready node is gone, and another machine may have its name: the node is not written".to_owned(),
            )),
            _ => None,
        };
        let warning = event.is_some();
        let report =
            Report { topic: "LeftAlone", state: &text, warning, line, event, ..Report::default() };
        self.report(node, When::Changed, report);
    }

    /// Reports that nodes have the same provider ID.
    pub(crate) fn duplicate(&self, node: &Node, id: &str, names: &str) {
        let text = format!("nodes {names} have the provider ID {id}: delete those that are none");
        self.warn(node, "DuplicateProviderID", &text, &text);
    }

    /// Reports that the brake holds the plan.
    pub(crate) fn held(&self, node: &Node, plan: &Plan, hold: Hold) {
        let changes = plan.notes.iter().filter(|note| is_about_write(note));
        let changes = changes.map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let state = if hold == Hold::Breaker { "breaker" } else { "budget" };
        let text = format!(
            "{changes}; held: {hold}, because too many Ready nodes would change; approve with the annotation {APPROVED}=yes"
        );
        self.warn(node, "NodeChangeHeld", state, &text);
    }

    /// Reports that another writer undoes a correction again and again.
    pub(crate) fn contested(&self, node: &Node, plan: &Plan, contested: &Contested) {
        let Contested { field, times, wait } = contested;
        let own = plan.fields().into_iter().find(|(name, _)| name == field);
        let own = own.map(|(_, value)| value).unwrap_or_default();
        let present = match node.labels.get(&**field) {
            Some(value) => value.to_string(),
            None => text::list(&node.addresses),
        };
        let text = format!(
            "Another writer sets {field} to {present:?}, and node-ccm to {own:?}, {times} times in a row; node-ccm writes it again in {} s",
            wait.as_secs()
        );
        self.warn(node, "FieldContested", field, &text);
    }

    /// A warning about a lasting state.
    fn warn(&self, node: &Node, topic: &'static str, state: &str, text: &str) {
        let (line, event) = (format!("node {}: {text}", node.name), Some((topic, text.to_owned())));
        let report = Report { topic, state, warning: true, line, event, ..Report::default() };
        self.report(node, When::Changed, report);
    }

    /// Reports the plan's notes, each one once. A note about a write is reported after it.
    pub(crate) fn notes(&self, node: &Node, plan: &Plan) {
        for note in plan.notes.iter().filter(|note| !is_about_write(note)) {
            self.note(node, When::Once, note);
        }
    }

    /// Reports the changes of a Ready node that this step has written.
    pub(crate) fn written(&self, node: &Node, plan: &Plan, step: &Step) {
        let has_addresses = matches!(step, Step::SetAddresses { .. });
        let is_written = |note: &&Note| match note {
            Note::Changes { field, .. } => field.is_of_addresses() == has_addresses,
            _ => false,
        };
        for note in plan.notes.iter().filter(is_written) {
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
            Note::InvalidLabelPolicy(_) => ("InvalidAnnotation", true),
            Note::Changes { field: Field::InternalIp, .. } => ("NodeInternalIPChanged", true),
            Note::Changes { field: Field::AddressFamily, .. } => ("NodeAddressFamilyLost", true),
            Note::Changes { .. } => ("NodeTopologyChanged", true),
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
    matches!(note, Note::Changes { .. })
}
