//! The addresses of a node.

use std::net::IpAddr;

use ccm_cloud::{AddressKind, Instance, NodeAddress};
use ccm_objects::{Address, Node, node_ips, parse_ip};

use super::{
    PROVIDED_NODE_IP,
    node_ip::{self, NodeIpError},
};

/// Returns the whole list for `status.addresses`; `None` if the cloud does not return a valid
/// address: then the node keeps its addresses.
///
/// An annotation that cannot be satisfied is an error even when the cloud returns no address,
/// because a node with a requested IP must not start with another one.
pub fn desired(node: &Node, instance: &Instance) -> Result<Option<Vec<Address>>, NodeIpError> {
    let list = with_hostname(node, instance);
    if let Some(annotation) = node.annotation(PROVIDED_NODE_IP) {
        let wanted = node_ips::parse(annotation).map_err(NodeIpError::Invalid)?;
        return node_ip::select(&list, &wanted).map(Some);
    }
    Ok(instance.addresses.iter().any(is_valid).then_some(list))
}

/// Returns the addresses of the instance that are left out because they are not valid IPs.
pub fn invalid(instance: &Instance) -> impl Iterator<Item = &NodeAddress> {
    instance.addresses.iter().filter(|address| !is_valid(address))
}

fn is_valid(entry: &NodeAddress) -> bool {
    let is_ip = matches!(entry.kind, AddressKind::InternalIp | AddressKind::ExternalIp);
    !is_ip || parse_ip(&entry.address).is_some()
}

/// Returns the cloud's list and, if it has no host name, kubelet's own at its end. If kubelet set
/// several, the first one is used: one machine has one name.
///
/// The API server rejects a list with duplicate entries, so duplicates are dropped. It accepts any
/// text as an IP, so an invalid one is also dropped, because pods and probes would use it.
fn with_hostname(node: &Node, instance: &Instance) -> Vec<Address> {
    let mut unique = Vec::new();
    NodeAddress::append_new(
        &mut unique,
        instance.addresses.iter().filter(|entry| is_valid(entry)).cloned(),
    );
    let entry = |own: &NodeAddress| Address::new(own.kind.as_ref(), own.address.as_str());
    let mut list: Vec<Address> = unique.iter().map(entry).collect();
    let hostname = AddressKind::Hostname.as_ref();
    if !list.iter().any(|entry| &*entry.kind == hostname) {
        list.extend(node.addresses.iter().find(|entry| &*entry.kind == hostname).cloned());
    }
    list
}

/// Returns why a node has no address. Addresses that the provider's settings exclude are known, but
/// not used.
pub fn missing(instance: &Instance) -> String {
    if let Some(withheld) = &instance.withheld {
        return format!("{withheld}; the kubelet does not report an IP address of the node");
    }
    let invalid = invalid(instance).map(|one| format!("{:?}", one.address));
    let invalid = invalid.collect::<Vec<_>>().join(", ");
    let what = "neither the cloud nor the kubelet knows an IP address of the node";
    if invalid.is_empty() {
        what.to_owned()
    } else {
        format!("{what}; the cloud returns {invalid}")
    }
}

/// Returns true if one of them is an IP address.
pub fn have_ip(list: &[Address]) -> bool {
    list.iter().any(|entry| entry.ip().is_some())
}

/// Returns the families of internal IPs that only the old list has.
pub fn lost_families(old: &[Address], new: &[Address]) -> Vec<&'static str> {
    let internal = |list: &[Address], v6: bool| {
        let mut internal = list.iter().filter(|entry| &*entry.kind == "InternalIP");
        internal.any(|entry| entry.ip().is_some_and(|ip| ip.is_ipv6() == v6))
    };
    let families = [(false, "IPv4"), (true, "IPv6")].into_iter();
    let lost = families.filter(|(v6, _)| internal(old, *v6) && !internal(new, *v6));
    lost.map(|(_, name)| name).collect()
}

/// Returns the internal IPs of the instance of a family that a list lacks: the kubelet's
/// `--node-ip` excludes them.
pub fn left_out(instance: &Instance, list: &[Address]) -> Vec<String> {
    let is_internal = |one: &&NodeAddress| one.kind == AddressKind::InternalIp;
    let has_family = |ip: IpAddr| {
        let mut internal = list.iter().filter(|entry| &*entry.kind == "InternalIP");
        internal.any(|entry| entry.ip().is_some_and(|own| own.is_ipv6() == ip.is_ipv6()))
    };
    let known = instance.addresses.iter().filter(is_internal);
    let left = known.filter(|one| parse_ip(&one.address).is_some_and(|ip| !has_family(ip)));
    left.map(|one| one.address.clone()).collect()
}

/// Returns the first internal IP of a list: the one that pods and probes use for the node.
pub fn primary(list: &[Address]) -> Option<&str> {
    list.iter()
        .find(|entry| &*entry.kind == AddressKind::InternalIp.as_ref())
        .map(|entry| &*entry.address)
}

#[cfg(test)]
mod tests;
