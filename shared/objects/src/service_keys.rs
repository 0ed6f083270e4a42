//! Finalizers, annotations and labels of load balancers that all cloud controllers share.

/// The finalizer of a Service whose load balancer has to be deleted first.
pub const CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";

/// The annotation in which service-ccm records the ID of a load balancer: a hint where to look, not
/// a proof of ownership.
pub const LOAD_BALANCER_ID: &str = "quartet.dev/load-balancer-id";

/// The condition in which service-ccm says why a load balancer is not as its Service asks for.
pub const PROVISIONING: &str = "LoadBalancerProvisioning";

/// The condition that says whether clients reach the load balancer.
pub const SERVING: &str = "LoadBalancerServing";

/// The annotation with the networks that may connect. `spec.loadBalancerSourceRanges` takes
/// precedence.
pub const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// The annotation in which `kubectl apply` keeps the last configuration. It is large, changes
/// with every apply, and configures nothing.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The label that excludes a node from load balancers, unless its value is a word for "false".
pub const EXCLUDE_NODE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
