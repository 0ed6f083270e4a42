//! Converts a server to an instance of the contract. Pure.

use std::collections::BTreeMap;

use ccm_cloud::{Instance, PowerState, ProviderId};
use ccm_openstack_client::{compute::Server, ids::ServerId};

use super::{
    addresses::{Inputs, node_addresses, withheld},
    flavors::Kind,
};
use crate::{
    config::{Config, Labels},
    ids,
    labels::label_value,
};

/// The domain of the labels of `[Labels]`.
const DOMAIN: &str = "openstack.quartet.dev";
/// The maximum number of labels from a server's metadata.
const MAX_LABELS: usize = 64;

/// Returns an instance with this ID and name only.
pub fn named(config: &Config, id: &ServerId, name: &str) -> Result<Instance, String> {
    let mut instance = Instance::new(provider_id(config, config.regional_ids, id)?, name);
    let other = provider_id(config, !config.regional_ids, id)?;
    if other != instance.provider_id {
        instance.other_ids.push(other);
    }
    Ok(instance)
}

/// Returns the provider ID of this server as text.
pub fn spelt(config: &Config, id: &ServerId) -> String {
    ids::format(config.regional_ids, config.access.region.as_deref(), id)
}

/// Returns the provider ID in this spelling.
fn provider_id(config: &Config, regional: bool, id: &ServerId) -> Result<ProviderId, String> {
    let text = ids::format(regional, config.access.region.as_deref(), id);
    ProviderId::parse(&text).map_err(|error| error.to_string())
}

/// Converts a server. The error names the server and the problem.
pub fn describe(known: &Inputs<'_>, kind: Kind, config: &Config) -> Result<Instance, String> {
    let server = known.server;
    let about = |what: String| server.about(what);
    let mut instance = presence(server, config).map_err(about)?;
    instance.addresses = node_addresses(known, &config.networking).map_err(about)?;
    instance.withheld = withheld(known, &config.networking, &instance.addresses);
    instance.zone = server.fields.zone.as_deref().and_then(label_value);
    instance.region = config.access.region.as_deref().and_then(label_value);
    instance.labels = labels(server, kind.id, &config.labels);
    instance.instance_type = kind.name;
    Ok(instance)
}

/// Returns an instance with IDs, name and power state.
pub fn presence(server: &Server, config: &Config) -> Result<Instance, String> {
    let mut instance = named(config, &server.id, &server.name)?;
    instance.power = power(server);
    Ok(instance)
}

/// Returns the power state of a server, from its status.
fn power(server: &Server) -> PowerState {
    let task = server.fields.task_state.as_deref().unwrap_or_default();
    match server.status() {
        "ACTIVE" | "PASSWORD" | "VERIFY_RESIZE" => PowerState::Running,
        // The server is already being started.
        "SHUTOFF" | "SHELVED_OFFLOADED" if is_starting(task) => PowerState::Changing,
        "SHUTOFF" | "SHELVED_OFFLOADED" => PowerState::Stopped,
        "BUILD" | "REBUILD" | "REBOOT" | "HARD_REBOOT" | "RESIZE" | "REVERT_RESIZE"
        | "MIGRATING" | "RESCUE" => PowerState::Changing,
        // The server is becoming SHELVED_OFFLOADED, or is suspended: it can continue with its
        // state.
        "SHELVED" | "PAUSED" | "SUSPENDED" => PowerState::Changing,
        _ => PowerState::Unknown,
    }
}

fn is_starting(task: &str) -> bool {
    task == "powering-on" || task.starts_with("unshelving") || task == "spawning"
}

/// Returns the labels of `[Labels]`.
fn labels(server: &Server, flavor_id: Option<String>, rules: &Labels) -> BTreeMap<String, String> {
    let wanted = |key: &str| rules.metadata.iter().any(|rule| matches(rule, key));
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    for (key, value) in server.metadata().filter(|(key, _)| wanted(key)).take(MAX_LABELS) {
        let Some(key) = label_value(key) else { continue };
        let value = if value.is_empty() { Some(String::new()) } else { label_value(value) };
        if let Some(value) = value {
            // If several keys become the same label, the first is used.
            labels.entry(format!("{DOMAIN}/{key}")).or_insert(value);
        }
    }
    let host_id = server.fields.host_id.as_deref().filter(|_| rules.host_id).and_then(label_value);
    let flavor_id = flavor_id.filter(|_| rules.flavor_id);
    for (key, value) in [("host-id", host_id), ("flavor-id", flavor_id)] {
        if let Some(value) = value {
            labels.insert(format!("{DOMAIN}/{key}"), value);
        }
    }
    labels
}

/// Returns true if a rule of `[Labels] metadata` matches this key.
fn matches(rule: &str, key: &str) -> bool {
    match rule.strip_suffix('*') {
        Some(prefix) => key.starts_with(prefix),
        None => rule == key,
    }
}

#[cfg(test)]
mod tests;
