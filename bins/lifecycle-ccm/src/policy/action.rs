//! Decided writes to nodes that are not executed yet.

use std::{fmt, sync::Arc};

use ccm_cloud::PowerState;
use ccm_controller::brake::approval::is_marked;
use ccm_objects::Node;

use super::{
    Decision, NodeView, Verdict,
    shutdown::{self, Removal},
};

/// The annotation with which an operator protects a node from deletion.
pub(crate) const PROTECTED: &str = "quartet.dev/deletion-protected";
/// The annotation or label with which an operator approves the deletion of a node, so that breaker and
/// budget do not hold it, until the node is Ready again.
pub(crate) const APPROVED: &str = "quartet.dev/deletion-approved";

/// Why a node is deleted.
pub(crate) const GONE: &str = "the cloud reports that its instance is gone";

/// One write to a node, as the node was when the write was decided.
#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) node: Arc<Node>,
    pub(crate) write: Write,
}

/// The write.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    /// Delete the node.
    Delete(Box<Decision>),
    /// Update its marks to match its state.
    Marks(Marks),
}

/// The changes of a node's marks; at least one is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// The shutdown taint, and the state of the machine, if the cloud was asked.
    pub(crate) taint: Option<(shutdown::Step, Option<PowerState>)>,
    /// The approval of the deletion is removed, since the node is Ready.
    pub(crate) end_approval: bool,
}

impl Write {
    /// Its kind, for `/plan` and the metric of its steps.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Delete(_) => "delete",
            Self::Marks(Marks { taint: Some((shutdown::Step::Add, _)), .. }) => "shutdown-taint",
            Self::Marks(Marks { taint: Some(_), .. }) => "shutdown-untaint",
            Self::Marks(Marks { taint: None, .. }) => "end-approval",
        }
    }

    /// The reason for the write.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Delete(_) => GONE,
            Self::Marks(Marks { taint: Some((shutdown::Step::Add, _)), .. }) => {
                "the machine is shut down"
            }
            Self::Marks(Marks { taint: Some((_, Some(_))), .. }) => "the machine is running",
            Self::Marks(_) => "the node is Ready",
        }
    }

    /// The topic of the reports about its failures.
    pub(crate) const fn failure(&self) -> &'static str {
        match self {
            Self::Delete(_) => "deletion failed",
            Self::Marks(_) => "marks failed",
        }
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delete(_) => "deletion",
            Self::Marks(Marks { taint: Some(_), .. }) => "update of the shutdown taint",
            Self::Marks(Marks { taint: None, .. }) => "removal of the approval",
        })
    }
}

/// Whether an operator has approved the node's deletion. Unknown values are ignored.
pub(crate) fn is_approved(node: &Node) -> bool {
    is_marked(node.annotation(APPROVED), node.labels.get(APPROVED))
}

/// The deletion of this node, if it was decided.
pub(crate) fn deletion(node: Option<&Arc<Node>>, decision: Decision) -> Option<Action> {
    let node = node.filter(|_| decision.verdict == Verdict::Delete)?;
    Some(Action { node: Arc::clone(node), write: Write::Delete(Box::new(decision)) })
}

/// The new marks of a node, given the state of its machine in the cloud. A Ready node loses
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
        end_approval: view.is_well()
            && (node.annotations.contains_key(APPROVED) || node.labels.contains_key(APPROVED)),
    };
    let changes = view.in_reach() && marks != Marks::default();
    changes.then(|| Action { node: Arc::clone(node), write: Write::Marks(marks) })
}
