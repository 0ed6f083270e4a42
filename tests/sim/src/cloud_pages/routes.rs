//! The router on the pages: its contents, its settings, and a person's changes.

use std::{net::IpAddr, time::Duration};

use ccm_base::duration::format;
use ccm_cloud::{IpFamily, Owner, RouteTarget};
use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{
    Refusal,
    fields::{duration, set},
};
use crate::cloud::{
    Router,
    routes::{RouteWriteKind, RouterSettings, SimRoute, TargetKind},
};

/// Returns the contents of the router.
pub(super) fn contents(router: &Router) -> Value {
    let all: Vec<_> = router.all().iter().map(SimRoute::describe).collect();
    json!({"version": router.version(), "routes": all, "ports": router.ports()})
}

/// Returns the accepted writes.
pub(super) fn writes(router: &Router) -> Value {
    json!({
        "create": router.written(RouteWriteKind::Create),
        "repair": router.written(RouteWriteKind::Repair),
        "replace": router.written(RouteWriteKind::Replace),
        "delete": router.written(RouteWriteKind::Delete),
    })
}

/// Returns how the router behaves.
pub(super) fn settings(settings: &RouterSettings) -> Value {
    let RouterSettings { offered, traits, targets, quota, versions, records_owner, fences, create } =
        settings;
    json!({
        "offered": offered,
        "targets": targets,
        "quota": quota,
        "versions": versions,
        "fences": fences,
        "create": format(*create),
        "families": traits.families,
        "severalTargets": traits.several_targets,
        "replaces": traits.replaces,
        "recordsOwner": records_owner,
        "comparesVersion": traits.compares_version,
        "targetIds": traits.target_ids,
        "targetAddresses": traits.target_addresses,
        "maxBatch": traits.max_batch,
    })
}

/// Returns a field that is present, even if it is null.
#[expect(clippy::option_option, reason = "null lifts the quota; without the field it stays")]
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// A change of the router's behaviour.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RouterRequest {
    offered: Option<bool>,
    targets: Option<TargetKind>,
    #[expect(clippy::option_option, reason = "null lifts the quota; without the field it stays")]
    #[serde(default, deserialize_with = "given")]
    quota: Option<Option<u32>>,
    versions: Option<bool>,
    fences: Option<bool>,
    #[serde(default, deserialize_with = "duration")]
    create: Option<Duration>,
    families: Option<Vec<IpFamily>>,
    several_targets: Option<bool>,
    replaces: Option<bool>,
    records_owner: Option<bool>,
    compares_version: Option<bool>,
    target_ids: Option<bool>,
    target_addresses: Option<bool>,
    max_batch: Option<usize>,
}

impl RouterRequest {
    /// Changes the given settings.
    pub(super) fn apply(self, router: &Router) -> Result<(), Refusal> {
        if self.max_batch == Some(0) {
            return Err(Refusal::invalid("maxBatch 0: expected at least 1"));
        }
        router.configure(|settings| {
            let traits = &mut settings.traits;
            set(&mut settings.offered, self.offered);
            set(&mut settings.targets, self.targets);
            set(&mut settings.quota, self.quota);
            set(&mut settings.versions, self.versions);
            set(&mut settings.fences, self.fences);
            set(&mut settings.create, self.create);
            set(&mut traits.families, self.families);
            set(&mut traits.several_targets, self.several_targets);
            set(&mut traits.replaces, self.replaces);
            set(&mut settings.records_owner, self.records_owner);
            set(&mut traits.compares_version, self.compares_version);
            set(&mut traits.target_ids, self.target_ids);
            set(&mut traits.target_addresses, self.target_addresses);
            set(&mut traits.max_batch, self.max_batch);
        });
        Ok(())
    }
}

/// A route to add as a person would.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RouteRequest {
    destination: IpNet,
    target: Option<RouteTarget>,
    id: Option<String>,
    owner: Option<Owner>,
}

impl RouteRequest {
    /// Adds it, even if the destination has a route. Without an ID, the destination is the ID.
    #[expect(clippy::unnecessary_wraps, reason = "as the other requests")]
    pub(super) fn add(self, router: &Router) -> Result<Value, Refusal> {
        let id = self.id.unwrap_or_else(|| self.destination.to_string());
        let mut route = SimRoute::foreign(id, self.destination, self.target);
        route.owner = self.owner;
        let shown = json!(route.describe());
        router.add(route);
        Ok(shown)
    }
}

/// Deletes all routes of a destination as a person would.
pub(super) fn remove(router: &Router, destination: &str) -> Result<Value, Refusal> {
    let wrong =
        || Refusal::invalid(format!("{destination:?} is not a network, such as 10.0.0.0/8"));
    let network: IpNet = destination.parse().map_err(|_| wrong())?;
    match router.remove(network) {
        0 => Err(Refusal::missing(format!("no route has the destination {network}"))),
        count => Ok(json!({"deleted": count})),
    }
}

/// An address to add that is no instance's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PortRequest {
    address: IpAddr,
}

impl PortRequest {
    /// Adds it.
    #[expect(clippy::unnecessary_wraps, reason = "as the other requests")]
    pub(super) fn add(self, router: &Router) -> Result<Value, Refusal> {
        router.add_port(self.address);
        Ok(json!({"address": self.address}))
    }
}

/// Deletes an address that does not belong to an instance.
pub(super) fn remove_port(router: &Router, address: &str) -> Result<Value, Refusal> {
    let wrong = || Refusal::invalid(format!("{address:?} is not an IP address"));
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    match router.remove_port(address) {
        true => Ok(json!({"deleted": address})),
        false => Err(Refusal::missing(format!("no port has the address {address}"))),
    }
}
