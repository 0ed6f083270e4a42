//! The server's writes into objects: system metadata, defaults, and the effective part of an
//! update.

use serde_json::{Map, Value, json};

use super::{
    identity::Identity,
    resources::{self, Resource},
};

mod service;

pub(super) use service::Allocator;

/// The taint that admission adds to each new node; the node controller removes it.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Metadata that updates cannot change.
const KEPT: [&str; 6] = [
    "namespace",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
];

/// Prepares a decoded object for creation. Its name is already set.
pub(super) fn prepare_create(
    resource: &Resource,
    value: &mut Value,
    identity: &Identity,
    allocator: &Allocator,
) {
    if let Some(meta) = value["metadata"].as_object_mut() {
        for system in
            ["selfLink", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"]
        {
            meta.remove(system);
        }
        meta.remove("managedFields");
        meta.insert("uid".to_owned(), Value::from(identity.uid()));
        meta.insert("creationTimestamp".to_owned(), Value::from(identity.now_text()));
    }
    match resource.slot {
        resources::SERVICES => value["status"] = json!({ "loadBalancer": {} }),
        resources::NAMESPACES => {
            value["spec"] = json!({ "finalizers": ["kubernetes"] });
            value["status"] = json!({ "phase": "Active" });
        }
        resources::NODES if identity.taints_new_nodes() => add_not_ready(value),
        _ => {}
    }
    defaults(resource, value, allocator);
}

/// Prepares a decoded update of `old`: restores what this kind of update may not change. An
/// empty `subresource` is the object itself.
pub(super) fn prepare_update(
    resource: &Resource,
    subresource: &str,
    old: &Value,
    new: &mut Value,
    allocator: &Allocator,
) {
    let old_meta = &old["metadata"];
    if let Some(meta) = new["metadata"].as_object_mut() {
        meta.remove("managedFields");
        meta.remove("selfLink");
        if !meta.contains_key("uid") {
            meta.insert("uid".to_owned(), old_meta["uid"].clone());
        }
        for name in KEPT {
            match old_meta.get(name) {
                Some(value) => meta.insert(name.to_owned(), value.clone()),
                None => meta.remove(name),
            };
        }
        meta.insert("resourceVersion".to_owned(), old_meta["resourceVersion"].clone());
    }
    let keep = match subresource {
        "status" => "spec",
        _ if resource.has_status() => "status",
        _ => return defaults(resource, new, allocator),
    };
    match old.get(keep) {
        Some(part) => new[keep] = part.clone(),
        None => {
            new.as_object_mut().and_then(|map| map.remove(keep));
        }
    }
    if resource.slot == resources::SERVICES && subresource != "status" {
        service::carry_over(old, new);
    }
    defaults(resource, new, allocator);
}

/// Sets defaults at every write.
fn defaults(resource: &Resource, value: &mut Value, allocator: &Allocator) {
    if let Some(owners) = value["metadata"].get_mut("ownerReferences").and_then(Value::as_array_mut)
    {
        let mut seen: Vec<Value> = Vec::new();
        owners.retain(|owner| {
            let first = !seen.contains(owner);
            seen.push(owner.clone());
            first
        });
    }
    match resource.slot {
        resources::SERVICES => service::defaults(value, allocator),
        resources::NODES => {
            sync_pod_cidrs(&mut value["spec"]);
            let status = &mut value["status"];
            if status.get("allocatable").is_none() && status.get("capacity").is_some() {
                status["allocatable"] = status["capacity"].clone();
            }
        }
        resources::NAMESPACES => {
            let name = value["metadata"]["name"].clone();
            if !value["metadata"]["labels"].is_object() {
                value["metadata"]["labels"] = Value::Object(Map::new());
            }
            value["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
        }
        resources::SECRETS => {
            encode_string_data(value);
            if value["type"].is_null() {
                value["type"] = json!("Opaque");
            }
        }
        _ => {}
    }
}

fn add_not_ready(node: &mut Value) {
    let taint = json!({ "key": NOT_READY, "effect": "NoSchedule" });
    match node["spec"]["taints"].as_array_mut() {
        Some(taints) => {
            if !taints.iter().any(|it| it["key"] == NOT_READY && it["effect"] == "NoSchedule") {
                taints.push(taint);
            }
        }
        None => node["spec"]["taints"] = json!([taint]),
    }
}

/// Makes both fields agree: `podCIDR` is the first of `podCIDRs`; either one sets both.
fn sync_pod_cidrs(spec: &mut Value) {
    let first = spec["podCIDRs"].get(0).cloned();
    match (first, spec["podCIDR"].as_str()) {
        (None, Some(cidr)) => spec["podCIDRs"] = json!([cidr]),
        (Some(first), None) => spec["podCIDR"] = first,
        (Some(first), Some(cidr)) if first != cidr => spec["podCIDRs"] = json!([cidr]),
        _ => {}
    }
}

fn encode_string_data(secret: &mut Value) {
    let Some(Value::Object(texts)) =
        secret.as_object_mut().and_then(|map| map.remove("stringData"))
    else {
        return;
    };
    if !secret["data"].is_object() {
        secret["data"] = Value::Object(Map::new());
    }
    for (name, text) in texts {
        secret["data"][name] = Value::from(base64(text.as_str().unwrap_or_default().as_bytes()));
    }
}

/// Encodes standard base64 with padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk
            .iter()
            .enumerate()
            .fold(0_u32, |word, (at, byte)| word | u32::from(*byte) << (16 - 8 * at));
        for digit in 0..4 {
            let index = (word >> (18 - 6 * digit)) & 63;
            let shown = DIGITS.get(index as usize).copied().map_or('=', char::from);
            text.push(if digit <= chunk.len() { shown } else { '=' });
        }
    }
    text
}

/// Decodes [`base64`]; `None` if the text is invalid.
pub(super) fn unbase64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut word, mut bits) = (0_u32, 0);
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        word = word << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(word >> bits & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
