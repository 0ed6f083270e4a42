//! The true state of nodes and routes, which the machine may not know.

use std::sync::LazyLock;

use super::{router::Entry, *};

/// The routes that nodes need, and the destinations of pod CIDRs that do not get routes.
pub(super) struct Truth {
    pub(super) wanted: BTreeMap<IpNet, Arc<Node>>,
    pub(super) disputed: BTreeSet<IpNet>,
}

impl Truth {
    /// Returns true if an existing route to this destination serves a node, or may do so.
    pub(super) fn needs(&self, destination: IpNet) -> bool {
        let is_disputed = self.disputed.contains(&destination) && is_inside(destination);
        is_disputed || self.wanted.contains_key(&destination)
    }

    /// Returns true if the node gets a route to this pod CIDR, and has it.
    pub(super) fn is_served(&self, router: &Router, node: &Node, cidr: IpNet) -> bool {
        self.wanted.get(&cidr).is_some_and(|wanted| wanted.uid == node.uid)
            && has_route(router, node, cidr)
    }
}

impl World {
    /// Returns the routes that nodes need. Of two nodes with one pod CIDR the older one gets the
    /// route.
    pub(super) fn truth(&self) -> Truth {
        let mut nodes: Vec<&Arc<Node>> = self.nodes.values().collect();
        nodes.sort_by(|one, other| (one.created, &one.name).cmp(&(other.created, &other.name)));
        let mut truth = Truth { wanted: BTreeMap::new(), disputed: BTreeSet::new() };
        for node in nodes.into_iter().filter(|node| !is_left_out(node)) {
            for cidr in pod_cidrs(node) {
                let overlaps = |(other, by): (&IpNet, &Arc<Node>)| {
                    (other.contains(&cidr) || cidr.contains(other)) && by.uid != node.uid
                };
                let is_taken = truth.wanted.iter().any(overlaps);
                if !is_inside(cidr) || is_taken || !self.is_ready(node, cidr) {
                    truth.disputed.insert(cidr);
                } else {
                    truth.wanted.insert(cidr, Arc::clone(node));
                }
            }
        }
        truth
    }

    /// Returns true if the cloud has what it needs for a route to this destination.
    fn is_ready(&self, node: &Node, destination: IpNet) -> bool {
        let is_v4 = destination.addr().is_ipv4();
        let has_address = ips(node).any(|ip| ip.is_ipv4() == is_v4);
        (!self.router.traits.target_ids || node.provider_id.is_some())
            && (!self.router.traits.target_addresses || has_address)
    }

    /// Returns true if a route belongs to others. So does a route that a former leader has left to a target that exists
    /// and is not a node, if the cloud does not record owners: nothing shows that it was ours.
    pub(super) fn is_of_others(&self, entry: &Entry) -> bool {
        let (owner, target) = (&entry.route.owner, entry.route.target.as_ref());
        let Some(target) = target.filter(|_| !entry.is_foreign) else {
            return entry.is_foreign || owner.is_none();
        };
        owner.is_none() && self.router.exists(target) && !self.is_confirmed(target)
    }

    /// Returns true if the process has seen that a node had the target, and the cloud says so of its instance.
    fn is_confirmed(&self, target: &RouteTarget) -> bool {
        let Some(node) = self.known.get(target) else { return false };
        match target {
            RouteTarget::Address(ip) => {
                let machine = self.router.machine_of(node).ok().flatten();
                machine.is_some_and(|(_, computer)| computer.ips.contains(ip))
            }
            _ => true,
        }
    }
}

/// Returns true if a destination lies inside the cluster CIDRs.
pub(super) fn is_inside(destination: IpNet) -> bool {
    static NETWORKS: LazyLock<Vec<IpNet>> =
        LazyLock::new(|| CLUSTER_CIDRS.iter().filter_map(|one| one.parse().ok()).collect());
    NETWORKS.iter().any(|cidr| cidr.contains(&destination))
}

pub(super) fn pod_cidrs(node: &Node) -> impl Iterator<Item = IpNet> {
    node.pod_cidrs.iter().filter_map(|one| one.parse().ok())
}

pub(super) fn ips(node: &Node) -> impl Iterator<Item = std::net::IpAddr> {
    node.addresses.iter().filter_map(ccm_objects::Address::ip)
}

/// Returns true if this is a target of the node.
pub(super) fn is_of(target: &RouteTarget, node: &Node) -> bool {
    match target {
        RouteTarget::Node(name) => **name == *node.name,
        RouteTarget::Instance(id) => node.provider_id.as_deref() == Some(id.as_str()),
        RouteTarget::Address(address) => ips(node).any(|ip| ip == *address),
        RouteTarget::Blackhole(_) => false,
    }
}

/// Returns true if the label of the node leaves it out.
pub(super) fn is_left_out(node: &Node) -> bool {
    node.labels.get(nodes::EDGE).is_some()
}

/// Returns true if a working route leads to the node.
pub(super) fn has_route(router: &Router, node: &Node, cidr: IpNet) -> bool {
    let leads = |one: &Entry| one.route.target.as_ref().is_some_and(|target| is_of(target, node));
    router.to(cidr).iter().any(|one| one.route.defect.is_none() && leads(one))
}
