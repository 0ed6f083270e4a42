//! Finds networks and subnets that `cloud.conf` names but that do not exist.

use std::collections::BTreeSet;

use ccm_base::message::one_line;
use ccm_cloud::{Call, Capability, CloudError, Shortfall};
use ccm_openstack_client::{network::Neutron, text::MAX_VALUE};

use crate::config::{Config, LoadBalancerClass, Networking};

/// The kind of object that a value names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A network by its name or ID.
    Network,
    /// A network by its ID.
    NetworkId,
    /// A subnet by its ID.
    SubnetId,
}

/// A value of the settings that names something in the cloud.
#[derive(Debug, PartialEq, Eq)]
struct NamedObject {
    /// The section and the key.
    place: String,
    value: String,
    kind: Kind,
    capability: Capability,
    /// The consequence if the cloud has no object with this name.
    effect: String,
}

/// Returns the objects that the settings of used capabilities name but Neutron does not show.
pub async fn unresolved(
    config: &Config,
    neutron: &Neutron,
    uses: impl Fn(Capability) -> bool,
    call: Call,
) -> Result<Vec<Shortfall>, CloudError> {
    let names: Vec<NamedObject> =
        names(config).into_iter().filter(|it| uses(it.capability)).collect();
    let values = |kinds: &[Kind]| -> BTreeSet<String> {
        let of = names.iter().filter(|name| kinds.contains(&name.kind));
        of.map(|name| name.value.clone()).collect()
    };
    let (by_name, by_id) = (values(&[Kind::Network]), values(&[Kind::Network, Kind::NetworkId]));
    let subnets = neutron.subnets(&values(&[Kind::SubnetId]), call).await?;
    let found_by_name = neutron.network_names("name", &by_name, call).await?;
    let networks = neutron.network_names("id", &by_id, call).await?;
    let exists = |NamedObject { kind, value, .. }: &&NamedObject| match kind {
        Kind::Network => {
            networks.contains_key(value) || found_by_name.values().any(|name| name == value)
        }
        Kind::NetworkId => networks.contains_key(value),
        Kind::SubnetId => subnets.iter().any(|subnet| subnet.id == *value),
    };
    Ok(names.iter().filter(|name| !exists(name)).map(NamedObject::shortfall).collect())
}

/// Returns all values that name something.
fn names(config: &Config) -> Vec<NamedObject> {
    let mut all = Vec::new();
    let Networking { public_networks, internal_networks, .. } = &config.networking;
    for (key, list, address) in [
        ("public-network-name", public_networks, "ExternalIP"),
        ("internal-network-name", internal_networks, "InternalIP"),
    ] {
        all.extend(list.iter().map(|value| NamedObject {
            place: format!("[Networking] {key}"),
            value: value.clone(),
            kind: Kind::Network,
            capability: Capability::Instances,
            effect: format!("no address counts as {address} by it"),
        }));
    }
    all.extend(of_class("[LoadBalancer]", &config.networks));
    for (name, class) in &config.classes {
        let name = one_line(name, MAX_VALUE);
        all.extend(of_class(&format!("[LoadBalancerClass {name:?}]"), class));
    }
    all
}

fn of_class(section: &str, class: &LoadBalancerClass) -> Vec<NamedObject> {
    let named = [
        ("subnet-id", &class.subnet_id, Kind::SubnetId),
        ("network-id", &class.network_id, Kind::NetworkId),
        ("member-subnet-id", &class.member_subnet_id, Kind::SubnetId),
        ("floating-network-id", &class.floating_network_id, Kind::NetworkId),
        ("floating-subnet-id", &class.floating_subnet_id, Kind::SubnetId),
    ];
    let named = named.into_iter().filter_map(|(key, value, kind)| {
        Some(NamedObject {
            place: format!("{section} {key}"),
            value: value.clone()?,
            kind,
            capability: Capability::LoadBalancers,
            effect: match key.starts_with("floating") {
                true => "the cloud will refuse new load balancers with a floating IP".to_owned(),
                false => "the cloud will refuse new load balancers".to_owned(),
            },
        })
    });
    named.collect()
}

impl NamedObject {
    fn shortfall(&self) -> Shortfall {
        let Self { place, value, kind, capability, effect } = self;
        let what = match kind {
            Kind::Network => "network of this name or ID",
            Kind::NetworkId => "network of this ID",
            Kind::SubnetId => "subnet of this ID",
        };
        let value = one_line(value, MAX_VALUE);
        let text =
            format!("{place} = {value:?}: Neutron shows this project no {what}, so {effect}");
        Shortfall { capability: *capability, text }
    }
}

#[cfg(test)]
mod tests;
