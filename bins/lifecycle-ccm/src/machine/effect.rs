//! The effects of the machine.

use std::{sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::CloudError;
use ccm_controller::repeats::Repeated;
use ccm_kube::ApiError;
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::plans::Step;
use serde::Serialize;

use super::event::HandoverNote;
use crate::policy::{
    Breaker, Decision, Verdict,
    action::{APPROVED, Action, GONE, Marks, Words, Write},
};

pub use crate::policy::text::Message;

/// An effect of an event.
#[derive(Clone, Debug, Serialize)]
pub enum Effect {
    /// Begin a pass soon.
    Wake,
    /// Forget what was reported about a node that is gone, and clear its plan.
    Forget(Name),
    /// Show the plan of a node.
    Page(Arc<Node>, NodePlan),
    /// Clear the plan of a node.
    Clear(Name),
    /// Write to a node. The answer is an event.
    Write(Action),
    /// Report the result of a write that was sent.
    Told(Box<Told>),
    /// lifecycle-ccm deletes a node without the proof that it leaves before a deletion.
    Unmarked(Name, ApiError),
    /// A write to this node is repeated.
    Repeated(Arc<Node>, Repeated),
    /// Ask the cloud. Each answer is an event.
    Ask(Ask),
    /// Read the Leases of the kubelets of these nodes. Each answer is an event.
    ReadLeases(Vec<Name>),
    /// Lookups have failed for one reason.
    LookupsFailed {
        /// The number of nodes.
        nodes: usize,
        /// The name of one of them.
        first: Name,
        /// Its error.
        error: CloudError,
    },
    /// The list was compared with the nodes.
    Breaker {
        /// The breaker before.
        before: Breaker,
        /// The breaker now.
        after: Breaker,
    },
    /// Leave this to the next leader. The deletions after it wait until the API server has stored
    /// it.
    Leave(HandoverNote),
    /// Report a decision.
    Decided(Box<Decided>),
    /// The next pass is due then.
    Next(At),
}

/// The plan of a node.
#[derive(Clone, Debug, Serialize)]
pub enum NodePlan {
    /// The steps that lifecycle-ccm takes.
    Steps(Vec<Step>),
    /// The reason why lifecycle-ccm does nothing.
    Blocked(String),
    /// The node is excluded: `--node-selector` does not select it, or it belongs to another
    /// provider.
    LeftOut {
        /// True if it is selected.
        is_selected: bool,
    },
}

/// The questions to the cloud.
#[derive(Clone, Debug, Serialize)]
pub struct Ask {
    /// The nodes to look up, the most urgent first.
    pub look_up: Vec<Arc<Node>>,
    /// Ready nodes to look up.
    pub witnesses: Vec<Arc<Node>>,
    /// True if the fleet is listed.
    pub list: bool,
}

/// The result of a write that was sent.
#[derive(Clone, Debug, Serialize)]
pub struct Told {
    /// The write.
    pub action: Action,
    /// True if the answer shows it.
    pub result: Result<bool, ApiError>,
    /// How long the case of a deleted node was open.
    pub open_for: Duration,
}

/// A decision.
#[derive(Clone, Debug, Serialize)]
pub struct Decided {
    /// The node; `None` if it is gone.
    pub node: Option<Arc<Node>>,
    /// The decision.
    pub decision: Decision,
    /// The decision in words.
    pub message: Message,
    /// The verdict that ended a wait, `keep` or `delete`, and how long the node had waited.
    pub settled: Option<(&'static str, Duration)>,
}

/// Returns the step of a change of marks.
pub(super) fn marks_step(action: &Action) -> Step {
    let marks = match action.write {
        Write::Marks(marks) => marks,
        Write::Delete(_) | Write::Proof(..) => Marks::default(),
    };
    let removed =
        [(marks.end_approval, APPROVED), (marks.end_proof, ccm_objects::instance_gone::KEY)];
    let removed = removed.into_iter().filter(|(is_removed, _)| *is_removed);
    let changes = removed.map(|(_, key)| format!("{key} removed")).collect();
    let Words { kind: step, reason, .. } = action.write.words();
    Step { step, changes, reason: reason.to_owned(), held: None }
}

/// Returns the step of a deletion, due or held.
pub(super) fn deletion_step(decision: &Decision) -> Option<Step> {
    let (held, reason) = (decision.held(), GONE.to_owned());
    let is_deletion = held.is_some() || decision.verdict == Verdict::Delete;
    is_deletion.then_some(Step { step: "delete", changes: Vec::new(), reason, held })
}
