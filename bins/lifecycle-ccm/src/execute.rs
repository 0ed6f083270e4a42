//! Carries out what was decided: one request each, only while this replica leads for
//! long enough, and only on the very object that was decided on.

use ccm_kube::{ApiError, node::Node, patch::NodePatch};
use ccm_runtime::leadership::Lost;

use crate::{
    controller::Controller,
    shutdown::{self, Step},
};

/// Why something was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stopped {
    /// This replica does not lead for long enough.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The API server did not take the write.
    #[error(transparent)]
    Refused(#[from] ApiError),
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
        self.leadership.check(self.api.timeout())?;
        let patch = NodePatch {
            resource_version: Some(node.resource_version.to_string()),
            taints: Some(shutdown::apply(&node.taints, step)),
            ..NodePatch::default()
        };
        let written = self.api.patch(&node.name, &patch).await?;
        // A node that was deleted meanwhile must not come back into the store.
        if self.store.get(&node.name).is_some() {
            self.store.apply_written(written);
        }
        Ok(())
    }
}
