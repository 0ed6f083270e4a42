//! The addresses that a node should show.

use ccm_cloud::{AddressKind, Instance, NodeAddress};
use ccm_objects::{Address, Node};

use super::{
    PROVIDED_NODE_IP,
    node_ip::{self, NodeIpError},
};

/// The whole list for `status.addresses`; `None` if the cloud names no address at all:
/// then the node keeps what it has.
///
/// An annotation that cannot be followed is an error even when the cloud names no
/// address, because a node whose IP was asked for must not start with another one.
pub fn desired(node: &Node, instance: &Instance) -> Result<Option<Vec<Address>>, NodeIpError> {
    let list = with_hostname(node, instance);
    if let Some(annotation) = node.annotation(PROVIDED_NODE_IP) {
        let wanted = node_ip::parse(annotation)?;
        return node_ip::select(&list, &wanted).map(Some);
    }
    Ok((!instance.addresses.is_empty()).then_some(list))
}

/// The cloud's list and, if it has no host name, kubelet's own at its end. Of several
/// that kubelet left, the first: one machine has one name.
///
/// The API server refuses a list with the same entry twice, so it is kept once.
fn with_hostname(node: &Node, instance: &Instance) -> Vec<Address> {
    let mut unique = Vec::new();
    NodeAddress::append_new(&mut unique, instance.addresses.iter().cloned());
    let entry = |own: &NodeAddress| Address::new(own.kind.as_str(), own.address.as_str());
    let mut list: Vec<Address> = unique.iter().map(entry).collect();
    let hostname = AddressKind::Hostname.as_str();
    if !list.iter().any(|entry| &*entry.kind == hostname) {
        list.extend(node.addresses.iter().find(|entry| &*entry.kind == hostname).cloned());
    }
    list
}

/// The first internal IP of a list: the one that pods and probes use for the node.
pub fn primary(list: &[Address]) -> Option<&str> {
    list.iter()
        .find(|entry| &*entry.kind == AddressKind::InternalIp.as_str())
        .map(|entry| &*entry.address)
}

#[cfg(test)]
mod tests;
