//! The Leases that the kubelets of nodes renew.

use ccm_kube::ApiError;
use ccm_objects::{NODE_LEASES, NodeLease};
use ccm_runtime::{
    program::{Context, Program},
    rights::Right,
};

use crate::reader::{self, Reader};

/// The right that [`Kubelets::heartbeat`] needs.
pub fn right() -> Right {
    reader::get::<NodeLease>().within(NODE_LEASES)
}

/// Reads these Leases.
pub struct Kubelets {
    leases: Reader<NodeLease>,
}

impl Kubelets {
    /// Reads with the program's client.
    pub fn new<P: Program>(context: &Context<P>) -> Self {
        Self { leases: Reader::new(context) }
    }

    /// What the Lease of this node's kubelet shows now: another text after each renewal, and none
    /// without a Lease. So no clock of a node matters.
    ///
    /// # Errors
    ///
    /// See [`Reader::get`].
    pub async fn heartbeat(&self, node: &str) -> Result<String, ApiError> {
        let lease = self.leases.get(&format!("{NODE_LEASES}/{node}")).await?;
        let text = lease
            .map(|lease| format!("{} {} {}", lease.uid, lease.resource_version, lease.renewed));
        Ok(text.unwrap_or_default())
    }
}
