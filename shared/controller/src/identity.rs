//! Compares a node with an instance, apart from the provider ID, which a kubelet may write
//! itself. Pure.

use std::{cmp::Reverse, net::IpAddr};

use ccm_cloud::{AddressKind, Instance};
use ccm_objects::{Address, Node, node_ips, node_keys::PROVIDED_NODE_IP, parse_ip};

/// How far a node agrees with an instance, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Agreement {
    /// Neither its name nor its system UUID nor an address is the instance's.
    Nothing,
    /// The cloud and the kubelet have given nothing that can be compared.
    Unknown,
    /// Its system UUID, an address or a host name in its status. A kubelet can write all of these.
    Status,
    /// Its name up to the first dot. The API server does not let a kubelet choose its node's name.
    FirstLabel,
    /// Its whole name.
    Name,
}

impl Agreement {
    /// Returns how far this node agrees with this instance.
    pub fn between(node: &Node, instance: &Instance) -> Self {
        let names = || names(instance);
        if names().any(|name| is_same_name(&node.name, name)) || has_ip_as_name(node, instance) {
            return Self::Name;
        }
        if names().any(|name| is_same_host(&node.name, name)) {
            return Self::FirstLabel;
        }
        let own_names = node.addresses.iter().filter(|one| one.ip().is_none());
        if is_confirmed(node, instance)
            || own_names.into_iter().any(|own| names().any(|name| is_same_host(&own.address, name)))
        {
            return Self::Status;
        }
        let both_have_ips = ips_of(node).next().is_some() && ips(instance).next().is_some();
        // A cloud without names may use the ID as the name.
        let is_name = |name| own_ids(instance).all(|id| id != name);
        if both_have_ips || names().any(is_name) { Self::Nothing } else { Self::Unknown }
    }

    /// Returns true if the name of the node is the instance's.
    fn is_by_name(self) -> bool {
        self >= Self::FirstLabel
    }
}

/// Returns true if more than a name says that the instance is the node's: they have an IP address in
/// common, or the node's system UUID is the instance's own part of its ID.
pub fn is_confirmed(node: &Node, instance: &Instance) -> bool {
    let is_id = |uuid: &str| own_ids(instance).any(|id| id.eq_ignore_ascii_case(uuid));
    ips_of(node).any(|own| ips(instance).any(|ip| ip == own))
        || node.system_uuid.as_deref().is_some_and(is_id)
}

/// Returns true if `other` has a better claim to the instance than `node`, when both have its
/// provider ID. The node whose name agrees better with the instance has the better claim. Otherwise
/// an initialised node comes before a new one, then a node that agrees in something, then the older
/// one. Without an instance only the nodes are compared.
pub fn has_better_right(other: &Node, node: &Node, instance: Option<&Instance>) -> bool {
    let right = |node: &Node| {
        let agreement = instance.map_or(Agreement::Unknown, |one| Agreement::between(node, one));
        let name = agreement.is_by_name().then_some(agreement);
        let age = node.created.map(Reverse);
        let tie = Reverse((node.uid.clone(), node.name.clone()));
        (name, !node.is_uninitialised(), agreement > Agreement::Nothing, age, tie)
    };
    right(other) > right(node)
}

/// Returns the names of the instance.
fn names(instance: &Instance) -> impl Iterator<Item = &str> {
    let is_name = |kind| {
        matches!(kind, AddressKind::Hostname | AddressKind::InternalDns | AddressKind::ExternalDns)
    };
    let hosts = instance.addresses.iter().filter(move |one| is_name(one.kind));
    let hosts = hosts.map(|one| one.address.as_str());
    std::iter::once(&*instance.name).chain(hosts).filter(|name| !name.is_empty())
}

/// Returns the cloud's own parts of the instance's IDs.
fn own_ids(instance: &Instance) -> impl Iterator<Item = &str> {
    let ids = std::iter::once(&instance.provider_id).chain(&instance.other_ids);
    ids.filter_map(|id| id.as_str().rsplit(['/', ':']).next()).filter(|id| !id.is_empty())
}

fn ips(instance: &Instance) -> impl Iterator<Item = IpAddr> {
    instance.addresses.iter().filter_map(|one| parse_ip(&one.address))
}

/// Returns the IP addresses of a node: from its status, and from the flags of its kubelet.
fn ips_of(node: &Node) -> impl Iterator<Item = IpAddr> {
    let provided = node.annotation(PROVIDED_NODE_IP).and_then(|text| node_ips::parse(text).ok());
    let status = node.addresses.iter().filter_map(Address::ip);
    status
        .chain(provided.into_iter().flatten())
        .filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

/// Returns true if the node's name is an IP address of the instance, as some clouds name their
/// nodes.
fn has_ip_as_name(node: &Node, instance: &Instance) -> bool {
    parse_ip(&node.name).is_some_and(|own| ips(instance).any(|ip| ip == own))
}

fn is_same_name(one: &str, other: &str) -> bool {
    one.trim_end_matches('.').eq_ignore_ascii_case(other.trim_end_matches('.'))
}

/// Returns true if both names are names of the same host. Either of them may have a domain. An IP
/// address does not have labels.
fn is_same_host(one: &str, other: &str) -> bool {
    let label = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_name = |name: &str| !name.is_empty() && parse_ip(name).is_none();
    is_name(one) && is_name(other) && label(one) == label(other)
}

#[cfg(test)]
mod tests;
