//! Carries out what was decided: one request each, only while this replica leads for
//! long enough, and only on the very object that was decided on.

use ccm_kube::{ApiError, node::Node, patch::NodePatch};
use ccm_runtime::leadership::Lost;

use crate::{
    controller::Controller,
    court::Deletion,
    observe::APPROVED,
    shutdown::{self, Step},
};

/// Why something was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stopped {
    /// This replica does not lead for long enough.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// Something has changed since it was decided.
    #[error("{0}")]
    Superseded(&'static str),
    /// The API server did not take the write.
    #[error(transparent)]
    Refused(#[from] ApiError),
}

impl Stopped {
    /// What it means for a deletion: a request that was answered with an error did
    /// nothing, but who knows what became of one that was not answered.
    pub(crate) fn outcome(&self) -> Deletion {
        match self {
            Self::Lost(_) | Self::Superseded(_) | Self::Refused(ApiError::Conflict) => {
                Deletion::NotDone
            }
            Self::Refused(
                ApiError::Timeout
                | ApiError::Unavailable(_)
                | ApiError::Decode(_)
                | ApiError::Unexpected { .. },
            ) => Deletion::Uncertain,
            Self::Refused(_) => Deletion::Refused,
        }
    }
}

impl Controller {
    /// Deletes the node if it is still as it was judged. One that is gone already is
    /// deleted, too.
    pub(crate) async fn delete(&self, node: &Node) -> Result<(), Stopped> {
        self.leadership.check(self.api.timeout())?;
        match self.api.delete(node).await {
            Ok(()) | Err(ApiError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds the shutdown taint or takes it away.
    pub(crate) async fn taint(&self, node: &Node, step: Step) -> Result<(), Stopped> {
        let taints = Some(shutdown::apply(&node.taints, step));
        self.patch(node, NodePatch { taints, ..NodePatch::default() }).await
    }

    /// Takes the approval to delete it away from a node that is Ready again.
    pub(crate) async fn end_approval(&self, node: &Node) -> Result<(), Stopped> {
        let annotations = [(APPROVED.to_owned(), None)].into();
        self.patch(node, NodePatch { annotations, ..NodePatch::default() }).await
    }

    async fn patch(&self, node: &Node, patch: NodePatch) -> Result<(), Stopped> {
        self.leadership.check(self.api.timeout())?;
        let resource_version = Some(node.resource_version.to_string());
        let patch = NodePatch { resource_version, ..patch };
        let written = self.api.patch(&node.name, &patch).await?;
        self.store.apply_written(written);
        Ok(())
    }
}
