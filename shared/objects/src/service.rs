//! A Service, reduced to what matters for its load balancer.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{ObjectRef, Shared, TooLarge};

/// A Service. Equality ignores the resource version, the JSON and the rule: a write that changed
/// nothing relevant here is not a change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Service {
    /// `<namespace>/<name>`.
    pub key: Shared,
    /// `metadata.uid`: distinguishes it from an earlier one of the same name.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`, for preconditions.
    pub resource_version: Box<str>,
    /// True if it is being deleted.
    pub deleting: bool,
    /// True if it has the finalizer [`service_keys::CLEANUP`](crate::service_keys::CLEANUP).
    pub has_finalizer: bool,
    /// True if `spec.type` is `LoadBalancer`.
    pub is_load_balancer: bool,
    /// `spec.clusterIPs`, at most one of each family. The cluster itself uses the cluster IPs of all Services.
    pub cluster_ips: [Option<IpAddr>; 2],
    /// Everything else. `None` for a Service that does not have this type or the finalizer, and
    /// that does not show anything that service-ccm writes: clusters have thousands of them. If a
    /// Service has only the type, and its class is not [served](crate::ServiceReading), only the
    /// class is kept.
    pub details: Option<Box<ServiceDetails>>,
    /// Metadata, spec and `status.loadBalancer` as JSON, without `managedFields` and kubectl's copy of the
    /// Service, for providers that [want](crate::ServiceReading) the whole Service.
    pub json: Option<Arc<str>>,
    /// The number of the rule by which it was read.
    pub rule: u32,
}

/// The description of a Service's load balancer, and its known state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceDetails {
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// The entries of `metadata.annotations` that are [read](crate::ServiceReading).
    pub annotations: BTreeMap<Shared, Box<str>>,
    /// `metadata.labels`.
    pub labels: BTreeMap<Shared, Shared>,
    /// `spec.loadBalancerClass`.
    pub class: Option<Shared>,
    /// `spec.ports`.
    pub ports: Vec<ServicePort>,
    /// `spec.allocateLoadBalancerNodePorts`; true if it is absent.
    pub allocates_node_ports: bool,
    /// `spec.loadBalancerIP`; never empty.
    pub load_balancer_ip: Option<Box<str>>,
    /// `spec.loadBalancerSourceRanges`.
    pub source_ranges: Vec<Box<str>>,
    /// True if `spec.externalTrafficPolicy` is `Local`.
    pub local_traffic: bool,
    /// `spec.healthCheckNodePort`; never 0.
    pub health_check_node_port: Option<u16>,
    /// The time-out in seconds if `spec.sessionAffinity` is `ClientIP`.
    pub client_ip_affinity: Option<u32>,
    /// `spec.ipFamilies`: `IPv4`, `IPv6`.
    pub ip_families: Vec<Shared>,
    /// `spec.ipFamilyPolicy`: `SingleStack`, `PreferDualStack`, `RequireDualStack`.
    pub ip_family_policy: Option<Shared>,
    /// `status.loadBalancer.ingress`, in order.
    pub ingress: Vec<ServiceIngress>,
    /// The entries of `status.conditions` that service-ccm writes.
    pub conditions: Vec<ServiceCondition>,
    /// The part that is left out here because it is too large.
    pub too_large: Option<TooLarge>,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePort {
    /// Its name; empty if it has no name.
    pub name: Shared,
    /// `TCP`, `UDP`, `SCTP`; may be one that this version does not know.
    pub protocol: Shared,
    /// The port.
    pub port: u16,
    /// The port on each node, if it has one.
    pub node_port: Option<u16>,
    /// The protocol above the transport.
    pub app_protocol: Option<Shared>,
}

/// An address in the status of a Service, with every field that the API server sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceIngress {
    /// An IP address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<Box<str>>,
    /// A DNS name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<Box<str>>,
    /// `VIP` or `Proxy`. The API server stores `VIP` for an IP address without a mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_mode: Option<Shared>,
    /// Ports with their state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<IngressPort>,
}

/// The state of a port at one address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngressPort {
    /// The port.
    #[serde(default)]
    pub port: i32,
    /// Its protocol.
    #[serde(default)]
    pub protocol: Shared,
    /// The reason why it does not work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<str>>,
}

/// A condition of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceCondition {
    /// Its type.
    pub kind: Shared,
    /// `True`, `False` or `Unknown`.
    pub status: Shared,
    /// The reason, as one CamelCase word.
    pub reason: Shared,
    /// The reason for people.
    pub message: Box<str>,
    /// When it last changed its status.
    pub last_transition_time: Option<Timestamp>,
}

impl PartialEq for Service {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
            && self.uid == other.uid
            && self.deleting == other.deleting
            && self.has_finalizer == other.has_finalizer
            && self.is_load_balancer == other.is_load_balancer
            && self.cluster_ips == other.cluster_ips
            && self.details == other.details
            && self.json == other.json
    }
}

impl Service {
    /// Returns namespace and name.
    pub fn names(&self) -> (&str, &str) {
        self.key.split_once('/').unwrap_or(("", &self.key))
    }

    /// Returns the value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.details.as_ref()?.annotations.get(key).map(|value| &**value)
    }

    /// Returns a condition of this type, if it has one.
    pub fn condition(&self, kind: &str) -> Option<&ServiceCondition> {
        self.details.as_ref()?.conditions.iter().find(|condition| &*condition.kind == kind)
    }

    /// Returns the Service as the subject of an event.
    pub fn reference(&self) -> ObjectRef {
        let (namespace, name) = self.names();
        ObjectRef {
            api_version: "v1",
            kind: "Service",
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
            uid: self.uid.to_string(),
            resource_version: self.resource_version.to_string(),
        }
    }

    /// Returns true if it may have a load balancer: it has this type or the finalizer. A Service
    /// that has lost both at once still has details if it shows something that service-ccm wrote.
    pub fn concerns_load_balancers(&self) -> bool {
        self.is_load_balancer || self.has_finalizer
    }
}
