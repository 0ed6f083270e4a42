//! A node as the plan sees it.

use std::{net::IpAddr, sync::Arc};

use ccm_cloud::{AddressKind, IpFamily, NodeAddress, ProviderId, RouteTraits};
use ccm_objects::{Address, Node};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::problem::Problem;
use crate::networks::network;

/// A node, with its provider ID in the cloud's spelling.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeView {
    /// The node.
    pub node: Arc<Node>,
    /// Its provider ID.
    pub id: Option<ProviderId>,
    /// The reason why it is excluded, if it is: it does not get a route or a condition, and a route
    /// to it stays.
    pub left_out: Option<LeftOut>,
}

/// The reason why a node is excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeftOut {
    /// Its provider ID has another provider's scheme, or cannot be read.
    AnotherProvider,
    /// It does not match `--node-selector`.
    NotSelected,
}

impl NodeView {
    /// Returns its addresses that are IP addresses of the cluster's network.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> {
        let is_internal = |one: &&Address| *one.kind == *AddressKind::InternalIp.as_ref();
        self.node.addresses.iter().filter(is_internal).filter_map(Address::ip)
    }

    /// Returns its addresses, for the cloud.
    pub fn addresses(&self) -> Vec<NodeAddress> {
        let read = |address: &Address| {
            let text = address.ip().map(|ip| ip.to_string());
            let text = text.unwrap_or_else(|| address.address.to_string());
            Some(NodeAddress::new(address.kind.parse().ok()?, text))
        };
        self.node.addresses.iter().filter_map(read).collect()
    }

    /// Returns the address that a cloud gives a route to this pod CIDR as its target, if its
    /// targets are addresses.
    pub fn address_for(&self, cidr: IpNet) -> Option<IpAddr> {
        let family = IpFamily::from_address(cidr.addr());
        self.ips().find(|ip| IpFamily::from_address(*ip) == family)
    }

    /// Returns the cloud's conditions for this node as the target of a route to this pod CIDR.
    pub fn lacks(&self, cidr: IpNet, traits: &RouteTraits) -> Option<Problem> {
        if traits.target_ids && self.id.is_none() {
            let unreadable = self.node.provider_id.clone().filter(|text| !text.is_empty());
            Some(unreadable.map_or(Problem::NoProviderId, Problem::UnreadableId))
        } else if traits.target_addresses && self.address_for(cidr).is_none() {
            Some(Problem::NoAddress(cidr))
        } else {
            None
        }
    }

    /// Returns its pod CIDRs that can be parsed, without host bits.
    pub fn pod_cidrs(&self) -> impl Iterator<Item = IpNet> {
        self.node.pod_cidrs.iter().filter_map(|text| Some(network(text)?.trunc()))
    }
}
