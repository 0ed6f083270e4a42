//! Decisions as text, for events and log lines.

use std::fmt::{self, Write as _};

use ccm_objects::Node;

use super::{
    At, Cause, Decision, Doubt, Policy, Reason, Verdict,
    action::{APPROVED, Marks, PROTECTED, is_approved},
    shutdown::Step,
};

/// The report of a verdict.
pub(crate) struct Words {
    pub(crate) text: String,
    /// The reason of its event, if it has one.
    pub(crate) event: Option<&'static str>,
    pub(crate) warning: bool,
}

impl Decision {
    /// Why the node is not deleted now although the cloud says that the instance is gone.
    pub(crate) fn held(&self) -> Option<String> {
        let why = match self.verdict {
            Verdict::Suspect { why, .. } => return Some(why.to_string()),
            Verdict::BreakerOpen => "the breaker is open",
            Verdict::OverBudget { until: Some(_) } => "--node-deletion-budget is used up",
            Verdict::OverBudget { until: None } => "--node-deletion-budget allows no deletion",
            Verdict::Keep(Reason::Protected) => PROTECTED,
            Verdict::Keep(Reason::Ghost) => "nodes without a provider ID are not judged",
            Verdict::Delete | Verdict::Keep(_) => return None,
        };
        Some(why.to_owned())
    }

    /// The report at this moment.
    pub(crate) fn words(&self, now: At, policy: &Policy) -> Words {
        let seconds = |at: At| at.since(now).as_secs_f64().ceil();
        match self.verdict {
            Verdict::Keep(reason) => kept(reason),
            Verdict::Suspect { look_again, why } => {
                let look_again = seconds(look_again);
                let mut text = format!(
                    "the cloud says that its instance is gone; {why}; looked at again in {look_again} s"
                );
                if let (Doubt::Unconfirmed, Some(since)) = (why, self.since) {
                    let earliest = seconds(since + policy.confirmation_period);
                    write!(
                        text,
                        "; deleted in {earliest} s at the earliest, never with the annotation {PROTECTED}"
                    )
                    .ok();
                }
                Words { text, event: Some("NodeGoneSuspected"), warning: true }
            }
            Verdict::Delete => Words {
                text: "its instance is gone for good, it is to be deleted".to_owned(),
                event: None,
                warning: false,
            },
            Verdict::BreakerOpen => held(
                "its list of the fleet is not believable (see /readyz?verbose): are the credentials still those of this project and region? If it is gone indeed,",
            ),
            Verdict::OverBudget { until: Some(until) } => {
                held(&format!("--node-deletion-budget is used up for {} s;", seconds(until)))
            }
            Verdict::OverBudget { until: None } => {
                held("--node-deletion-budget allows no deletion;")
            }
        }
    }
}

fn held(why: &str) -> Words {
    let text = format!(
        "the cloud says that its instance is gone, but it is kept: {why} the annotation {APPROVED}=yes lets it go"
    );
    Words { text, event: Some("NodeDeletionHeld"), warning: true }
}

fn kept(reason: Reason) -> Words {
    let (text, event, warning) = match reason {
        Reason::Protected => (
            "the cloud says that its instance is gone, but the annotation quartet.dev/deletion-protected keeps it",
            Some("NodeDeletionHeld"),
            true,
        ),
        Reason::Ghost => (
            "the cloud knows no instance for it; it has no provider ID and is not uninitialised, and such nodes are not judged (--ghost-deletion)",
            Some("NodeDeletionHeld"),
            true,
        ),
        Reason::NoAnswer => ("the cloud did not answer usably; it is kept", None, false),
        Reason::Exists => ("its instance exists after all; it is kept", Some("NodeKept"), false),
        Reason::Ready => ("it is Ready again; it is kept", Some("NodeKept"), false),
        Reason::NotOurs => ("the cloud says that it belongs to another owner", None, false),
        Reason::NotSelected => ("it does not match --node-selector", None, false),
        Reason::Foreign => ("its provider ID is another provider's", None, false),
        Reason::Deleting => ("it is being deleted already", None, false),
        Reason::AnotherNode => ("it has vanished, or another has its name", None, false),
    };
    Words { text: text.to_owned(), event, warning }
}

/// The event for a deleted node.
pub(crate) fn deleted(node: &Node, decision: &Decision) -> (&'static str, String) {
    let (name, evidence) = (&node.name, &decision.evidence);
    let mut text =
        format!("Deleting node {name} because it does not exist in the cloud provider; {evidence}");
    if is_approved(node) {
        write!(text, "; breaker and budget passed over by {APPROVED}").ok();
    }
    ("DeletingNode", text)
}

/// The events for a node with changed marks.
pub(crate) fn marked(marks: Marks) -> impl Iterator<Item = (&'static str, String)> {
    let taint = marks.taint.map(|(step, power)| match (step, power) {
        (Step::Add, _) => ("NodeShutdown", "the machine is shut down; taint added".to_owned()),
        (Step::Remove, Some(_)) => {
            ("NodeRunning", "the machine runs; shutdown taint removed".to_owned())
        }
        (Step::Remove, None) => {
            ("NodeRunning", "the node is Ready; shutdown taint removed".to_owned())
        }
    });
    let ended = format!("it is Ready, so the annotation {APPROVED} was taken away");
    let approval = marks.end_approval.then_some(("NodeDeletionApprovalEnded", ended));
    taint.into_iter().chain(approval)
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Newborn => "the node is too young for that to count",
            Self::Unconfirmed => "that is to be confirmed",
            Self::NoAnswer => "this time it did not answer usably",
            Self::NotListed => "the fleet could not be listed to confirm it",
            Self::Listed => "but the list of the fleet shows it, so the case begins anew",
        })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the cloud's list ")?;
        match self {
            Self::Empty { known } => {
                write!(f, "shows none of {known} nodes: wrong project, region or credentials?")
            }
            Self::Shrunk { missing, known } => write!(f, "lacks {missing} of {known} nodes"),
            Self::Contradiction { ready_missing, ready } => {
                write!(f, "lacks {ready_missing} of {ready} nodes that are Ready")
            }
        }
    }
}
