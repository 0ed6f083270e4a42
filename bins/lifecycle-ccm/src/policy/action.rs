//! What is to be written to nodes: decided, and not done yet.

use std::{fmt, sync::Arc};

use ccm_cloud::PowerState;
use ccm_controller::brake::approval::is_yes;
use ccm_objects::Node;

use super::{
    Decision, NodeView, Verdict,
    shutdown::{self, Removal},
};

/// By this annotation a person forbids the deletion of a node.
pub(crate) const PROTECTED: &str = "quartet.dev/deletion-protected";
/// By this mark a person approves the deletion of a node, so that no brake holds it,
/// until it is Ready again.
pub(crate) const APPROVED: &str = "quartet.dev/deletion-approved";

/// Why a node is deleted.
pub(crate) const GONE: &str = "the cloud says that its instance is gone";

/// One write to a node as it was when that was decided.
#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) node: Arc<Node>,
    pub(crate) write: Write,
}

/// What is written.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    /// The node is deleted.
    Delete(Box<Decision>),
    /// Its marks follow its state.
    Marks(Marks),
}

/// What changes of the marks on a node; at least one of them does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// The shutdown taint, and what the cloud said of the machine, if it was asked.
    pub(crate) taint: Option<(shutdown::Step, Option<PowerState>)>,
    /// The approval of its deletion ends, since it is Ready.
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

    /// Why it is written.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Delete(_) => GONE,
            Self::Marks(Marks { taint: Some((shutdown::Step::Add, _)), .. }) => {
                "the machine is shut down"
            }
            Self::Marks(Marks { taint: Some((_, Some(_))), .. }) => "the machine runs",
            Self::Marks(_) => "the node is Ready",
        }
    }

    /// The topic of reports that it failed.
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
            Self::Marks(Marks { taint: Some(_), .. }) => "the shutdown taint",
            Self::Marks(Marks { taint: None, .. }) => "taking the approval away",
        })
    }
}

/// Whether a person has approved the node's deletion. A word that is not understood
/// approves nothing.
pub(crate) fn is_approved(node: &Node) -> bool {
    node.annotations.get(APPROVED).is_some_and(|value| is_yes(value))
}

/// The deletion of this node, if that was decided.
pub(crate) fn deletion(node: Option<&Arc<Node>>, decision: Decision) -> Option<Action> {
    let node = node.filter(|_| decision.verdict == Verdict::Delete)?;
    Some(Action { node: Arc::clone(node), write: Write::Delete(Box::new(decision)) })
}

/// What the marks on a node should become, given what the cloud said of its machine. A
/// Ready node loses taint and approval without a question to the cloud.
pub(crate) fn marks(
    view: &NodeView,
    node: &Arc<Node>,
    power: Option<PowerState>,
    removal: Removal,
) -> Option<Action> {
    let step = shutdown::plan(view.ready, &node.taints, power, removal);
    let marks = Marks {
        taint: step.map(|step| (step, power)),
        end_approval: view.ready && node.annotations.contains_key(APPROVED),
    };
    let changes = view.in_reach() && marks != Marks::default();
    changes.then(|| Action { node: Arc::clone(node), write: Write::Marks(marks) })
}
