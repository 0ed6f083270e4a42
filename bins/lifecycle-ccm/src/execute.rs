//! What was decided as writes to the API server, and what came of a deletion.

use ccm_kube::{ApiError, node::Node, patch::NodePatch};
use ccm_runtime::node_writer::Stopped;

use crate::{
    controller::Controller,
    court::Deletion,
    observe::APPROVED,
    shutdown::{self, Step},
};

/// What came of a deletion: a request that was answered with an error did nothing, but
/// who knows what became of one that was not answered.
pub(crate) fn outcome(deletion: &Result<(), Stopped>) -> Deletion {
    match deletion {
        Ok(()) => Deletion::Done,
        Err(Stopped::Refused(
            ApiError::Timeout
            | ApiError::Unavailable(_)
            | ApiError::Decode(_)
            | ApiError::Unexpected { .. },
        )) => Deletion::Uncertain,
        Err(Stopped::Refused(_) | Stopped::Lost(_)) => Deletion::NotDone,
    }
}

impl Controller {
    /// Adds the shutdown taint or takes it away.
    pub(crate) async fn taint(&self, node: &Node, step: Step) -> Result<(), Stopped> {
        let taints = Some(shutdown::apply(&node.taints, step));
        self.writer.patch(node, NodePatch { taints, ..NodePatch::default() }).await.map(|_| ())
    }

    /// Takes the approval to delete it away from a node that is Ready again.
    pub(crate) async fn end_approval(&self, node: &Node) -> Result<(), Stopped> {
        let annotations = [(APPROVED.to_owned(), None)].into();
        self.writer.patch(node, NodePatch { annotations, ..NodePatch::default() }).await.map(|_| ())
    }
}
