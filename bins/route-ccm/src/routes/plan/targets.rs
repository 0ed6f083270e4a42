//! Maps targets to nodes.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::{ProviderId, RouteTarget};
use ccm_objects::{Node, Shared};
use serde::{Deserialize, Serialize};

use super::{
    node_view::{LeftOut, NodeView},
    pairs,
};

/// How long a target without a route is remembered, because a call to create one may be under way,
/// or be carried out late.
pub(super) const KEPT: Duration = Duration::from_mins(30);
/// The maximum number of targets that are remembered. A replica that does not lead does not see the
/// table, so it forgets only in this way. The cloud is asked about a forgotten target of a route.
const MOST: usize = 20_000;

/// Returns the targets of a node, in all forms in which a cloud may show them.
fn targets_of(view: &NodeView) -> impl Iterator<Item = RouteTarget> {
    let name = RouteTarget::Node(view.node.name.to_string());
    let id = view.id.clone().map(RouteTarget::Instance);
    [name].into_iter().chain(id).chain(view.ips().map(RouteTarget::Address))
}

/// The places of the present nodes by target, in all forms in which a cloud may show one. Of two
/// nodes with one target, the one with the better claim has it. This is made for each plan, so it
/// does not copy texts.
#[derive(Clone, Debug, Default)]
pub struct Targets<'a> {
    names: HashMap<&'a str, usize>,
    ids: HashMap<&'a ProviderId, usize>,
    ips: HashMap<IpAddr, usize>,
}

impl<'a> Targets<'a> {
    /// Returns the targets of these nodes.
    pub fn new(nodes: &'a [NodeView]) -> Self {
        let mut targets = Self::default();
        let mut order = oldest_first(nodes);
        order.sort_by_key(|(_, view)| right_to_target(view));
        for (place, view) in order {
            targets.names.entry(&view.node.name).or_insert(place);
            if let Some(id) = &view.id {
                targets.ids.entry(id).or_insert(place);
            }
            for ip in view.ips() {
                targets.ips.entry(ip).or_insert(place);
            }
        }
        targets
    }

    /// Returns the place of the node with this target.
    pub fn place(&self, target: &RouteTarget) -> Option<usize> {
        match target {
            RouteTarget::Node(name) => self.names.get(name.as_str()),
            RouteTarget::Instance(id) => self.ids.get(id),
            RouteTarget::Address(ip) => self.ips.get(ip),
            RouteTarget::Blackhole(_) => None,
        }
        .copied()
    }
}

/// Returns the nodes with their places, the oldest first.
pub(super) fn oldest_first(nodes: &[NodeView]) -> Vec<(usize, &NodeView)> {
    let mut order: Vec<_> = nodes.iter().enumerate().collect();
    order.sort_by_key(|(_, NodeView { node, .. })| {
        (node.created.is_none(), node.created, Shared::clone(&node.name))
    });
    order
}

/// Returns the right of a node to a target that another node names as well; the smallest key has
/// the best right. node-ccm holds a new node that has the ID of another machine, so the new node
/// takes nothing from a node that is initialised. A machine that is gone may have left its address
/// to another machine.
fn right_to_target(view: &NodeView) -> impl Ord + use<> {
    let NodeView { node, id, left_out } = view;
    let is_anothers = *left_out == Some(LeftOut::AnotherProvider);
    (is_anothers, node.is_uninitialised(), id.is_none(), !node.is_ready())
}

/// Returns true if this is a target of this node.
pub fn is_target(target: &RouteTarget, view: &NodeView) -> bool {
    match target {
        RouteTarget::Node(name) => **name == *view.node.name,
        RouteTarget::Instance(id) => view.id.as_ref() == Some(id),
        RouteTarget::Address(address) => view.ips().any(|ip| ip == *address),
        RouteTarget::Blackhole(_) => false,
    }
}

/// A node that is gone, or that had a target before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FormerNode {
    /// Its name, IDs, addresses and labels.
    pub node: Arc<Node>,
    /// True if it was marked for scale-down when it was last seen, so that the removal of its
    /// routes does not count.
    pub was_marked: bool,
}

/// Targets that belonged to nodes while this process watched.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Former {
    /// The targets, with the time since when no route has had the target, and the number of its
    /// node.
    #[serde(with = "pairs")]
    targets: HashMap<RouteTarget, (FormerNode, Option<At>, usize)>,
    /// How many nodes have existed.
    nodes: usize,
}

impl Former {
    /// Returns the node that had this target.
    pub fn get(&self, target: &RouteTarget) -> Option<&FormerNode> {
        self.targets.get(target).map(|(node, ..)| node)
    }

    /// Records that a node is gone.
    pub fn gone(&mut self, view: &NodeView, was_marked: bool) {
        self.remember(targets_of(view), view, was_marked);
    }

    /// Records that a node has changed.
    pub fn record_change(&mut self, before: &NodeView, after: &NodeView) {
        let lost = targets_of(before).filter(|target| !is_target(target, after));
        self.remember(lost, before, false);
    }

    fn remember(
        &mut self,
        targets: impl Iterator<Item = RouteTarget>,
        view: &NodeView,
        was_marked: bool,
    ) {
        self.nodes += 1;
        let node = Arc::new(Node {
            name: Shared::clone(&view.node.name),
            uid: view.node.uid.clone(),
            labels: view.node.labels.clone(),
            provider_id: view.node.provider_id.clone(),
            system_uuid: view.node.system_uuid.clone(),
            addresses: view.node.addresses.clone(),
            ..Node::default()
        });
        for target in targets {
            let former = FormerNode { node: Arc::clone(&node), was_marked };
            self.targets.insert(target, (former, None, self.nodes));
        }
        if self.targets.len() > MOST {
            let mut numbers: Vec<usize> = self.targets.values().map(|(.., node)| *node).collect();
            let (_, middle, _) = numbers.select_nth_unstable(MOST / 2);
            let middle = *middle;
            self.targets.retain(|_, (.., node)| *node > middle);
        }
    }

    /// Forgets what no route of the table has had as its target for [`KEPT`].
    pub fn retain(&mut self, now: At, in_table: &HashSet<&RouteTarget>) {
        self.targets.retain(|target, (_, absent, _)| {
            if in_table.contains(target) {
                *absent = None;
                return true;
            }
            now.since(*absent.get_or_insert(now)) < KEPT
        });
    }
}
