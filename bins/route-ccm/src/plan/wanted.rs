//! The routes that the nodes need: one for each pod CIDR.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

use ccm_cloud::{AddressKind, ClusterId, IpFamily, NodeAddress, ProviderId, RouteTraits};
use ccm_objects::{Address, Node, Shared};
use ipnet::IpNet;

use crate::ipam::network;

/// A node, with its provider ID in the cloud's spelling.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// The node.
    pub node: Arc<Node>,
    /// Its provider ID.
    pub id: Option<ProviderId>,
    /// Why it is left out, if it is: it gets no route and no condition, and a route to it stays.
    pub left_out: Option<LeftOut>,
}

/// Why a node is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// Its provider ID has another provider's scheme.
    AnotherProvider,
    /// It does not match `--node-selector`.
    NotSelected,
}

impl NodeView {
    /// Its addresses that are IP addresses of the cluster's network.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> {
        let is_internal = |one: &&Address| *one.kind == *AddressKind::InternalIp.as_str();
        self.node.addresses.iter().filter(is_internal).filter_map(Address::ip)
    }

    /// Its addresses, for the cloud.
    pub fn addresses(&self) -> Vec<NodeAddress> {
        let read = |address: &Address| {
            let text = address.ip().map(|ip| ip.to_string());
            let text = text.unwrap_or_else(|| address.address.to_string());
            Some(NodeAddress::new(AddressKind::parse(&address.kind)?, text))
        };
        self.node.addresses.iter().filter_map(read).collect()
    }

    /// What the cloud needs before the node can be the target of a route to this pod CIDR.
    pub fn lacks(&self, cidr: IpNet, traits: &RouteTraits) -> Option<Problem> {
        let family = IpFamily::of(cidr.addr());
        if traits.target_ids && self.id.is_none() {
            Some(Problem::NoProviderId)
        } else if traits.target_addresses && !self.ips().any(|ip| IpFamily::of(ip) == family) {
            Some(Problem::NoAddress(cidr))
        } else {
            None
        }
    }

    /// Its pod CIDRs that can be parsed, without host bits.
    pub fn pod_cidrs(&self) -> impl Iterator<Item = IpNet> {
        self.node.pod_cidrs.iter().filter_map(|text| Some(network(text)?.trunc()))
    }
}

/// Why a node does not get the route of a pod CIDR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It is no CIDR.
    Unreadable(Box<str>),
    /// It is not inside `--cluster-cidr`.
    Outside(IpNet),
    /// An older node has it, or a part of it.
    Overlaps {
        /// The pod CIDR.
        cidr: IpNet,
        /// That of the other node.
        other: IpNet,
        /// The other node.
        node: Shared,
    },
    /// The cloud has no routes of this family.
    Family(IpNet),
    /// The cloud needs the node's provider ID.
    NoProviderId,
    /// The cloud needs an address of the pod CIDR's family.
    NoAddress(IpNet),
    /// Its route is there, and was made under the UID of this cluster.
    Lent(ClusterId),
}

/// What helps, since pod CIDRs cannot be changed.
const AGAIN: &str = "delete this Node, so that it registers again and gets another pod CIDR";

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(text) => {
                write!(f, "spec.podCIDRs has {text:?}, which is no CIDR such as 10.244.1.0/24; {AGAIN}")
            }
            Self::Outside(cidr) => write!(
                f,
                "pod CIDR {cidr} is not inside --cluster-cidr, so it gets no route; extend --cluster-cidr, or recreate the node with another pod CIDR"
            ),
            Self::Overlaps { cidr, other, node } if cidr == other => {
                write!(
                    f,
                    "pod CIDR {cidr} is also that of node {node}, which is older and gets the route; {AGAIN}"
                )
            }
            Self::Overlaps { cidr, other, node } => {
                write!(
                    f,
                    "pod CIDR {cidr} overlaps {other} of node {node}, which is older and gets the route; {AGAIN}"
                )
            }
            Self::Family(cidr) => {
                let family = IpFamily::of(cidr.addr());
                write!(
                    f,
                    "the cloud has no {family} routes, so pod CIDR {cidr} gets none; use a cluster without {family} pod CIDRs"
                )
            }
            Self::NoProviderId => {
                f.write_str(
                    "the node has no provider ID yet, which its routes need; node-ccm sets spec.providerID",
                )
            }
            Self::Lent(ClusterId { name, uid }) => write!(
                f,
                "its route was made by cluster {name} (UID {uid}): it serves this node and stays, and nothing makes it again or deletes it; check --cluster-uid, or remove the route, so that this cluster makes its own"
            ),
            Self::NoAddress(cidr) => {
                let family = IpFamily::of(cidr.addr());
                write!(
                    f,
                    "the node has no InternalIP of family {family}, which the route of {cidr} needs; node-ccm sets the addresses that the cloud has"
                )
            }
        }
    }
}

/// The routes to be, by destination, with the places of their nodes; and what is wrong with other
/// pod CIDRs, by the place of their node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The routes.
    pub routes: BTreeMap<IpNet, usize>,
    /// The problems.
    pub problems: BTreeMap<usize, Vec<Problem>>,
    /// The pod CIDRs with a problem: what is there stays.
    pub disputed: BTreeSet<IpNet>,
}

/// The routes that these nodes need. Of two nodes with the same or overlapping pod CIDRs, the older one gets the
/// route.
pub fn wanted(nodes: &[NodeView], cluster_cidrs: &[IpNet], traits: &RouteTraits) -> Wanted {
    let mut wanted = Wanted::default();
    let mut taken: BTreeMap<IpAddr, (IpNet, usize)> = BTreeMap::new();
    for place in oldest_first(nodes) {
        let Some(view) = nodes.get(place).filter(|view| view.left_out.is_none()) else { continue };
        for text in &view.node.pod_cidrs {
            let result = accept(text, cluster_cidrs, traits)
                .and_then(|cidr| take(&mut taken, cidr, place, nodes));
            match result {
                Ok(cidr) => {
                    wanted.routes.insert(cidr, place);
                }
                Err(problem) => {
                    wanted.disputed.extend(network(text).map(|cidr| cidr.trunc()));
                    wanted.problems.entry(place).or_default().push(problem);
                }
            }
        }
    }
    wanted
}

fn oldest_first(nodes: &[NodeView]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_key(|place| {
        nodes.get(*place).map(|NodeView { node, .. }| {
            (node.created.is_none(), node.created, Shared::clone(&node.name))
        })
    });
    order
}

fn accept(text: &str, cluster_cidrs: &[IpNet], traits: &RouteTraits) -> Result<IpNet, Problem> {
    let cidr = network(text).ok_or_else(|| Problem::Unreadable(text.into()))?.trunc();
    let family = IpFamily::of(cidr.addr());
    if !is_inside(cidr, cluster_cidrs) {
        Err(Problem::Outside(cidr))
    } else if !traits.families.contains(&family) {
        Err(Problem::Family(cidr))
    } else {
        Ok(cidr)
    }
}

/// Whether the network lies inside one of the cluster CIDRs, or is one.
pub fn is_inside(cidr: IpNet, cluster_cidrs: &[IpNet]) -> bool {
    cluster_cidrs.iter().any(|cluster| cluster.contains(&cidr))
}

fn take(
    taken: &mut BTreeMap<IpAddr, (IpNet, usize)>,
    cidr: IpNet,
    place: usize,
    nodes: &[NodeView],
) -> Result<IpNet, Problem> {
    let before = taken.range(..=cidr.network()).next_back();
    let after = taken.range(cidr.network()..).next();
    let overlaps = |(_, (other, _)): &(&IpAddr, &(IpNet, usize))| {
        other.contains(&cidr) || cidr.contains(other)
    };
    match before.filter(overlaps).or_else(|| after.filter(overlaps)) {
        // A node may list a pod CIDR twice.
        Some((_, (other, by))) if *other == cidr && *by == place => Ok(cidr),
        Some((_, (other, by))) => {
            let node = nodes.get(*by).map(|view| Shared::clone(&view.node.name));
            Err(Problem::Overlaps { cidr, other: *other, node: node.unwrap_or_default() })
        }
        None => {
            taken.insert(cidr.network(), (cidr, place));
            Ok(cidr)
        }
    }
}
