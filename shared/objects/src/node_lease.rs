//! The Lease that the kubelet of a node renews.

use crate::Shared;

/// The namespace of these Leases. Each has the name of its node.
pub const NODE_LEASES: &str = "kube-node-lease";

/// The Lease of a kubelet, which renews it every 10 s with the defaults. Equality ignores the
/// resource version.
#[derive(Clone, Debug, Default)]
pub struct NodeLease {
    /// `kube-node-lease/<node>`.
    pub key: Shared,
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Box<str>,
    /// `spec.renewTime`, by the clock of the node: only its changes mean something.
    pub renewed: Box<str>,
}

impl PartialEq for NodeLease {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.uid == other.uid && self.renewed == other.renewed
    }
}
