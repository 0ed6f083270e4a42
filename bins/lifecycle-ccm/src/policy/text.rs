//! Decisions as text, for events and log lines.

use std::fmt::{self, Write as _};

use ccm_objects::Node;
use serde::Serialize;

use super::{
    At, Cause, Decision, Doubt, Policy, Reason, Verdict,
    action::{APPROVED, Marks, PROTECTED, approving_mark, is_approved},
    shutdown::TaintStep,
};

/// The message about a verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Message {
    /// The text.
    pub text: String,
    /// The reason of its event, if it has one.
    pub event: Option<&'static str>,
    /// True if it is a warning.
    pub warning: bool,
}

impl Decision {
    /// Returns why the node is not deleted now although the cloud reports the instance as gone.
    pub(crate) fn held(&self) -> Option<String> {
        let why = match self.verdict {
            Verdict::Suspect { why, .. } => return Some(why.to_string()),
            Verdict::BreakerOpen => "the breaker is open",
            Verdict::OverBudget { until: Some(_) } => "--node-deletion-budget is used up",
            Verdict::OverBudget { until: None } => "--node-deletion-budget allows no deletion",
            Verdict::Keep(Reason::Protected) => PROTECTED,
            Verdict::Keep(Reason::Replaced) => "--replaced-nodes=report",
            Verdict::Keep(Reason::Ghost) => "--ghost-deletion excludes the node",
            Verdict::Delete | Verdict::Keep(_) => return None,
        };
        Some(why.to_owned())
    }

    /// Returns why nothing is done about the node, although it is not known that its instance
    /// exists.
    pub(crate) fn blocked(&self) -> Option<String> {
        match self.verdict {
            Verdict::Keep(reason @ (Reason::NoAnswer | Reason::Alive | Reason::NotOurs)) => {
                Some(kept(reason).text)
            }
            _ => None,
        }
    }

    /// Returns the message for events and log lines at this time about this node.
    pub(crate) fn message(&self, now: At, policy: &Policy, node: Option<&Node>) -> Message {
        let held = |why: &str| held(why, node);
        let seconds = |at: At| at.since(now).as_secs_f64().ceil();
        match self.verdict {
            Verdict::Keep(reason) => kept(reason),
            Verdict::Suspect { look_again, why } => {
                let look_again = seconds(look_again);
                let mut text = format!(
                    "the cloud reports that its instance is gone; {why}; next lookup in {look_again} s"
                );
                if let (Doubt::Unconfirmed, Some(since)) = (why, self.since) {
                    let earliest = seconds(since + policy.confirmation_period);
                    write!(
                        text,
                        "; deletion is due in {earliest} s at the earliest; the annotation {PROTECTED} prevents it"
                    )
                    .ok();
                }
                Message { text, event: Some("NodeGoneSuspected"), warning: true }
            }
            Verdict::Delete => Message {
                text: "its instance is gone; the node is due for deletion".to_owned(),
                event: None,
                warning: false,
            },
            Verdict::BreakerOpen => held(
                "the breaker is open, because what the cloud shows of the fleet is implausible (see /readyz?verbose); check project, region and credentials",
            ),
            Verdict::OverBudget { until: Some(until) } => {
                held(&format!("--node-deletion-budget is used up for {} s", seconds(until)))
            }
            Verdict::OverBudget { until: None } => {
                held("--node-deletion-budget allows no deletion")
            }
        }
    }
}

fn held(why: &str, node: Option<&Node>) -> Message {
    let mark = node.map_or_else(|| format!("{APPROVED}=yes"), approving_mark);
    let text = format!(
        "the cloud reports that its instance is gone, but the node is not deleted: {why}; to delete it anyway, set the annotation {mark}"
    );
    Message { text, event: Some("NodeDeletionHeld"), warning: true }
}

/// Returns the reason why lifecycle-ccm keeps a node.
pub(crate) fn kept(reason: Reason) -> Message {
    let (text, event, warning) = match reason {
        Reason::Protected => (
            "the cloud reports that its instance is gone, but the annotation quartet.dev/deletion-protected prevents its deletion",
            Some("NodeDeletionHeld"),
            true,
        ),
        Reason::Ghost => (
            "the cloud has no instance for it, but the node has no provider ID and --ghost-deletion excludes it from deletion",
            Some("NodeDeletionHeld"),
            true,
        ),
        Reason::Alive => (
            "the cloud reports that its instance is gone, but its kubelet has renewed its Lease since; the node is kept",
            Some("NodeKept"),
            true,
        ),
        Reason::Replaced => (
            "it is Ready on another machine: the instance of its provider ID is gone, and its system UUID has changed; delete the node and restart its kubelet, or set --replaced-nodes=delete",
            Some("NodeReplaced"),
            true,
        ),
        Reason::NoAnswer => ("the lookup gave no usable answer; the node is kept", None, false),
        Reason::Exists => ("its instance exists; the node is kept", Some("NodeKept"), false),
        Reason::Ready => ("it is Ready again; the node is kept", Some("NodeKept"), false),
        Reason::NotOurs => ("another controller is responsible for it", None, false),
        Reason::NotSelected => ("it does not match --node-selector", None, false),
        Reason::Foreign => {
            ("its provider ID is another provider's, or names another region", None, false)
        }
        Reason::Deleting => ("it is already being deleted", None, false),
        Reason::AnotherNode => ("it was deleted or replaced by another node", None, false),
    };
    Message { text: text.to_owned(), event, warning }
}

/// Returns the event for a deleted node.
pub(crate) fn deleted(node: &Node, decision: &Decision) -> (&'static str, String) {
    let (name, evidence) = (&node.name, &decision.evidence);
    let mut text =
        format!("Deleting node {name} because it does not exist in the cloud provider; {evidence}");
    if decision.approved {
        let by = if is_approved(node) { APPROVED } else { "the approval on the Lease" };
        write!(text, "; exempt from breaker and budget by {by}").ok();
    }
    ("DeletingNode", text)
}

/// Returns the events for a node with changed marks.
pub(crate) fn marked(marks: Marks) -> impl Iterator<Item = (&'static str, String)> {
    let taint = marks.taint.map(|(step, power)| match (step, power) {
        (TaintStep::Add, _) => ("NodeShutdown", "the machine is shut down; taint added".to_owned()),
        (TaintStep::Remove, Some(_)) => {
            ("NodeRunning", "the machine is running; shutdown taint removed".to_owned())
        }
        (TaintStep::Remove, None) => {
            ("NodeRunning", "the node is Ready; shutdown taint removed".to_owned())
        }
    });
    let ended = format!("the node is Ready, so its approval {APPROVED} was removed");
    let approval = marks.end_approval.then_some(("NodeDeletionApprovalEnded", ended));
    taint.into_iter().chain(approval)
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Newborn => "the node is within its grace period",
            Self::Unconfirmed => "waiting for confirmation",
            Self::NoAnswer => "the latest lookup gave no usable answer",
            Self::NoHeartbeat => {
                "the Lease of its kubelet could not be read, or not for a confirmation period"
            }
            Self::NotListed => "no check of the fleet has confirmed it yet",
            Self::Listed => "but the list of the fleet contains it, so confirmation starts over",
        })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty { by, known } => {
                write!(f, "{by} shows none of {known} nodes: wrong project, region or credentials?")
            }
            Self::Shrunk { by, missing, known } => {
                write!(f, "{by} lacks {missing} of {known} nodes")
            }
            Self::Contradiction { by, ready_missing, ready } => {
                write!(f, "{by} lacks {ready_missing} of {ready} nodes that are Ready")
            }
        }
    }
}
