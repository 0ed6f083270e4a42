//! The types that controllers write, field by field.

use super::{
    Field, Shape, always,
    meta::{CONDITION, METADATA, REFERENCE},
    opt, ptr,
};

const TEXTS: Shape = Shape::MapOf(&Shape::Text);
const QUANTITIES: Shape = Shape::MapOf(&Shape::Quantity);

const TAINT: Shape = Shape::Object(&[
    always("key", Shape::Text),
    opt("value", Shape::Text),
    always("effect", Shape::Text),
    ptr("timeAdded", Shape::Time),
]);

const NODE_SPEC: Shape = Shape::Object(&[
    opt("podCIDR", Shape::Text),
    opt("podCIDRs", Shape::Set(&Shape::Text)),
    opt("providerID", Shape::Text),
    opt("unschedulable", Shape::Bool),
    opt("taints", Shape::List(&TAINT)),
    ptr("configSource", Shape::Any),
    opt("externalID", Shape::Text),
]);

const NODE_CONDITION: Shape = Shape::Object(&[
    always("type", Shape::Text),
    always("status", Shape::Text),
    always("lastHeartbeatTime", Shape::Time),
    always("lastTransitionTime", Shape::Time),
    opt("reason", Shape::Text),
    opt("message", Shape::Text),
]);

const NODE_ADDRESS: Shape =
    Shape::Object(&[always("type", Shape::Text), always("address", Shape::Text)]);

const NODE_INFO: Shape = Shape::Object(&[
    always("machineID", Shape::Text),
    always("systemUUID", Shape::Text),
    always("bootID", Shape::Text),
    always("kernelVersion", Shape::Text),
    always("osImage", Shape::Text),
    always("containerRuntimeVersion", Shape::Text),
    always("kubeletVersion", Shape::Text),
    always("kubeProxyVersion", Shape::Text),
    always("operatingSystem", Shape::Text),
    always("architecture", Shape::Text),
    ptr("swap", Shape::Any),
]);

const IMAGE: Shape =
    Shape::Object(&[opt("names", Shape::List(&Shape::Text)), opt("sizeBytes", Shape::Int)]);

const ATTACHED: Shape =
    Shape::Object(&[always("name", Shape::Text), always("devicePath", Shape::Text)]);

const DAEMON_ENDPOINTS: Shape =
    Shape::Object(&[always("kubeletEndpoint", Shape::Object(&[always("Port", Shape::Int)]))]);

const NODE_STATUS: Shape = Shape::Object(&[
    opt("capacity", QUANTITIES),
    opt("allocatable", QUANTITIES),
    opt("phase", Shape::Text),
    opt("conditions", Shape::Keyed("type", &NODE_CONDITION)),
    opt("addresses", Shape::Keyed("type", &NODE_ADDRESS)),
    always("daemonEndpoints", DAEMON_ENDPOINTS),
    always("nodeInfo", NODE_INFO),
    opt("images", Shape::List(&IMAGE)),
    opt("volumesInUse", Shape::List(&Shape::Text)),
    opt("volumesAttached", Shape::List(&ATTACHED)),
    ptr("config", Shape::Any),
    opt("runtimeHandlers", Shape::List(&Shape::Any)),
    ptr("features", Shape::Any),
    opt("declaredFeatures", Shape::List(&Shape::Text)),
]);

/// `Node`.
pub(in super::super) const NODE: Shape =
    Shape::Object(&[METADATA, always("spec", NODE_SPEC), always("status", NODE_STATUS)]);

const SOURCE: Shape = Shape::Object(&[opt("component", Shape::Text), opt("host", Shape::Text)]);

const SERIES: Shape =
    Shape::Object(&[opt("count", Shape::Int), always("lastObservedTime", Shape::MicroTime)]);

/// `Event` of core/v1, the stored form of events.
pub(in super::super) const EVENT: Shape = Shape::Object(&[
    METADATA,
    always("involvedObject", REFERENCE),
    opt("reason", Shape::Text),
    opt("message", Shape::Text),
    always("source", SOURCE),
    always("firstTimestamp", Shape::Time),
    always("lastTimestamp", Shape::Time),
    opt("count", Shape::Int),
    opt("type", Shape::Text),
    always("eventTime", Shape::MicroTime),
    ptr("series", SERIES),
    opt("action", Shape::Text),
    ptr("related", REFERENCE),
    always("reportingComponent", Shape::Text),
    always("reportingInstance", Shape::Text),
]);

const LEASE_SPEC: Shape = Shape::Object(&[
    ptr("holderIdentity", Shape::Text),
    ptr("leaseDurationSeconds", Shape::Int),
    ptr("acquireTime", Shape::MicroTime),
    ptr("renewTime", Shape::MicroTime),
    ptr("leaseTransitions", Shape::Int),
    ptr("strategy", Shape::Text),
    ptr("preferredHolder", Shape::Text),
]);

/// `Lease`.
pub(in super::super) const LEASE: Shape = Shape::Object(&[METADATA, always("spec", LEASE_SPEC)]);

const SERVICE_PORT: Shape = Shape::Object(&[
    opt("name", Shape::Text),
    opt("protocol", Shape::Text),
    ptr("appProtocol", Shape::Text),
    always("port", Shape::Int),
    always("targetPort", Shape::IntOrText),
    opt("nodePort", Shape::Int),
]);

const SERVICE_SPEC: Shape = Shape::Object(&[
    opt("ports", Shape::Keyed("port", &SERVICE_PORT)),
    opt("selector", TEXTS),
    opt("clusterIP", Shape::Text),
    opt("clusterIPs", Shape::List(&Shape::Text)),
    opt("type", Shape::Text),
    opt("externalIPs", Shape::List(&Shape::Text)),
    opt("sessionAffinity", Shape::Text),
    opt("loadBalancerIP", Shape::Text),
    opt("loadBalancerSourceRanges", Shape::List(&Shape::Text)),
    opt("externalName", Shape::Text),
    opt("externalTrafficPolicy", Shape::Text),
    opt("healthCheckNodePort", Shape::Int),
    opt("publishNotReadyAddresses", Shape::Bool),
    ptr("sessionAffinityConfig", Shape::Any),
    opt("ipFamilies", Shape::List(&Shape::Text)),
    ptr("ipFamilyPolicy", Shape::Text),
    ptr("allocateLoadBalancerNodePorts", Shape::Bool),
    ptr("loadBalancerClass", Shape::Text),
    ptr("internalTrafficPolicy", Shape::Text),
    ptr("trafficDistribution", Shape::Text),
]);

const PORT_STATUS: Shape = Shape::Object(&[
    always("port", Shape::Int),
    always("protocol", Shape::Text),
    ptr("error", Shape::Text),
]);

const INGRESS: Shape = Shape::Object(&[
    opt("ip", Shape::Text),
    opt("hostname", Shape::Text),
    ptr("ipMode", Shape::Text),
    opt("ports", Shape::List(&PORT_STATUS)),
]);

const SERVICE_STATUS: Shape = Shape::Object(&[
    always("loadBalancer", Shape::Object(&[opt("ingress", Shape::List(&INGRESS))])),
    opt("conditions", Shape::Keyed("type", &CONDITION)),
]);

/// `Service`.
pub(in super::super) const SERVICE: Shape =
    Shape::Object(&[METADATA, always("spec", SERVICE_SPEC), always("status", SERVICE_STATUS)]);

/// `Namespace`.
pub(in super::super) const NAMESPACE: Shape = Shape::Object(&[
    METADATA,
    always("spec", Shape::Object(&[opt("finalizers", Shape::List(&Shape::Text))])),
    always(
        "status",
        Shape::Object(&[
            opt("phase", Shape::Text),
            opt("conditions", Shape::Keyed("type", &Shape::Any)),
        ]),
    ),
]);

/// `ConfigMap`.
pub(in super::super) const CONFIG_MAP: Shape = Shape::Object(&[
    METADATA,
    ptr("immutable", Shape::Bool),
    opt("data", TEXTS),
    opt("binaryData", Shape::MapOf(&Shape::Bytes)),
]);

/// `Secret`.
pub(in super::super) const SECRET: Shape = Shape::Object(&[
    METADATA,
    ptr("immutable", Shape::Bool),
    opt("data", Shape::MapOf(&Shape::Bytes)),
    opt("stringData", TEXTS),
    opt("type", Shape::Text),
]);

const NAMED: Shape = Shape::Object(&[opt("name", Shape::Text)]);

/// `ServiceAccount`.
pub(in super::super) const SERVICE_ACCOUNT: Shape = Shape::Object(&[
    METADATA,
    opt("secrets", Shape::Keyed("name", &REFERENCE)),
    opt("imagePullSecrets", Shape::Keyed("name", &NAMED)),
    ptr("automountServiceAccountToken", Shape::Bool),
]);

/// Types that are stored and served without checks.
const OPEN_FIELDS: &[Field] = &[METADATA];

/// Any object with metadata.
pub(in super::super) const OPEN: Shape = Shape::Open(OPEN_FIELDS);
