//! Taint, annotation and label keys shared by the kubelet and all cloud controllers.

/// The taint that the kubelet sets with `--cloud-provider=external`. Only the key matters;
/// value and effect may be anything.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The taint of a node whose machine is shut down, with the effect `NoSchedule`.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// The annotation that carries the kubelet's `--node-ip` to the cloud controller.
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// Beta and GA key of the label with the type of the machine.
pub const INSTANCE_TYPE: (&str, &str) =
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type");
/// The same with its zone.
pub const ZONE: (&str, &str) =
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
/// The same with its region.
pub const REGION: (&str, &str) =
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region");
