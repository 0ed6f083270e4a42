//! What was decided as writes to the API server, and what came of a deletion.

use ccm_controller::writer::Stopped as NotWritten;
use ccm_kube::{ApiError, write::Patch};
use ccm_objects::Node;

use crate::{
    controller::Controller,
    court::Deletion,
    observe::APPROVED,
    shutdown::{self, Step},
};

/// Why something was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stopped {
    /// Something has changed since it was decided.
    #[error("{0}")]
    Superseded(&'static str),
    /// It was not written.
    #[error(transparent)]
    NotWritten(#[from] NotWritten),
}

impl Stopped {
    /// What it means for a deletion: a request that was answered with an error did
    /// nothing, but who knows what became of one that was not answered.
    pub(crate) fn outcome(&self) -> Deletion {
        match self.refusal() {
            None | Some(ApiError::Conflict) => Deletion::NotDone,
            Some(
                ApiError::Timeout
                | ApiError::Unavailable(_)
                | ApiError::Decode(_)
                | ApiError::Unexpected { .. },
            ) => Deletion::Uncertain,
            Some(_) => Deletion::Refused,
        }
    }

    /// What the API server answered, if it was asked.
    pub(crate) fn refusal(&self) -> Option<&ApiError> {
        match self {
            Self::NotWritten(NotWritten::Refused(error)) => Some(error),
            Self::NotWritten(NotWritten::Lost(_)) | Self::Superseded(_) => None,
        }
    }
}

impl Controller {
    /// Adds the shutdown taint or takes it away.
    pub(crate) async fn taint(&self, node: &Node, step: Step) -> Result<(), Stopped> {
        let taints = shutdown::apply(&node.taints, step);
        self.patch(node, &Patch::default().with_spec("taints", &taints)).await
    }

    /// Takes the approval to delete it away from a node that is Ready again.
    pub(crate) async fn end_approval(&self, node: &Node) -> Result<(), Stopped> {
        let annotations = [(APPROVED.to_owned(), None)].into();
        self.patch(node, &Patch { annotations, ..Patch::default() }).await
    }

    async fn patch(&self, node: &Node, patch: &Patch) -> Result<(), Stopped> {
        self.writer.patch(node, patch).await?;
        Ok(())
    }
}
