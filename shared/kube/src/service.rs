//! How Services are read.

use std::{collections::BTreeMap, sync::Arc};

use ccm_objects::{
    IngressPort, Service, ServiceCondition, ServiceDetails, ServiceIngress, ServicePort,
    service_keys,
};
use kube::core::NamespaceResourceScope;
use serde::de::IgnoredAny;
use serde_json::value::to_raw_value;

use crate::{
    intern::intern,
    store::stored,
    wire::{Fields, Kind},
};

/// The affinity time-out of the API server.
const DEFAULT_AFFINITY: u32 = 10_800;

stored!(Service, key);

impl Kind for Service {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "Service";
    const PLURAL: &'static str = "services";

    fn from_fields(name: &str, metadata: &Fields<'_>, object: &Fields<'_>) -> Self {
        let namespace = metadata.text("namespace").unwrap_or_default();
        let spec = object.object("spec");
        let finalizers = metadata.list("finalizers", |name: String| Some(name));
        let mut service = Self {
            key: format!("{namespace}/{name}").into(),
            uid: metadata.text("uid").unwrap_or_default().into(),
            resource_version: metadata.text("resourceVersion").unwrap_or_default().into(),
            // Only its presence matters.
            deleting: metadata.get::<IgnoredAny>("deletionTimestamp").is_some(),
            has_finalizer: finalizers.iter().any(|name| name == service_keys::CLEANUP),
            is_load_balancer: spec.text("type").as_deref() == Some("LoadBalancer"),
            details: None,
            json: None,
        };
        if service.concerns_load_balancers() || shows_traces(metadata, object) {
            service.details = Some(Box::new(details(metadata, &spec, &object.object("status"))));
            service.json = json(metadata, object);
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

/// Metadata and spec, without what is large and describes nothing.
fn json(metadata: &Fields<'_>, object: &Fields<'_>) -> Option<Arc<str>> {
    let annotations = metadata.object("annotations");
    let annotations = to_raw_value(&annotations.without(&[service_keys::LAST_APPLIED])).ok()?;
    let mut metadata = metadata.without(&["managedFields", "resourceVersion", "annotations"]);
    metadata.insert("annotations", &annotations);
    let metadata = to_raw_value(&metadata).ok()?;
    let (kind, version) = (to_raw_value("Service").ok()?, to_raw_value("v1").ok()?);
    let whole = BTreeMap::from([
        ("apiVersion", &*version),
        ("kind", &kind),
        ("metadata", &metadata),
        ("spec", object.raw("spec")?),
    ]);
    serde_json::to_string(&whole).ok().map(Into::into)
}

fn details(metadata: &Fields<'_>, spec: &Fields<'_>, status: &Fields<'_>) -> ServiceDetails {
    let annotations = metadata.texts("annotations");
    let annotations = annotations.filter(|(key, _)| key != service_keys::LAST_APPLIED);
    let client_ip = spec.text("sessionAffinity").as_deref() == Some("ClientIP");
    let affinity = spec.object("sessionAffinityConfig").object("clientIP").get("timeoutSeconds");
    ServiceDetails {
        created: metadata.get("creationTimestamp"),
        annotations: annotations.map(|(key, value)| (intern(&key), value.into())).collect(),
        labels: metadata
            .texts("labels")
            .map(|(key, value)| (intern(&key), intern(&value)))
            .collect(),
        class: spec.optional("loadBalancerClass"),
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

fn condition(fields: &Fields<'_>) -> Option<ServiceCondition> {
    Some(ServiceCondition {
        kind: intern(&fields.text("type")?),
        status: fields.shared("status"),
        reason: fields.shared("reason"),
        message: fields.text("message").unwrap_or_default().into(),
        last_transition_time: fields.get("lastTransitionTime"),
    })
}

#[cfg(test)]
mod tests;
