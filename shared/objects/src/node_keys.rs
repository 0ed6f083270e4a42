//! Keys on nodes by which kubelet and every cloud controller understand each other.
//!
//! They stand here because plans, which know no Kubernetes client, speak of them as well.

/// The taint that kubelet sets with `--cloud-provider=external`. Only the key counts;
/// value and effect may be anything.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The annotation by which kubelet's `--node-ip` reaches the cloud controller.
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";
