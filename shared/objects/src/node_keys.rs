//! Taint and annotation keys shared by the kubelet and all cloud controllers.

/// The taint that the kubelet sets with `--cloud-provider=external`. Only the key matters;
/// value and effect may be anything.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The annotation that carries the kubelet's `--node-ip` to the cloud controller.
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";
