//! What is true, whatever the program has been told.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use ccm_cloud::{ProviderId, RouteTarget};
use ccm_sim::{
    apiserver::ApiServer,
    cloud::{
        SimCloud,
        routes::{RouterSettings, SimRoute},
    },
};
use ipnet::IpNet;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::world::CLUSTER_CIDRS;

/// How long a change needs to be known to the program.
pub(crate) const KNOWN: Duration = Duration::from_secs(3);

/// How long a broken watch may need until all nodes are listed again.
const LISTED: Duration = Duration::from_secs(90);

/// A node, as far as routes depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrueNode {
    pub(crate) name: String,
    pub(crate) created: String,
    pub(crate) cidrs: Vec<IpNet>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) id: Option<String>,
    pub(crate) unavailable: Option<String>,
    /// The reason of that condition.
    pub(crate) reason: String,
    pub(crate) uid: String,
}

impl TrueNode {
    fn read(node: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let cidrs = list(&node["spec"]["podCIDRs"]);
        let addresses = list(&node["status"]["addresses"]);
        let conditions = list(&node["status"]["conditions"]);
        let unavailable = conditions.iter().find(|one| one["type"] == "NetworkUnavailable");
        Self {
            name: text(&node["metadata"]["name"]),
            created: text(&node["metadata"]["creationTimestamp"]),
            cidrs: cidrs.iter().filter_map(|one| one.as_str()?.parse().ok()).collect(),
            addresses: addresses
                .iter()
                .filter_map(|one| one["address"].as_str()?.parse().ok())
                .collect(),
            id: node["spec"]["providerID"].as_str().map(str::to_owned),
            unavailable: unavailable.map(|one| text(&one["status"])),
            reason: unavailable.map(|one| text(&one["reason"])).unwrap_or_default(),
            uid: text(&node["metadata"]["uid"]),
        }
    }

    /// Whether this is a target of the node.
    pub(crate) fn has(&self, target: &RouteTarget) -> bool {
        match target {
            RouteTarget::Node(name) => *name == self.name,
            RouteTarget::Instance(id) => self.id.as_deref() == Some(id.as_str()),
            RouteTarget::Address(address) => self.addresses.contains(address),
        }
    }

    /// Its targets, in all forms.
    pub(crate) fn targets(&self) -> Vec<RouteTarget> {
        let id =
            self.id.iter().filter_map(|id| ProviderId::parse(id).ok()).map(RouteTarget::Instance);
        let name = RouteTarget::Node(self.name.clone());
        id.chain(self.addresses.iter().copied().map(RouteTarget::Address)).chain([name]).collect()
    }

    /// Whether the cloud has what it needs for a route to this destination.
    fn is_ready(&self, destination: IpNet, settings: &RouterSettings) -> bool {
        let is_v4 = destination.addr().is_ipv4();
        let has_address = self.addresses.iter().any(|address| address.is_ipv4() == is_v4);
        (!settings.traits.target_ids || self.id.is_some())
            && (!settings.traits.target_addresses || has_address)
    }
}

/// The nodes that the API server has, the oldest first.
pub(crate) fn nodes(api: &ApiServer) -> Vec<TrueNode> {
    let mut nodes: Vec<TrueNode> = api.list("nodes").iter().map(TrueNode::read).collect();
    nodes.sort_by(|one, other| (&one.created, &one.name).cmp(&(&other.created, &other.name)));
    nodes
}

/// Whether a destination lies inside the cluster CIDRs.
pub(crate) fn is_inside(destination: IpNet) -> bool {
    CLUSTER_CIDRS.split(',').any(|cidr| cidr.parse::<IpNet>().unwrap().contains(&destination))
}

/// The routes that nodes need, with the names of their nodes; and the destinations of pod CIDRs
/// that get none.
pub(crate) fn wanted(
    nodes: &[TrueNode],
    settings: &RouterSettings,
) -> (BTreeMap<IpNet, String>, Vec<IpNet>) {
    let (mut wanted, mut disputed): (BTreeMap<IpNet, String>, Vec<IpNet>) = Default::default();
    for node in nodes {
        for cidr in &node.cidrs {
            let overlaps = |(other, name): (&IpNet, &String)| {
                (other.contains(cidr) || cidr.contains(other)) && *name != node.name
            };
            let is_ready = node.is_ready(*cidr, settings);
            if !is_inside(*cidr) || wanted.iter().any(overlaps) || !is_ready {
                disputed.push(*cidr);
            } else {
                wanted.insert(*cidr, node.name.clone());
            }
        }
    }
    (wanted, disputed)
}

/// What the world remembers. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Truth(Arc<Mutex<Memory>>);

#[derive(Default)]
pub(crate) struct Memory {
    /// The routes of others, which stay.
    pub(crate) foreign: Vec<SimRoute>,
    /// When the API server began to show fewer nodes than there are, or ceased to.
    pub(crate) lied: Option<Instant>,
    pub(crate) is_lying: bool,
    /// Whether the cloud says that all targets are gone, until then.
    pub(crate) denies_until: Option<Instant>,
    /// Since when a node has had a pod CIDR.
    pub(crate) wanted: BTreeMap<IpNet, (String, Instant)>,
    /// When something was last the target of a node; and whether that was marked for scale-down.
    pub(crate) targets: HashMap<RouteTarget, (Instant, bool)>,
    /// What the cloud has said twice, apart, to be gone, and not otherwise since.
    pub(crate) proven: HashSet<RouteTarget>,
    /// The targets of nodes at the last look.
    pub(crate) present: Vec<RouteTarget>,
    /// When others last changed the routes of a destination.
    pub(crate) touched: HashMap<IpNet, Instant>,
    /// When the cloud was last told to carry out writes late, or to hide some.
    pub(crate) late: Option<Instant>,
}

impl Truth {
    pub(crate) fn with<R>(&self, run: impl FnOnce(&mut Memory) -> R) -> R {
        run(&mut self.0.lock())
    }

    /// Whether what the program knows of the nodes may be wrong.
    pub(crate) fn may_be_lied_to(&self) -> bool {
        self.with(|memory| memory.is_lying || memory.lied.is_some_and(|at| at.elapsed() < LISTED))
    }

    /// Whether a process that began at this time has seen the target as a node's, for certain.
    pub(crate) fn was_seen(&self, target: &RouteTarget, begun: Instant) -> bool {
        self.with(|memory| {
            let lied = memory.lied.map_or(begun, |at| (at + LISTED).max(begun));
            let seen = memory.targets.get(target).map(|(at, _)| *at);
            !memory.is_lying && seen.is_some_and(|at| at > lied + KNOWN)
        })
    }

    /// The routes of others now: those whose target was proven to be gone may go.
    pub(crate) fn foreign(&self) -> Vec<SimRoute> {
        self.with(|memory| memory.foreign.clone())
    }

    /// Whether this is a route of others.
    pub(crate) fn is_foreign(&self, id: &str) -> bool {
        self.with(|memory| memory.foreign.iter().any(|route| route.id == id))
    }

    /// Takes over what the nodes are now.
    pub(crate) fn look(&self, api: &ApiServer, cloud: &SimCloud) {
        let now = Instant::now();
        let nodes = nodes(api);
        let (wanted, disputed) = wanted(&nodes, &cloud.router().settings());
        self.with(|memory| {
            let before = std::mem::take(&mut memory.wanted);
            let disputed = disputed.into_iter().filter(|cidr| is_inside(*cidr));
            for (cidr, name) in wanted.into_iter().chain(disputed.map(|cidr| (cidr, String::new())))
            {
                let known = before.get(&cidr).filter(|(node, _)| *node == name);
                let since = known.map_or(now, |(_, since)| *since);
                memory.wanted.entry(cidr).or_insert((name, since));
            }
            let present: Vec<RouteTarget> = nodes.iter().flat_map(TrueNode::targets).collect();
            // What was there at the last look was there until now.
            let before = std::mem::replace(&mut memory.present, present.clone());
            for target in present.into_iter().chain(before) {
                memory.targets.entry(target).or_insert((now, false)).0 = now;
            }
        });
    }
}
