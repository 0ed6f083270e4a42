//! The machine without one of its protections: the world changes its requests, the answers, or its
//! settings.

use ccm_cloud::{ErrorKind, Route};

use super::{
    cloud::{Operation, Trouble, gone},
    nodes::{condition, name_of},
    people::{net, port},
    *,
};
use crate::routes::plan::condition::NewCondition;

/// A protection that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Variant {
    None,
    /// Any number of routes may be removed.
    NoBrake,
    /// A new leader does not know the deletions of the last one.
    ForgetfulLeader,
    /// The cluster CIDRs take in the networks of others.
    EveryNetwork,
    /// The owner that the cloud records does not say whose a route is.
    NoOwner,
    /// A target that is not a node's is not looked up.
    NoLook,
    /// It is looked up once.
    OneLook,
    /// The cloud is believed whatever it says of targets of nodes.
    NoWitnesses,
    /// The cloud denies everything, and no target of a node is asked about.
    BelievedCloud,
    /// A destination does not wait for the answer to its change.
    NoAnswer,
    /// Calls are made at the same time although versions are compared.
    NoVersions,
    /// Calls have more changes than the provider accepts.
    LargeBatches,
    /// A replacement is a deletion and a creation.
    TwoSteps,
    /// If two targets are possible, the old one is removed first.
    OldFirst,
    /// A deletion takes whatever exists.
    Whatever,
    /// The table is listed once.
    OneList,
    /// A change that failed is taken for done.
    NoFailures,
    /// Defects are not seen.
    NoDefects,
    /// A second route to the same target is not seen.
    NoDuplicates,
    /// A new leader plans with an old store.
    OldStore,
    /// The machine compares the target in an answer with the node as it is then.
    NoTarget,
    /// Each change of a node voids the pause after a failure.
    NoPause,
    /// A leader does not know its writes of conditions.
    ForgottenWrites,
    /// The machine never learns the answers to changes.
    LostAnswers,
    /// A part of the memory is lost when it is written and read.
    NotPlain,
    /// The machine always sees a node.
    PhantomNode,
    /// No node is excluded.
    NobodyLeftOut,
    /// An answer to a write shows what was written, whatever the node shows.
    BelievedWrites,
    /// The conditions of nodes are not seen.
    UnseenConditions,
    /// The routes outside of the cluster CIDRs are not seen.
    OnlyInside,
}

/// A history.
type Script = fn(u64, Variant) -> World;

/// The rule that each variant breaks, and the history. In a random history people seldom change a
/// route just before its node is deleted, a node seldom moves just while its route is made, a
/// competing writer seldom meets a route that fails for long, and a standby seldom takes over.
pub(in super::super) const BROKEN: &[(Variant, Rule, Option<Script>)] = &[
    (Variant::NoBrake, Rule::Loss, None),
    (Variant::ForgetfulLeader, Rule::Loss, None),
    (Variant::EveryNetwork, Rule::Foreign, None),
    (Variant::NoOwner, Rule::Foreign, None),
    (Variant::NoLook, Rule::Foreign, None),
    (Variant::OneLook, Rule::Proof, None),
    (Variant::NoWitnesses, Rule::Proof, None),
    (Variant::BelievedCloud, Rule::Foreign, None),
    (Variant::NoAnswer, Rule::Overlap, Some(moved_while_its_route_is_made)),
    (Variant::NoVersions, Rule::Version, None),
    (Variant::LargeBatches, Rule::Call, None),
    (Variant::TwoSteps, Rule::Gap, None),
    (Variant::OldFirst, Rule::Gap, None),
    (Variant::Whatever, Rule::Foreign, Some(replaced_before_its_node_goes)),
    (Variant::OneList, Rule::Converges, None),
    (Variant::OneList, Rule::Lasting, None),
    (Variant::NoFailures, Rule::Available, None),
    (Variant::NoDefects, Rule::Available, None),
    (Variant::NoDefects, Rule::Explained, None),
    (Variant::NoDuplicates, Rule::Converges, None),
    (Variant::OldStore, Rule::Gap, Some(taken_over)),
    (Variant::NoTarget, Rule::Available, Some(moved_while_its_route_is_made)),
    (Variant::NoPause, Rule::Calls, Some(contested)),
    (Variant::ForgottenWrites, Rule::Writes, Some(contested)),
    (Variant::LostAnswers, Rule::Converges, None),
    (Variant::NotPlain, Rule::Plain, None),
    (Variant::PhantomNode, Rule::NoNodes, None),
    (Variant::NobodyLeftOut, Rule::LeftOut, None),
    (Variant::BelievedWrites, Rule::Told, None),
    (Variant::UnseenConditions, Rule::Quiet, None),
    (Variant::OnlyInside, Rule::Counted, None),
];

/// Returns a world in which a person changes a route just before its node goes.
fn replaced_before_its_node_goes(seed: u64, variant: Variant) -> World {
    let mut world = World::new(seed, variant);
    world.run(Duration::from_secs(20));
    let destination = net("10.120.0.0/24");
    world.router.remove(destination);
    world.router.ports.insert(port(1));
    let theirs = Route::new(destination, RouteTarget::Address(port(1)));
    world.router.add(Route { id: Some("theirs".to_owned()), ..theirs }, true);
    world.rules.touched.insert(destination, world.now);
    world.delete(&name_of(0));
    world.run(Duration::from_secs(60));
    world
}

/// Returns a world in which a node moves while its route is made.
fn moved_while_its_route_is_made(seed: u64, variant: Variant) -> World {
    let mut world = World::new(seed, variant);
    world.run(Duration::from_secs(20));
    let until = world.now + Duration::from_mins(1);
    let trouble = Trouble::Slow(Duration::from_secs(8));
    world.faults.push(Fault { trouble, on: Operation::Apply, one: None, until });
    world.add_node(NODES);
    world.run(Duration::from_secs(3));
    world.moves(&name_of(NODES));
    world.run(Duration::from_secs(60));
    world
}

/// Returns a world in which standbys take over one after the other.
fn taken_over(seed: u64, variant: Variant) -> World {
    let mut world = World::new(seed, variant);
    for _ in 0..6 {
        world.run(Duration::from_secs(20));
        world.take_over();
    }
    world.run(Duration::from_secs(20));
    world
}

/// Returns a world in which the cloud refuses the route of a node, and another controller says that
/// the node's network is up.
fn contested(seed: u64, variant: Variant) -> World {
    let mut world = World::new(seed, variant);
    world.has_faults = false;
    world.run(Duration::from_secs(20));
    let (trouble, until) = (Trouble::Fails(ErrorKind::QuotaExceeded), world.now + PATIENCE);
    let destination = net("10.120.0.0/24");
    let one = Some((name_of(0), destination));
    world.faults.push(Fault { trouble, on: Operation::Apply, one, until });
    world.router.remove(destination);
    world.restart();
    world.toggle_rival();
    for _ in 0..100 {
        if variant == Variant::ForgottenWrites {
            world.machine.conditions.clear();
        }
        world.run(Duration::from_secs(6));
    }
    world
}

const PATIENCE: Duration = Duration::from_hours(1);

/// Returns the route after a change, if all went well.
fn as_wanted(change: &RouteChange) -> Option<Route> {
    let (RouteChange::Create(new) | RouteChange::Replace { new, .. }) = change else { return None };
    let target = RouteTarget::Node(new.node.name.clone());
    Some(Route { owner: Some(new.owner.clone()), ..Route::new(new.destination, target) })
}

impl World {
    /// Returns the changes that the program asks for in place of this one.
    pub(super) fn asked_for(&self, change: &RouteChange) -> Vec<RouteChange> {
        let delete = |old: Route| RouteChange::Delete(Box::new(old));
        let change = change.clone();
        let there = self.router.to(change.destination()).first();
        match (self.variant, change) {
            (Variant::TwoSteps, RouteChange::Replace { old, new }) => {
                vec![RouteChange::Delete(old), RouteChange::Create(new)]
            }
            (Variant::OldFirst, RouteChange::Create(new)) => {
                let old = there.filter(|there| !there.is_foreign);
                let old = old.map(|old| delete(old.route.clone()));
                old.into_iter().chain([RouteChange::Create(new)]).collect()
            }
            (Variant::Whatever, RouteChange::Delete(old)) => {
                vec![delete(there.map_or(*old, |there| there.route.clone()))]
            }
            (_, change) => vec![change],
        }
    }

    fn seen_route(&self, route: &mut Route) {
        match (self.variant, &mut route.owner) {
            (Variant::NoOwner, Some(owner)) => owner.cluster = cluster(CLUSTER),
            (Variant::NoDefects, _) => route.defect = None,
            _ => {}
        }
    }

    /// Returns the table as the program sees it.
    pub(super) fn seen_table(&mut self, mut table: RouteTable) -> RouteTable {
        table.routes.iter_mut().for_each(|route| self.seen_route(route));
        match self.variant {
            Variant::NoDuplicates => {
                let mut seen = Vec::new();
                table.routes.retain(|route| {
                    let key = (route.destination, route.target.clone());
                    let is_new = !seen.contains(&key);
                    seen.push(key);
                    is_new
                });
            }
            Variant::OnlyInside => table.routes.retain(|one| truth::is_inside(one.destination)),
            Variant::OneList => return self.first_table.get_or_insert(table).clone(),
            _ => {}
        }
        table
    }

    /// Returns the answer about a change as the program sees it.
    pub(super) fn seen_answer(
        &self,
        change: &RouteChange,
        mut answer: Result<AppliedChange, CloudError>,
    ) -> Result<AppliedChange, CloudError> {
        if let Ok(AppliedChange { route: Some(route), .. }) = &mut answer {
            self.seen_route(route);
            if self.variant == Variant::NoTarget {
                route.target = as_wanted(change).and_then(|route| route.target);
            }
        }
        if answer.is_err() && self.variant == Variant::NoFailures {
            return Ok(AppliedChange { route: as_wanted(change), version: None });
        }
        answer
    }

    /// Returns the node in the answer to a write that was taken back, as the program sees it.
    pub(super) fn seen_write(&self, mut view: NodeView, new: &NewCondition) -> NodeView {
        if self.variant == Variant::BelievedWrites {
            let shown = condition(new.status.as_str(), new.reason, &new.message);
            Arc::make_mut(&mut view.node).conditions = vec![shown];
        }
        view
    }

    /// Returns the answer about a target as the program sees it.
    pub(super) fn seen_state(
        &mut self,
        target: &RouteTarget,
        answer: Result<TargetState, CloudError>,
    ) -> Result<TargetState, CloudError> {
        let is_node = self.nodes.values().any(|node| truth::is_of(target, node));
        match self.variant {
            Variant::NoLook if !is_node => Ok(gone(target)),
            Variant::NoWitnesses if is_node => Ok(TargetState::Exists),
            Variant::OneLook if !is_node => {
                answer.map(|state| self.looks.entry(target.clone()).or_insert(state).clone())
            }
            _ => answer,
        }
    }
}
