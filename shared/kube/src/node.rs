//! How nodes are read.

use std::collections::BTreeMap;

use ccm_objects::{Address, Condition, Node, OWN_ANNOTATIONS, Shared, Taint, node_keys};
use kube::core::ClusterResourceScope;
use serde::de::IgnoredAny;
use serde_json::{Value, from_str};

use crate::{
    intern::intern,
    store::{Rule, stored},
    wire::{Fields, Kind},
};

const NETWORK: &str = "NetworkUnavailable";
/// The conditions that are kept.
const CONDITIONS: [&str; 2] = ["Ready", NETWORK];

stored!(
    Node,
    name,
    fn share(&mut self, earlier: &Self) {
        Self::share(self, earlier);
    }
);

impl Kind for Node {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "Node";
    const PLURAL: &'static str = "nodes";
    type Kept = ();

    fn from_fields(name: &str, metadata: &Fields<'_>, object: &Fields<'_>, _: &Rule<()>) -> Self {
        let (spec, status) = (object.object("spec"), object.object("status"));
        Self {
            name: intern(name),
            uid: metadata.text("uid").unwrap_or_default().into(),
            resource_version: metadata.text("resourceVersion").unwrap_or_default().into(),
            created: metadata.get("creationTimestamp"),
            // Only the presence of the field matters.
            deleting: metadata.get::<IgnoredAny>("deletionTimestamp").is_some(),
            labels: metadata
                .texts("labels")
                .map(|(key, text)| (intern(&key), intern(&text)))
                .collect(),
            annotations: metadata.texts("annotations").filter_map(annotation).collect(),
            provider_id: spec.text("providerID").map(Into::into),
            taints: spec.list("taints", |fields| Some(taint(&fields))),
            pod_cidrs: spec.list("podCIDRs", |cidr: String| Some(cidr.into())),
            unschedulable: spec.get("unschedulable").unwrap_or_default(),
            addresses: status.list("addresses", |fields| Some(address(&fields))),
            conditions: status.list("conditions", |fields| condition(&fields)),
            system_uuid: status.object("nodeInfo").text("systemUUID").map(Into::into),
            kubelet_port: status.object("daemonEndpoints").object("kubeletEndpoint").get("Port"),
        }
    }
}

/// Reads a taint. Every field is lenient: a taint that is dropped here would be removed from the
/// node by the next write of the list.
fn taint(fields: &Fields<'_>) -> Taint {
    Taint {
        key: fields.shared("key"),
        value: fields.optional("value"),
        effect: fields.shared("effect"),
        time_added: fields.get::<String>("timeAdded").map(Into::into),
        others: unknown(fields, &["key", "value", "effect", "timeAdded"]),
    }
}

/// Returns the fields with other names, as they were sent.
fn unknown(fields: &Fields<'_>, known: &[&str]) -> BTreeMap<String, Value> {
    let unknown = fields.raws().filter(|(key, _)| !known.contains(key));
    unknown.filter_map(|(key, raw)| Some((key.to_owned(), from_str(raw.get()).ok()?))).collect()
}

fn address(fields: &Fields<'_>) -> Address {
    let address = fields.text("address").unwrap_or_default();
    Address { kind: fields.shared("type"), address: address.into() }
}

/// Returns a condition, if it is kept.
fn condition(fields: &Fields<'_>) -> Option<Condition> {
    let kind = fields.text("type").filter(|kind| CONDITIONS.contains(&kind.as_str()))?;
    let status = fields.shared("status");
    // The message is kept, because few nodes have it and it gives the reason.
    let has_message = kind == NETWORK && *status == *"True";
    Some(Condition {
        message: has_message.then(|| fields.optional("message")).flatten(),
        kind: intern(&kind),
        status,
        reason: fields.optional("reason"),
    })
}

/// Returns an annotation, if Quartet reads it.
fn annotation((key, value): (String, String)) -> Option<(Shared, Box<str>)> {
    let ours = key == node_keys::PROVIDED_NODE_IP || key.starts_with(OWN_ANNOTATIONS);
    ours.then(|| (intern(&key), value.into()))
}

#[cfg(test)]
mod tests;
