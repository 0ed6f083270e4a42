//! Writing nodes: only while this replica leads for long enough, and only to the very
//! version that a write was decided on, so that a stale process gets a conflict.
//!
//! Controllers write nodes by this and by nothing else.

use std::sync::Arc;

use ccm_kube::{
    ApiError,
    nodes::NodeApi,
    patch::{AddressPatch, NodePatch},
    store::Store,
};
use ccm_objects::{Address, Node};

use ccm_runtime::{
    leadership::{Leadership, Lost},
    program::{Context, Program},
    rights::Right,
};

/// What [`NodeWriter::patch`] needs.
pub const PATCH: Right = Right::new("patch", "nodes");
/// What [`NodeWriter::patch_addresses`] needs.
pub const PATCH_ADDRESSES: Right = Right::on_part("patch", "nodes", "status");
/// What [`NodeWriter::delete`] needs.
pub const DELETE: Right = Right::new("delete", "nodes");

/// Why a write was not done.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// This replica does not lead for long enough: nothing was sent.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The API server did not take the write, or nobody knows whether it did.
    #[error(transparent)]
    Refused(#[from] ApiError),
}

/// Writes nodes as long as this replica leads. What was written is in the store when a
/// call returns. Clones write alike.
#[derive(Clone)]
pub struct NodeWriter {
    api: NodeApi,
    leadership: Leadership,
    store: Store<Node>,
}

impl NodeWriter {
    /// Writes with the program's client, and into this store. A write gets the time of
    /// `--kube-api-timeout`, but no more than a term of leadership covers.
    pub fn new<P: Program>(context: &Context<P>, store: &Store<Node>) -> Self {
        let longest = context.common.borrow().kube.timeout;
        let timeout = context.leadership.write_timeout().min(longest);
        Self {
            api: NodeApi::new(context.clients.main.clone(), timeout),
            leadership: context.leadership.clone(),
            store: store.clone(),
        }
    }

    /// Changes metadata and spec of the node if it is still as given; the patch's own
    /// version does not count. Answers the node as it is now.
    ///
    /// # Errors
    ///
    /// See [`Stopped`]; [`ApiError::Conflict`] if the node has changed.
    pub async fn patch(&self, node: &Node, patch: NodePatch) -> Result<Arc<Node>, Stopped> {
        let patch =
            NodePatch { resource_version: Some(node.resource_version.to_string()), ..patch };
        self.check()?;
        let written = self.api.patch(&node.name, &patch).await?;
        Ok(self.keep(written))
    }

    /// Replaces the addresses of the node if it is still as given. Answers the node as
    /// it is now.
    ///
    /// # Errors
    ///
    /// See [`Stopped`]; [`ApiError::Conflict`] if the node has changed.
    pub async fn patch_addresses(
        &self,
        node: &Node,
        addresses: Vec<Address>,
    ) -> Result<Arc<Node>, Stopped> {
        let patch =
            AddressPatch { addresses, resource_version: Some(node.resource_version.to_string()) };
        self.check()?;
        let written = self.api.patch_addresses(&node.name, &patch).await?;
        Ok(self.keep(written))
    }

    /// Deletes the node if it is still as given. One that is gone already is deleted, too.
    ///
    /// # Errors
    ///
    /// See [`Stopped`]; [`ApiError::Conflict`] if the node has changed, or another has
    /// its name.
    pub async fn delete(&self, node: &Node) -> Result<(), Stopped> {
        self.check()?;
        match self.api.delete(node).await {
            Ok(()) | Err(ApiError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the longest write fits into the term.
    fn check(&self) -> Result<(), Lost> {
        self.leadership.check(self.api.timeout()).map(|_| ())
    }

    fn keep(&self, written: Node) -> Arc<Node> {
        let written = Arc::new(written);
        self.store.apply_written(Arc::clone(&written));
        written
    }
}

#[cfg(test)]
mod tests;
