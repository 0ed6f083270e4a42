//! The routes that the nodes need: one for each pod CIDR.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use ccm_cloud::{IpFamily, ProviderId, RouteTarget, RouteTraits};
use ccm_controller::brake::approval::SetApproval;
use ccm_objects::Shared;
use ipnet::IpNet;

pub use super::{
    node_view::{LeftOut, NodeView},
    problem::{ASSIGN, Problem},
};
use super::{
    table::Table,
    targets::{Former, is_target},
    widths::{Usual, Widths},
};
pub use crate::networks::is_inside;
use crate::networks::network;

/// The routes to be, by destination, with the places of their nodes; and what is wrong with other
/// pod CIDRs, by the place of their node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The routes.
    pub routes: BTreeMap<IpNet, usize>,
    /// The problems.
    pub problems: BTreeMap<usize, Vec<Problem>>,
    /// The pod CIDRs with a problem: existing routes stay.
    pub disputed: BTreeSet<IpNet>,
}

/// The inputs that decide on the routes that nodes need, besides the nodes.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// `--cluster-cidr`.
    pub cluster_cidrs: &'a [IpNet],
    /// The traits of the provider.
    pub traits: &'a RouteTraits,
    /// How wide pod CIDRs may be.
    pub widths: &'a Widths,
    /// The pod CIDRs that a user has approved.
    pub approval: Option<&'a SetApproval>,
    /// The route table.
    pub table: &'a Table,
    /// Targets that nodes had while this process watched.
    pub former: &'a Former,
}

impl Terms<'_> {
    /// Returns true if there is a route to the pod CIDR that leads to its node, or led there before the node changed:
    /// it serves pods, whatever the pod CIDR is.
    fn stands(&self, cidr: IpNet, view: &NodeView) -> bool {
        let leads = |target: &RouteTarget| {
            let former = self.former.get(target);
            is_target(target, view)
                || former.is_some_and(|former| former.node.name == view.node.name)
        };
        self.table.to(cidr).iter().any(|route| route.target.as_ref().is_some_and(leads))
    }

    /// The problem of a new route to the pod CIDR of this node, although the cloud could make it.
    fn doubt(
        &self,
        cidr: IpNet,
        view: &NodeView,
        same: Option<&NodeView>,
        usual: &Usual,
    ) -> Option<Problem> {
        let same = same.zip(view.id.as_ref()).map(|(same, id)| Problem::SameId {
            id: id.clone(),
            node: Shared::clone(&same.node.name),
        });
        let doubt = same.or_else(|| self.widths.problem(&view.node, cidr, usual))?;
        (!self.stands(cidr, view)).then_some(doubt)
    }

    /// Returns true if a person has approved what is in doubt.
    fn approves(&self, doubt: &Problem, view: &NodeView) -> bool {
        let is_covered = |approval: &SetApproval| approval.covers(&view.node.labels);
        matches!(doubt, Problem::WiderThanMost { .. }) && self.approval.is_some_and(is_covered)
    }
}

/// The routes that these nodes need. Of two nodes with the same or overlapping pod CIDRs, the older one gets the
/// route. A pod CIDR that is in doubt takes nothing from the others.
pub fn wanted(nodes: &[NodeView], terms: &Terms<'_>) -> Wanted {
    let (mut wanted, mut taken, mut approved) = (Wanted::default(), Taken::default(), Vec::new());
    let order = oldest_first(nodes);
    let ids = first_of_each_id(nodes, &order);
    let usual = Usual::of(nodes, terms.cluster_cidrs);
    for place in order {
        let Some(view) = nodes.get(place) else { continue };
        if view.left_out.is_some() {
            continue;
        }
        let first = view.id.as_ref().and_then(|id| ids.get(id)).copied();
        let same = first.filter(|first| *first != place).and_then(|first| nodes.get(first));
        for text in &view.node.pod_cidrs {
            let accepted = accept(text, terms).and_then(|cidr| taken.check(cidr, place, nodes));
            let Ok(cidr) = accepted else {
                wanted.add(text, place, accepted);
                continue;
            };
            match terms.doubt(cidr, view, same, &usual) {
                Some(doubt) if terms.approves(&doubt, view) => approved.push((text, place, cidr)),
                Some(doubt) => wanted.add(text, place, Err(doubt)),
                None => {
                    taken.insert(cidr, place);
                    wanted.add(text, place, Ok(cidr));
                }
            }
        }
    }
    for (text, place, cidr) in approved {
        let checked = taken.check(cidr, place, nodes);
        if checked.is_ok() {
            taken.insert(cidr, place);
        }
        wanted.add(text, place, checked);
    }
    wanted
}

impl Wanted {
    fn add(&mut self, text: &str, place: usize, result: Result<IpNet, Problem>) {
        match result {
            Ok(cidr) => drop(self.routes.insert(cidr, place)),
            Err(problem) => {
                self.disputed.extend(network(text).map(|cidr| cidr.trunc()));
                self.problems.entry(place).or_default().push(problem);
            }
        }
    }
}

/// The node that has each provider ID: the oldest one that is initialised, or else the oldest one. node-ccm holds a new
/// node that has the ID of another machine, so that one takes nothing from a node that is initialised.
fn first_of_each_id<'a>(nodes: &'a [NodeView], order: &[usize]) -> HashMap<&'a ProviderId, usize> {
    let (done, new): (Vec<_>, Vec<_>) = order
        .iter()
        .filter_map(|place| Some((*place, nodes.get(*place)?)))
        .partition(|(_, view)| !view.node.is_uninitialised());
    let mut first = HashMap::new();
    for (place, view) in done.into_iter().chain(new) {
        if let Some(id) = &view.id {
            first.entry(id).or_insert(place);
        }
    }
    first
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

fn accept(text: &str, terms: &Terms<'_>) -> Result<IpNet, Problem> {
    let cidr = network(text).ok_or_else(|| Problem::Unreadable(text.into()))?.trunc();
    let family = IpFamily::of(cidr.addr());
    if !is_inside(cidr, terms.cluster_cidrs) {
        Err(Problem::Outside(cidr))
    } else if !terms.traits.families.contains(&family) {
        Err(Problem::Family(cidr))
    } else {
        Ok(cidr)
    }
}

/// The pod CIDRs that have their routes, with the places of their nodes.
#[derive(Default)]
struct Taken(BTreeMap<IpAddr, (IpNet, usize)>);

impl Taken {
    /// Checks that no node has a part of the pod CIDR.
    fn check(&self, cidr: IpNet, place: usize, nodes: &[NodeView]) -> Result<IpNet, Problem> {
        let before = self.0.range(..=cidr.network()).next_back();
        let after = self.0.range(cidr.network()..).next();
        let overlaps = |(_, (other, _)): &(&IpAddr, &(IpNet, usize))| {
            other.contains(&cidr) || cidr.contains(other)
        };
        match before.filter(overlaps).or_else(|| after.filter(overlaps)) {
            // A node may list a pod CIDR twice.
            Some((_, (other, by))) if *other != cidr || *by != place => {
                let node = nodes.get(*by).map(|view| Shared::clone(&view.node.name));
                Err(Problem::Overlaps { cidr, other: *other, node: node.unwrap_or_default() })
            }
            _ => Ok(cidr),
        }
    }

    fn insert(&mut self, cidr: IpNet, place: usize) {
        self.0.entry(cidr.network()).or_insert((cidr, place));
    }
}
