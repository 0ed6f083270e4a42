//! What a person is told: events on the node, and log lines.
//!
//! A state that lasts is told when it begins, when it changes and every ten minutes; a
//! fact is told once. The recorder folds what is left.

use ccm_base::duration;
use ccm_kube::events::EventKind;
use ccm_objects::{Node, ObjectRef};

use crate::{
    controller::Controller,
    pace::Pace,
    plan::{Note, Outcome, Plan, Wait, WaitReason},
};

/// The node was initialised.
const SYNCED: &str = "Synced";
/// The node waits for the controller of another provider.
const FOREIGN: &str = "ForeignNode";

impl WaitReason {
    /// The reason of the event that tells of the wait.
    const fn event(self) -> &'static str {
        match self {
            Self::Cloud(_) => "WaitingForCloud",
            Self::InstanceNotFound => "InstanceNotFound",
            Self::NodeIp => "InvalidNodeIP",
        }
    }
}

impl Controller {
    /// Tells that a node keeps its taint, why, and how often it is looked at again.
    pub(crate) fn tell_wait(&self, node: &Node, wait: &Wait, pace: Pace) {
        let Wait { reason, message } = wait;
        let name = &*node.name;
        let topic = match reason {
            WaitReason::Cloud(kind) => kind.reason(),
            // A message that names other facts is worth an event of its own.
            WaitReason::InstanceNotFound | WaitReason::NodeIp => message,
        };
        if self.ledger.tells_again(&node.name, reason.event(), topic) {
            tracing::warn!(
                node = name,
                reason = reason.as_str(),
                "error syncing '{name}': {message}, requeuing"
            );
            let what = match reason {
                WaitReason::Cloud(_) => "The node stays tainted until the cloud answers; it said",
                WaitReason::InstanceNotFound => {
                    "The node stays tainted because the cloud knows no instance for it"
                }
                WaitReason::NodeIp => {
                    "The node stays tainted until its annotation fits its instance"
                }
            };
            let text = format!("{what}: {message}; looked at again {pace}");
            self.events.record(&node.reference(), EventKind::Warning, reason.event(), text);
        } else {
            tracing::debug!(
                node = name,
                reason = reason.as_str(),
                "error syncing '{name}': {message}, requeuing"
            );
        }
    }

    /// Tells that the API server does not take a write.
    pub(crate) fn tell_refused(
        &self,
        node: &Node,
        what: &str,
        error: &ccm_kube::ApiError,
        pace: Pace,
    ) {
        let name = &*node.name;
        tracing::warn!(
            node = name,
            reason = error.reason(),
            next = %duration::format(pace.next()),
            "error syncing '{name}': {what} could not be written: {error}, requeuing"
        );
        if self.ledger.tells_again(&node.name, "WriteFailed", error.reason()) {
            let text = format!("The API server did not take the node's {what}: {error}");
            self.events.record(&node.reference(), EventKind::Warning, "WriteFailed", text);
        }
    }

    /// Tells that a node is another provider's: in the log, and on a node that waits also
    /// by an event, because whoever looks at its taint looks there.
    pub(crate) fn tell_foreign(&self, node: &Node) {
        let text = format!(
            "provider ID {} is not of this provider's schemes ({}); the node is left to its own controller",
            node.provider_id.as_deref().unwrap_or_default(),
            self.cloud.schemes().join(", ")
        );
        if self.ledger.tells_once(&node.name, "Foreign", &text) {
            tracing::info!(node = &*node.name, "Skip sync node {}: {text}", node.name);
        }
        if node.is_uninitialised() && self.ledger.tells_once(&node.name, FOREIGN, &text) {
            self.events.record(&node.reference(), EventKind::Normal, FOREIGN, text);
        }
    }

    /// Tells why a node is left alone. No event: most of these nodes are somebody else's.
    pub(crate) fn tell_left_alone(&self, node: &Node, outcome: &Outcome) {
        let name = &*node.name;
        let text = outcome.to_string();
        if self.ledger.tells_again(&node.name, "LeftAlone", &text) {
            tracing::info!(node = name, "Skip sync node {name}: {text}");
        } else {
            tracing::debug!(node = name, "Skip sync node {name}: {text}");
        }
    }

    /// Tells what the plan notes, each note once.
    pub(crate) fn tell_notes(&self, node: &Node, plan: &Plan) {
        for note in &plan.notes {
            let text = note.to_string();
            let (reason, event) = match note {
                Note::InvalidLabel { .. } => ("InvalidLabel", Some(EventKind::Warning)),
                Note::ReservedLabel { .. } => ("ReservedLabel", None),
                Note::LabelKept { .. } => ("LabelKept", None),
                Note::NodeIpRefused(_) => ("InvalidNodeIP", Some(EventKind::Warning)),
                Note::InternalIpChanged { .. } => {
                    ("NodeInternalIPChanged", Some(EventKind::Warning))
                }
                Note::InternalIpHeld { .. } => ("NodeInternalIPHeld", Some(EventKind::Warning)),
            };
            if !self.ledger.tells_once(&node.name, reason, &text) {
                continue;
            }
            tracing::warn!(node = &*node.name, "{text}");
            self.metrics.noted(note);
            if let Some(kind) = event {
                self.events.record(&node.reference(), kind, reason, text);
            }
        }
    }

    /// Tells that a node is initialised.
    pub(crate) fn tell_initialised(&self, node: &Node) {
        tracing::info!(
            node = &*node.name,
            "Successfully initialized node {} with cloud provider",
            node.name
        );
        let about: ObjectRef = node.reference();
        self.events.record(&about, EventKind::Normal, SYNCED, "Node synced successfully");
    }
}
