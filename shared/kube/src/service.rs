//! How Services are read.

mod parts;

use std::net::IpAddr;

use ccm_objects::{
    IngressPort, Service, ServiceCondition, ServiceDetails, ServiceIngress, ServicePort,
    ServiceReading, service_keys,
};
use kube::core::NamespaceResourceScope;
use serde::de::IgnoredAny;

use self::parts::Parts;
use crate::{
    intern::intern,
    store::{Rule, stored},
    wire::{Fields, Kind},
};

/// The affinity time-out of the API server.
const DEFAULT_AFFINITY: u32 = 10_800;

/// The conditions that are kept.
const CONDITIONS: [&str; 2] = [service_keys::PROVISIONING, service_keys::SERVING];

stored!(
    Service,
    key,
    fn rule(&self) -> u32 {
        self.rule
    }
);

impl Kind for Service {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "Service";
    const PLURAL: &'static str = "services";
    /// The rule for what is kept. Without a value everything is kept.
    type Kept = Option<ServiceReading>;

    fn from_fields(
        name: &str,
        metadata: &Fields<'_>,
        object: &Fields<'_>,
        rule: &Rule<Self::Kept>,
    ) -> Self {
        let namespace = metadata.text("namespace").unwrap_or_default();
        let spec = object.object("spec");
        let finalizers = metadata.list("finalizers", |name: String| Some(name));
        let mut service = Self {
            key: format!("{namespace}/{name}").into(),
            uid: metadata.text("uid").unwrap_or_default().into(),
            resource_version: metadata.text("resourceVersion").unwrap_or_default().into(),
            // Only the presence of the field matters.
            deleting: metadata.get::<IgnoredAny>("deletionTimestamp").is_some(),
            has_finalizer: finalizers.iter().any(|name| name == service_keys::CLEANUP),
            is_load_balancer: spec.text("type").as_deref() == Some("LoadBalancer"),
            cluster_ips: cluster_ips(&spec),
            details: None,
            json: None,
            rule: rule.number,
        };
        let (class, reading) = (spec.optional("loadBalancerClass"), rule.kept.as_ref());
        let is_served = reading.is_none_or(|reading| reading.serves(class.as_deref()));
        let is_marked = service.has_finalizer || shows_traces(metadata, object);
        if is_marked || service.is_load_balancer && is_served {
            let parts = Parts::new(metadata, object, reading);
            let status = object.object("status");
            service.json = parts.json(&status);
            let details = details(parts, metadata, &status);
            service.details = Some(Box::new(ServiceDetails { class, ..details }));
        } else if service.is_load_balancer {
            let details = ServiceDetails { class, ..ServiceDetails::default() };
            service.details = Some(Box::new(details));
        }
        service
    }
}

/// Returns true if the Service shows something that service-ccm writes.
fn shows_traces(metadata: &Fields<'_>, object: &Fields<'_>) -> bool {
    let id = metadata.object("annotations").text(service_keys::LOAD_BALANCER_ID);
    let is_ours = |fields: Fields<'_>| {
        (fields.text("type").as_deref() == Some(service_keys::PROVISIONING)).then_some(())
    };
    id.is_some() || !object.object("status").list("conditions", is_ours).is_empty()
}

/// Returns the addresses of the Service in the cluster. The text `None` in the field of a headless
/// Service does not count as an address.
fn cluster_ips(spec: &Fields<'_>) -> [Option<IpAddr>; 2] {
    let ips = spec.list("clusterIPs", |ip: String| ip.parse().ok());
    [0, 1].map(|at| ips.get(at).copied())
}

fn details(parts: Parts<'_>, metadata: &Fields<'_>, status: &Fields<'_>) -> ServiceDetails {
    let Parts { annotations, labels, spec, too_large, .. } = parts;
    let client_ip = spec.text("sessionAffinity").as_deref() == Some("ClientIP");
    let affinity = spec.object("sessionAffinityConfig").object("clientIP").get("timeoutSeconds");
    let interned = |(key, value): (String, String)| (intern(&key), intern(&value));
    ServiceDetails {
        created: metadata.get("creationTimestamp"),
        annotations: annotations
            .into_texts()
            .map(|(key, value)| (intern(&key), value.into()))
            .collect(),
        labels: labels.into_texts().map(interned).collect(),
        class: None,
        ports: spec.list("ports", |fields| port(&fields)),
        allocates_node_ports: spec.get("allocateLoadBalancerNodePorts").unwrap_or(true),
        load_balancer_ip: spec.text("loadBalancerIP").map(Into::into),
        source_ranges: spec.list("loadBalancerSourceRanges", |range: String| Some(range.into())),
        local_traffic: spec.text("externalTrafficPolicy").as_deref() == Some("Local"),
        health_check_node_port: spec.get("healthCheckNodePort").filter(|port| *port != 0),
        client_ip_affinity: client_ip.then(|| affinity.unwrap_or(DEFAULT_AFFINITY)),
        ip_families: spec.list("ipFamilies", |family: String| Some(intern(&family))),
        ip_family_policy: spec.text("ipFamilyPolicy").map(|policy| intern(&policy)),
        ingress: status.object("loadBalancer").list("ingress", |fields| Some(ingress(&fields))),
        conditions: status.list("conditions", |fields| condition(&fields)),
        too_large,
    }
}

fn port(fields: &Fields<'_>) -> Option<ServicePort> {
    Some(ServicePort {
        name: fields.shared("name"),
        protocol: fields.text("protocol").map_or_else(|| intern("TCP"), |text| intern(&text)),
        port: fields.get("port")?,
        node_port: fields.get("nodePort").filter(|port| *port != 0),
        app_protocol: fields.optional("appProtocol"),
    })
}

fn ingress(fields: &Fields<'_>) -> ServiceIngress {
    ServiceIngress {
        ip: fields.text("ip").map(Into::into),
        hostname: fields.text("hostname").map(Into::into),
        ip_mode: fields.optional("ipMode"),
        ports: fields.list("ports", |port: Fields<'_>| {
            Some(IngressPort {
                port: port.get("port").unwrap_or_default(),
                protocol: port.shared("protocol"),
                error: port.text("error").map(Into::into),
            })
        }),
    }
}

/// Returns a condition, if it is kept.
fn condition(fields: &Fields<'_>) -> Option<ServiceCondition> {
    let kind = fields.text("type").filter(|kind| CONDITIONS.contains(&kind.as_str()))?;
    Some(ServiceCondition {
        kind: intern(&kind),
        status: fields.shared("status"),
        reason: fields.shared("reason"),
        message: fields.text("message").unwrap_or_default().into(),
        last_transition_time: fields.get("lastTransitionTime"),
    })
}

#[cfg(test)]
mod tests;
