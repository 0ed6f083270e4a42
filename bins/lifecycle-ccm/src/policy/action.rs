//! Decided writes to nodes that are not executed yet.

use std::sync::Arc;

use ccm_cloud::PowerState;
use ccm_controller::brake::approval::{self, is_marked};
use ccm_controller::repeats::Content;
use ccm_objects::{Node, instance_gone};
use serde::{Deserialize, Serialize};

use super::{
    At, Decision, NodeView, Verdict,
    shutdown::{self, Removal},
};

/// The annotation with which an operator protects a node from deletion.
pub const PROTECTED: &str = "quartet.dev/deletion-protected";
/// The annotation or label with which an operator approves the deletion of a node, so that breaker and
/// budget do not hold it, until the node is Ready again.
pub const APPROVED: &str = "quartet.dev/deletion-approved";

/// Why a node is deleted.
pub(crate) const GONE: &str = "the cloud reports that its instance is gone";

/// A write to a node, with the node at the time of the decision.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Action {
    /// The node.
    pub node: Arc<Node>,
    /// The write.
    pub write: Write,
}

/// The write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Write {
    /// Delete the node.
    Delete(Box<Decision>),
    /// Leave the proof on the node, right before its deletion.
    Proof(Box<Decision>, String),
    /// Update its marks to match its state.
    Marks(Marks),
}

/// The changes of a node's marks; at least one is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// The shutdown taint, and the state of the machine, if the cloud was asked.
    pub taint: Option<(shutdown::TaintStep, Option<PowerState>)>,
    /// The approval of the deletion is removed, since the node is Ready.
    pub end_approval: bool,
    /// The proof that its instance is gone is removed, because the node is Ready.
    pub end_proof: bool,
}

impl Marks {
    /// Returns the digest of what this action writes to the node.
    pub(crate) fn content(self) -> Content {
        let step = self.taint.map(|(step, _)| <&str>::from(step));
        Content::digest(&(step, self.end_approval, self.end_proof))
    }
}

/// A write in words.
pub(crate) struct Words {
    /// Its kind, for `/plan` and the metric of its steps.
    pub(crate) kind: &'static str,
    /// The reason for it.
    pub(crate) reason: &'static str,
    /// The action's description, for log lines.
    pub(crate) what: &'static str,
}

impl Write {
    pub(crate) const fn words(&self) -> Words {
        let (kind, reason, what) = match self {
            Self::Delete(_) | Self::Proof(..) => ("delete", GONE, "deletion"),
            Self::Marks(Marks { taint: None, end_approval: true, .. }) => {
                ("end-approval", "the node is Ready", "removal of the approval")
            }
            Self::Marks(Marks { taint: None, .. }) => {
                ("end-proof", "the node is Ready", "removal of the proof")
            }
            Self::Marks(Marks { taint: Some((step, power)), .. }) => {
                let (kind, reason) = match (step, power) {
                    (shutdown::TaintStep::Add, _) => ("shutdown-taint", "the machine is shut down"),
                    (shutdown::TaintStep::Remove, Some(_)) => {
                        ("shutdown-untaint", "the machine is running")
                    }
                    (shutdown::TaintStep::Remove, None) => {
                        ("shutdown-untaint", "the node is Ready")
                    }
                };
                (kind, reason, "update of the shutdown taint")
            }
        };
        Words { kind, reason, what }
    }
}

/// Returns true if an operator has approved the node's deletion. Texts name a value that does not approve.
pub(crate) fn is_approved(node: &Node) -> bool {
    is_marked(node.annotation(APPROVED), node.labels.get(APPROVED))
}

/// Returns the mark that approves the node's deletion, for texts that ask for it.
pub(crate) fn approving_mark(node: &Node) -> String {
    approval::to_set(APPROVED, node.annotation(APPROVED), node.labels.get(APPROVED))
}

/// Returns the command that approves the node's deletion.
pub(crate) fn approval_command(node: &Node) -> String {
    let object = format!("node {}", node.name);
    approval::command(&object, APPROVED, node.annotation(APPROVED), node.labels.get(APPROVED))
}

/// Returns the value of a mark that does not approve the node's deletion.
pub(crate) fn ignored_approval(node: &Node) -> Option<String> {
    approval::ignored(node.annotation(APPROVED), node.labels.get(APPROVED))
}

/// Returns true if the node has the approval annotation or label, with any value.
pub(crate) fn has_approval(node: &Node) -> bool {
    node.annotations.contains_key(APPROVED) || node.labels.contains_key(APPROVED)
}

/// Returns true if the node has the mark that its instance is gone.
pub(crate) fn has_proof(node: &Node) -> bool {
    node.annotations.contains_key(instance_gone::KEY)
}

/// Returns the mark for a node that this decision deletes: it tells other controllers that the
/// deletion is intended. `None` without a proof, or if the node has a fresh mark.
pub(crate) fn proof(node: &Node, decision: &Decision, now: At) -> Option<String> {
    let proof = decision.evidence.latest.as_ref()?;
    let mark = node.annotation(instance_gone::KEY);
    let is_fresh = mark.is_some_and(|mark| instance_gone::is_fresh(mark, now));
    (!is_fresh).then(|| instance_gone::value(proof.method.as_ref(), proof.answered))
}

/// Returns the deletion of this node, if it was decided.
pub(crate) fn deletion(node: Option<&Arc<Node>>, decision: Decision) -> Option<Action> {
    let node = node.filter(|_| decision.verdict == Verdict::Delete)?;
    Some(Action { node: Arc::clone(node), write: Write::Delete(Box::new(decision)) })
}

/// Returns the new marks of a node, given the state of its machine in the cloud. A Ready node loses
/// taint and approval without a lookup in the cloud.
pub(crate) fn marks(
    view: &NodeView,
    node: &Arc<Node>,
    power: Option<PowerState>,
    removal: Removal,
) -> Option<Action> {
    let step = shutdown::plan(view.ready, &node.taints, power, removal);
    let marks = Marks {
        taint: step.map(|step| (step, power)),
        end_approval: view.is_well() && has_approval(node),
        end_proof: view.is_well() && has_proof(node),
    };
    let changes = view.in_reach() && marks != Marks::default();
    changes.then(|| Action { node: Arc::clone(node), write: Write::Marks(marks) })
}
