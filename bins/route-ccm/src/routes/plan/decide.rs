//! One decision per destination.

mod losses;
mod title;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use ccm_base::At;
use ccm_cloud::{Owner, Route, RouteChange, RouteTarget, WantedRoute};
use ccm_objects::{Labels, Node, Shared};
use ipnet::IpNet;

pub use self::title::Title;

use self::{
    losses::Loss,
    title::{claimed, foreign, unknown},
};
use super::{
    Held, Lack, NodeRoutes, Plan, Planned, Planner, View,
    cases::Finding,
    claims::{Claim, Word},
    failures::Failure,
    target_of,
    targets::{FormerNode, Targets, is_target},
    wanted::{LeftOut, NodeView, Problem, is_inside},
};

/// The owner of a route.
enum Whose {
    /// This cluster's: its target is the node at this place.
    Node(usize),
    /// This cluster's, but its target is not a node any more.
    Orphan(Orphan),
    /// It is inside the cluster CIDRs, and only the statement of this node makes it ours.
    Claimed(Shared),
    /// It is inside the cluster CIDRs, and its target is not known.
    Unknown,
    /// Another owner's.
    Foreign,
}

/// A route of this cluster whose target is not a node, or is a node that does not need it.
#[derive(Default)]
struct Orphan {
    why: String,
    /// The node that has or had the target.
    node: Option<Shared>,
    was_marked: bool,
    labels: Labels,
    /// The target, if it does not belong to a node: the cloud may prove that it is gone.
    target: Option<RouteTarget>,
    /// The reason why the node that has the target is excluded, if it is.
    left_out: Option<LeftOut>,
}

/// Decides about destinations one by one.
pub(super) struct Decider<'a> {
    now: At,
    view: &'a View<'a>,
    targets: &'a Targets<'a>,
    planner: &'a mut Planner,
    room: Option<u32>,
    sendable: usize,
    plan: Plan,
    losses: Vec<Loss>,
    /// The counted losses that the brake lets pass.
    passed: BTreeSet<IpNet>,
    lacks: HashMap<usize, NodeRoutes>,
    unknown: BTreeSet<RouteTarget>,
    /// The targets that only the nodes themselves report and that the cloud should be asked about,
    /// by the UIDs of the nodes.
    claims: BTreeMap<Box<str>, Claim>,
    /// True if the last change of the cluster CIDRs included a route that no node needs.
    is_in_doubt: bool,
    /// The routes that are as wanted.
    right: Vec<&'a Route>,
}

impl<'a> Decider<'a> {
    pub(super) fn new(
        now: At,
        view: &'a View<'a>,
        targets: &'a Targets<'a>,
        planner: &'a mut Planner,
    ) -> Self {
        Self {
            now,
            view,
            targets,
            planner,
            room: view.table.room,
            sendable: view.sendable,
            plan: Plan::default(),
            losses: Vec::new(),
            passed: BTreeSet::new(),
            lacks: HashMap::new(),
            unknown: BTreeSet::new(),
            claims: BTreeMap::new(),
            is_in_doubt: false,
            right: Vec::new(),
        }
    }

    /// Decides about a destination that is the pod CIDR of the node at this place.
    pub(super) fn wanted(&mut self, destination: IpNet, place: usize) {
        let Some(node) = self.view.nodes.get(place) else { return };
        let (mut right, mut others, mut obstacle, mut lent) = (Vec::new(), Vec::new(), None, None);
        for route in self.view.table.to(destination) {
            let is_right = route.target.as_ref().is_some_and(|target| is_target(target, node));
            if is_right && !self.is_theirs(route) {
                // It serves the node, whoever has made it.
                self.plan.counts.ours += 1;
                self.word(route, &node.node, node.left_out);
                right.push(route);
                continue;
            }
            match self.whose(route) {
                Whose::Node(other) => match self.claims_alone(route, other) {
                    Some(node) => obstacle = Some(claimed(route, &node)),
                    None => others.push((route, None)),
                },
                Whose::Orphan(orphan) => others.push((route, Some(orphan))),
                Whose::Claimed(node) => obstacle = Some(claimed(route, &node)),
                Whose::Unknown => obstacle = Some(self.unknown_target(route)),
                Whose::Foreign if is_right && route.defect.is_none() => lent = Some(route),
                Whose::Foreign => obstacle = Some(foreign(route)),
            }
        }
        if self.planner.in_flight.contains(destination) {
            return self.changes(destination, place, &right);
        }
        let best = right.iter().position(|route| route.defect.is_none()).unwrap_or(0);
        if let Some(found) = right.get(best) {
            self.there(place, found);
            let second = right.iter().enumerate().find(|(other, _)| *other != best);
            let surplus = second.map(|(_, route)| (*route, "the same route exists twice"));
            let old = || {
                others
                    .first()
                    .map(|(route, _)| (*route, "the destination has the right target as well"))
            };
            if found.defect.is_none()
                && let Some((route, why)) = surplus.or_else(old)
            {
                self.push(RouteChange::Delete(Box::new(route.clone())), None, why.to_owned());
            }
            return;
        }
        if let Some(obstacle) = obstacle {
            if obstacle.has_failed {
                self.leave(&node.node.name, others);
            }
            return self.lack(destination, place, obstacle);
        }
        if let Some(route) = lent {
            return self.lent(destination, node, route);
        }
        if let Some(problem) = node.lacks(destination, self.view.traits) {
            return self.lack(destination, place, Lack::of_node(&problem));
        }
        self.make(destination, place, others);
    }

    /// Records that a change of this destination is under way. An existing route serves the node,
    /// unless the change removes it: the change may have been sent before the node came. A route
    /// that carries no traffic is being repaired.
    fn changes(&mut self, destination: IpNet, place: usize, right: &[&Route]) {
        let in_flight = &self.planner.in_flight;
        if right.iter().any(|route| route.defect.is_none() && !in_flight.takes(route)) {
            return;
        }
        let defect = right.iter().find_map(|route| route.defect.clone());
        let lack = defect.map_or_else(|| self.waits(destination, "is being made"), Lack::pending);
        self.lack(destination, place, lack);
    }

    /// Records that the route waits for something normal. If a call failed before, that failure is
    /// shown instead.
    fn waits(&self, destination: IpNet, how: &str) -> Lack {
        let failure = self.planner.failures.get(destination).map(Failure::lack);
        failure.unwrap_or_else(|| Lack::pending(format!("the route of {destination} {how}")))
    }

    /// Records that the route was made under another cluster's UID and serves the node, so no second
    /// route is made.
    fn lent(&mut self, cidr: IpNet, node: &NodeView, route: &Route) {
        let Some(owner) = &route.owner else { return };
        self.plan.counts.foreign -= 1;
        self.plan.counts.lent += 1;
        let problem = Problem::Lent { cidr, cluster: owner.cluster.clone() };
        self.plan.problems.push((Shared::clone(&node.node.name), problem));
    }

    /// Records that a foreign route keeps a node from its own. Our own route beside it is deleted
    /// if its target was another node's that is gone, since another machine may get that address.
    fn leave(&mut self, name: &Shared, others: Vec<(&Route, Option<Orphan>)>) {
        let gone = others.into_iter().find_map(|(route, orphan)| {
            Some((route, orphan.filter(|orphan| orphan.node.as_ref() != Some(name))?))
        });
        if let Some((route, orphan)) = gone {
            self.delete(route, orphan);
        }
    }

    /// Returns true if only the last change of the cluster CIDRs makes this route ours.
    fn is_newly_inside(&self, route: &Route) -> bool {
        let before = &self.planner.networks;
        route.owner.is_none() && !before.is_empty() && !is_inside(route.destination.trunc(), before)
    }

    /// Makes the route of a node.
    fn make(&mut self, destination: IpNet, place: usize, others: Vec<(&Route, Option<Orphan>)>) {
        let Some(node) = self.view.nodes.get(place) else { return };
        if self.sendable == 0 {
            let waits = self.waits(destination, "waits for other nodes' routes");
            return self.lack(destination, place, waits);
        }
        let new = Arc::new(self.route(destination, node));
        let name = Shared::clone(&node.node.name);
        let pending = format!("the route of {destination} is being made");
        let Some((old, orphan)) =
            others.into_iter().next().filter(|_| !self.view.traits.several_targets)
        else {
            let why = format!("pod CIDR of node {name}");
            let held = self.push(RouteChange::Create(new), Some(name), why);
            return self.lack(destination, place, held.unwrap_or(Lack::pending(pending)));
        };
        let target = target_of(old);
        let why = format!("pod CIDR of node {name}; its target was {target}");
        let change = RouteChange::Replace { old: Box::new(old.clone()), new };
        // A node that moves to another address is as suspicious as a node that disappears.
        let moves = orphan.filter(|orphan| orphan.node.as_ref() == Some(&name));
        match moves {
            Some(orphan) => {
                let planned = Planned { change, node: Some(name), why, held: None };
                self.losses.push(Loss { planned, place: Some(place), orphan, waits: None });
                self.lack(destination, place, Lack::pending(pending));
            }
            None => {
                let held = self.push(change, Some(name), why);
                self.lack(destination, place, held.unwrap_or(Lack::pending(pending)));
            }
        }
    }

    /// Decides about a destination that no node has.
    pub(super) fn unwanted(&mut self, destination: IpNet) {
        let is_in_flight = self.planner.in_flight.contains(destination);
        let mut loss = None;
        for route in self.view.table.to(destination) {
            let orphan = match self.whose(route) {
                Whose::Node(place) => {
                    let Some(NodeView { node, left_out, .. }) = self.view.nodes.get(place) else {
                        continue;
                    };
                    let (name, labels) = (Shared::clone(&node.name), node.labels.clone());
                    let why = match left_out {
                        None => format!("node {name} has no such pod CIDR"),
                        Some(_) => format!("node {name} is excluded"),
                    };
                    let left_out = *left_out;
                    Orphan { why, node: Some(name), labels, left_out, ..Orphan::default() }
                }
                Whose::Orphan(orphan) => orphan,
                Whose::Claimed(_) => {
                    self.is_in_doubt |= self.is_newly_inside(route);
                    continue;
                }
                Whose::Unknown => {
                    self.is_in_doubt |= self.is_newly_inside(route);
                    self.unknown_target(route);
                    continue;
                }
                Whose::Foreign => continue,
            };
            self.is_in_doubt |= self.is_newly_inside(route);
            // Only one change is made per destination.
            loss.get_or_insert((route, orphan));
        }
        if let Some((route, orphan)) = loss.filter(|_| !is_in_flight) {
            self.delete(route, orphan);
        }
    }

    /// Decides about a destination that is a pod CIDR with a problem: existing routes stay, and are
    /// counted.
    pub(super) fn disputed(&mut self, destination: IpNet) {
        for route in self.view.table.to(destination) {
            self.whose(route);
        }
    }

    /// Records that the node's route exists.
    fn there(&mut self, place: usize, route: &'a Route) {
        if let Some(defect) = &route.defect {
            self.plan.counts.defective += 1;
            // Some clouds need some time for a route.
            self.lack(route.destination.trunc(), place, Lack::pending(defect.clone()));
            if let Some(node) = self.view.nodes.get(place) {
                let change =
                    RouteChange::Create(Arc::new(self.route(route.destination.trunc(), node)));
                let name = Shared::clone(&node.node.name);
                self.push(change, Some(name), format!("it does not carry traffic: {defect}"));
            }
        } else {
            self.planner.failures.forget_pending(route.destination.trunc());
            self.right.push(route);
        }
    }

    fn route(&self, destination: IpNet, view: &NodeView) -> WantedRoute {
        let node = &view.node;
        WantedRoute {
            owner: Owner {
                cluster: self.view.cluster.clone(),
                uid: node.uid.to_string(),
                namespace: String::new(),
                name: node.name.to_string(),
            },
            destination,
            node: ccm_cloud::NodeIdentity {
                name: node.name.to_string(),
                provider_id: view.id.as_ref().map(ToString::to_string),
                system_uuid: node.system_uuid.as_deref().map(str::to_owned),
                uid: Some(node.uid.to_string()),
                ..ccm_cloud::NodeIdentity::default()
            },
            addresses: view.addresses(),
        }
    }

    /// Plans a change that needs no budget. Returns the state of its node if it is held.
    fn push(&mut self, change: RouteChange, node: Option<Shared>, why: String) -> Option<Lack> {
        let destination = change.destination();
        let takes_room = matches!(change, RouteChange::Create(_))
            && self.view.table.to(destination).iter().all(|route| route.defect.is_none());
        let (held, state) = match self.planner.failures.get(destination) {
            Some(failure) if !failure.retry.is_due(self.now) => {
                self.plan.again(failure.retry.at);
                (Some(Held::Retry(failure.clone())), Some(failure.lack()))
            }
            failure => {
                let state = failure.map(Failure::lack);
                match &mut self.room {
                    Some(0) if takes_room => {
                        let why = "the route table has no room for another route".to_owned();
                        (Some(Held::NoRoom), Some(Lack::failed(why)))
                    }
                    Some(room) if takes_room => {
                        *room -= 1;
                        (None, state)
                    }
                    _ => (None, state),
                }
            }
        };
        if held.is_none() && node.is_some() {
            self.sendable = self.sendable.saturating_sub(1);
        }
        self.plan.changes.push(Planned { change, node, why, held });
        state
    }

    fn lack(&mut self, destination: IpNet, place: usize, lack: Lack) {
        self.lacks.entry(place).or_default().lack(destination, lack);
    }

    /// Asks about the target of a route. Returns what it means for a node that needs the
    /// destination.
    fn unknown_target(&mut self, route: &Route) -> Lack {
        self.unknown.extend(route.target.clone());
        unknown(route)
    }

    fn whose(&mut self, route: &Route) -> Whose {
        let whose = self.title(route);
        let inside = is_inside(route.destination.trunc(), &self.view.parameters.cluster_cidrs);
        let count = match (&whose, inside) {
            (Whose::Node(_) | Whose::Orphan(_), _) => &mut self.plan.counts.ours,
            (Whose::Claimed(_) | Whose::Unknown, _) => &mut self.plan.counts.unknown,
            (Whose::Foreign, true) => &mut self.plan.counts.foreign,
            (Whose::Foreign, false) => &mut self.plan.counts.elsewhere,
        };
        *count += 1;
        whose
    }

    /// Returns true if another cluster's UID is recorded with the route.
    fn is_theirs(&self, route: &Route) -> bool {
        route.owner.as_ref().is_some_and(|owner| owner.cluster.uid != self.view.cluster.uid)
    }

    /// Returns true if the cloud has confirmed that the target is, or was, a node's.
    fn is_confirmed(&self, route: &Route) -> bool {
        let confirms = |target| self.planner.claims.confirms(route.destination, target);
        !self.view.has_instances || route.target.as_ref().is_some_and(confirms)
    }

    /// Decides if a node's own statement that the route's target is, or was, its target makes the
    /// route this cluster's. Asks the cloud about the node if it has not confirmed that, and the
    /// question is due. The statement of a node that is left out counts without an answer: a route
    /// to it waits for a person.
    fn word(&mut self, route: &Route, node: &Arc<Node>, left_out: Option<LeftOut>) -> Word {
        let Some(target) = &route.target else { return Word::Counts };
        if route.owner.is_some() || self.is_confirmed(route) {
            return Word::Counts;
        }
        let claims = &self.planner.claims;
        if claims.is_due(self.now, target, node) {
            let new = || Claim { node: Arc::clone(node), targets: Vec::new() };
            let claim = self.claims.entry(node.uid.clone()).or_insert_with(new);
            if !claim.targets.contains(target) {
                claim.targets.push(target.clone());
            }
        }
        left_out.map_or_else(|| claims.word(target, node), |_| Word::Counts)
    }

    /// Returns the node at this place if it is left out and only its own statement makes the route
    /// ours. Such a route is not removed in favour of another node.
    fn claims_alone(&self, route: &Route, place: usize) -> Option<Shared> {
        let view = self.view.nodes.get(place).filter(|view| view.left_out.is_some())?;
        let is_alone = route.owner.is_none() && !self.is_confirmed(route);
        is_alone.then(|| Shared::clone(&view.node.name))
    }

    fn title(&mut self, route: &Route) -> Whose {
        let recorded = match &route.owner {
            _ if self.is_theirs(route) => return Whose::Foreign,
            Some(owner) => Some(owner),
            None if is_inside(route.destination.trunc(), &self.view.parameters.cluster_cidrs) => {
                None
            }
            None => return Whose::Foreign,
        };
        let target = route.target.as_ref();
        let place = target.and_then(|target| self.targets.place(target));
        let view = place.and_then(|place| Some((place, self.view.nodes.get(place)?)));
        let former = target.and_then(|target| self.view.former.get(target));
        if let Some((place, view)) = view {
            match self.word(route, &view.node, view.left_out) {
                Word::Counts => return Whose::Node(place),
                Word::Open => return Whose::Claimed(Shared::clone(&view.node.name)),
                Word::Denied => {}
            }
        } else if let Some(FormerNode { node, was_marked }) = former {
            match self.word(route, node, None) {
                Word::Counts => {
                    return Whose::Orphan(Orphan {
                        why: format!(
                            "{} is no longer a target of node {}",
                            target_of(route),
                            node.name
                        ),
                        node: Some(Shared::clone(&node.name)),
                        was_marked: *was_marked,
                        labels: node.labels.clone(),
                        target: target.cloned(),
                        left_out: None,
                    });
                }
                Word::Open => return Whose::Claimed(Shared::clone(&node.name)),
                Word::Denied => {}
            }
        }
        let orphan =
            |why: String, node| Orphan { why, node, target: target.cloned(), ..Orphan::default() };
        if let Some(owner) = recorded {
            let why = format!(
                "it was made for node {}, and its target does not belong to a node",
                owner.name
            );
            return Whose::Orphan(orphan(why, Some(owner.name.as_str().into())));
        }
        // A route that drops packets does not have a target whose end could be proven.
        let Some(target) = target else { return Whose::Foreign };
        match self.planner.cases.finding(target) {
            Finding::Gone { evidence, .. } => {
                let why = format!("its target {target} does not exist: {evidence}");
                self.unknown.insert(target.clone());
                Whose::Orphan(orphan(why, None))
            }
            Finding::Exists => {
                self.unknown.insert(target.clone());
                Whose::Foreign
            }
            Finding::Unknown => Whose::Unknown,
        }
    }
}
