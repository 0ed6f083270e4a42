//! Requests that change the cloud, as JSON.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use ccm_cloud::{AddressKind, NodeAddress, PowerState};
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Refusal, contents,
    fields::{duration, set},
    routes::RouterRequest,
};
use crate::cloud::{SimCloud, SimInstance};

/// An instance to add.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct InstanceRequest {
    name: String,
    id: Option<String>,
    #[serde(default)]
    addresses: Vec<IpAddr>,
    #[serde(default)]
    external_addresses: Vec<IpAddr>,
    zone: Option<String>,
    region: Option<String>,
    #[serde(rename = "type")]
    instance_type: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    power: Option<PowerState>,
    #[serde(default)]
    pod_cidrs: Vec<IpNet>,
}

impl InstanceRequest {
    /// Adds it. Without an ID, the name is the ID.
    pub(super) fn add(self, cloud: &SimCloud) -> Result<Value, Refusal> {
        let id = self.id.unwrap_or_else(|| self.name.clone());
        if self.name.is_empty() || id.is_empty() || id.contains('/') {
            return Err(Refusal::invalid("name and id may not be empty, and id has no slash"));
        }
        let mut instance = SimInstance::new(id, self.name);
        let of_kind = |kind, addresses: Vec<IpAddr>| {
            let each = addresses.into_iter();
            each.map(move |address| NodeAddress::new(kind, address.to_string()))
        };
        instance.addresses = of_kind(AddressKind::InternalIp, self.addresses)
            .chain(of_kind(AddressKind::ExternalIp, self.external_addresses))
            .chain([NodeAddress::new(AddressKind::Hostname, instance.name.clone())])
            .collect();
        (instance.zone, instance.region) = (self.zone, self.region);
        (instance.instance_type, instance.labels) = (self.instance_type, self.labels);
        instance.power = self.power.unwrap_or(PowerState::Running);
        instance.pod_cidrs = self.pod_cidrs;
        let shown = instance.describe();
        cloud.add(instance);
        Ok(json!(shown))
    }
}

/// A change of the behaviour of load balancers and router.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SettingsRequest {
    identity: Option<String>,
    #[serde(default, deserialize_with = "duration")]
    create: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    configure: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    members: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    delete: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    check_after: Option<Duration>,
    fences: Option<bool>,
    nested: Option<bool>,
    hostnames: Option<bool>,
    shows_empty: Option<bool>,
    routes: Option<RouterRequest>,
}

impl SettingsRequest {
    /// Changes the given settings, and returns all settings.
    pub(super) fn apply(self, cloud: &SimCloud) -> Result<Value, Refusal> {
        if let Some(identity) = &self.identity {
            cloud.set_identity(Some(&**identity).filter(|text| !text.is_empty()));
        }
        if let Some(routes) = self.routes {
            routes.apply(cloud.router())?;
        }
        cloud.balancers().configure(|settings| {
            set(&mut settings.times.create, self.create);
            set(&mut settings.times.configure, self.configure);
            set(&mut settings.times.members, self.members);
            set(&mut settings.times.delete, self.delete);
            set(&mut settings.check_after, self.check_after);
            set(&mut settings.fences, self.fences);
            set(&mut settings.nested, self.nested);
            set(&mut settings.hostnames, self.hostnames);
            set(&mut settings.shows_empty, self.shows_empty);
        });
        Ok(contents::settings(cloud))
    }
}
