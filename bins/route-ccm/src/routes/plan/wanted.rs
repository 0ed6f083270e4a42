//! The routes that the nodes need: one for each pod CIDR.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ccm_cloud::{IpFamily, RouteTarget};
use ccm_controller::brake::approval::SetApproval;
use ccm_objects::Shared;
use ipnet::IpNet;

use super::{
    View,
    targets::{Targets, is_target, oldest_first},
    widths::Usual,
};
pub use super::{
    node_view::{LeftOut, NodeView},
    problem::{ASSIGN, LONGEST_ID, Problem},
};
pub use crate::networks::is_inside;
use crate::networks::network;

/// The wanted routes by destination, with the places of their nodes, and the problems of other pod
/// CIDRs, by the place of their node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The routes.
    pub routes: BTreeMap<IpNet, usize>,
    /// The problems.
    pub problems: BTreeMap<usize, Vec<Problem>>,
    /// The pod CIDRs with a problem: existing routes stay.
    pub disputed: BTreeSet<IpNet>,
}

impl View<'_> {
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

    /// Returns the problem of a new route to the pod CIDR of this node, although the cloud could
    /// make it.
    fn doubt(
        &self,
        cidr: IpNet,
        view: &NodeView,
        holder: impl Fn(&RouteTarget) -> Option<Shared>,
        usual: &Usual,
    ) -> Option<Problem> {
        let id = view.id.clone().map(RouteTarget::Instance);
        let address = view.address_for(cidr).filter(|_| self.traits.target_addresses);
        let targets = id.into_iter().chain(address.map(RouteTarget::Address));
        let mut same = targets.filter_map(|target| {
            let node = holder(&target)?;
            Some(Problem::SameTarget { target, node })
        });
        let doubt = same.next().or_else(|| self.too_wide(&view.node, cidr, usual))?;
        (!self.stands(cidr, view)).then_some(doubt)
    }

    /// Returns true if a person has approved what is in doubt.
    fn approves(&self, doubt: &Problem, view: &NodeView) -> bool {
        let is_covered = |approval: &SetApproval| approval.covers(&view.node.labels);
        matches!(doubt, Problem::WiderThanMost { .. })
            && self.parameters.approval.as_ref().is_some_and(is_covered)
    }
}

/// Returns the routes that these nodes need. Of two nodes with the same or overlapping pod CIDRs,
/// the older one gets the route. A pod CIDR that is in doubt takes nothing from the others.
pub(super) fn wanted(targets: &Targets<'_>, given: &View<'_>) -> Wanted {
    let nodes = given.nodes;
    let (mut wanted, mut taken, mut approved) = (Wanted::default(), Taken::default(), Vec::new());
    let usual = Usual::new(nodes, &given.parameters.cluster_cidrs);
    for (place, view) in oldest_first(nodes) {
        if view.left_out.is_some() {
            continue;
        }
        let holder = |target: &RouteTarget| {
            let holder = targets.place(target).filter(|holder| *holder != place)?;
            nodes.get(holder).map(|view| Shared::clone(&view.node.name))
        };
        for text in &view.node.pod_cidrs {
            let accepted = accept(text, given).and_then(|cidr| taken.check(cidr, place, nodes));
            let Ok(cidr) = accepted else {
                wanted.add(text, place, accepted);
                continue;
            };
            match given.doubt(cidr, view, holder, &usual) {
                Some(doubt) if given.approves(&doubt, view) => approved.push((text, place, cidr)),
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

fn accept(text: &str, given: &View<'_>) -> Result<IpNet, Problem> {
    let cidr = network(text).ok_or_else(|| Problem::Unreadable(text.into()))?.trunc();
    let family = IpFamily::from_address(cidr.addr());
    if !is_inside(cidr, &given.parameters.cluster_cidrs) {
        Err(Problem::Outside(cidr))
    } else if !given.traits.families.contains(&family) {
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
