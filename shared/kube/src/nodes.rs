//! Writing nodes.

use std::time::Duration;

use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    error::ApiError,
    node::wire::Received,
    patch::{AddressPatch, NodePatch, PatchKind},
};
use ccm_objects::Node;

/// Writes nodes. Each call ends within its time, whatever the connection does.
#[derive(Clone)]
pub struct NodeApi {
    api: Api<Received>,
    timeout: Duration,
    kind: PatchKind,
}

impl NodeApi {
    /// Writes through this client; `timeout` bounds a call with all its repetitions and
    /// the whole of its answer.
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { api: Api::all(client), timeout, kind: PatchKind::default() }
    }

    /// Writes by this kind of patch.
    #[must_use]
    pub fn with_kind(mut self, kind: PatchKind) -> Self {
        self.kind = kind;
        self
    }

    /// How long a call may take: what the term of leadership must cover before it starts.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Changes metadata and spec. Answers the node as it is now. A patch that changes
    /// nothing is not sent: [`ApiError::Invalid`].
    pub async fn patch(&self, name: &str, patch: &NodePatch) -> Result<Node, ApiError> {
        if patch.is_empty() {
            return Err(ApiError::Invalid(format!("the patch of node {name} changes nothing")));
        }
        let params = PatchParams::default();
        let body = self.written(patch.body());
        self.bounded(self.api.patch(name, &params, &body)).await
    }

    /// Changes the addresses. Answers the node as it is now. An empty list is not sent,
    /// since it would take from the node those that kubelet found:
    /// [`ApiError::Invalid`].
    pub async fn patch_addresses(
        &self,
        name: &str,
        patch: &AddressPatch,
    ) -> Result<Node, ApiError> {
        if patch.addresses.is_empty() {
            return Err(ApiError::Invalid(format!("no addresses to write to node {name}")));
        }
        let params = PatchParams::default();
        let body = self.written(patch.body(self.kind));
        self.bounded(self.api.patch_status(name, &params, &body)).await
    }

    /// Deletes exactly this object as it was seen: another of the same name, or one that
    /// has changed since, gets [`ApiError::Conflict`] and stays.
    pub async fn delete(&self, node: &Node) -> Result<(), ApiError> {
        let preconditions = Preconditions {
            uid: Some(node.uid.to_string()),
            resource_version: Some(node.resource_version.to_string()),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let call = self.api.delete(&node.name, &params);
        let answer = timeout(self.timeout, call).await.map_err(|_| ApiError::Timeout)?;
        answer.map(|_| ()).map_err(ApiError::from)
    }

    fn written(&self, body: Value) -> Patch<Value> {
        match self.kind {
            PatchKind::Strategic => Patch::Strategic(body),
            PatchKind::Merge => Patch::Merge(body),
        }
    }

    async fn bounded(
        &self,
        call: impl Future<Output = kube::Result<Received>>,
    ) -> Result<Node, ApiError> {
        let answer = timeout(self.timeout, call).await.map_err(|_| ApiError::Timeout)?;
        answer.map_err(ApiError::from)?.into_node().map_err(ApiError::Decode)
    }
}
