//! Decides about changes of the route table, and determines the progress of each node's routes: a
//! pure state machine that takes the time as a value.
//!
//! ```text
//! nodes --------> wanted routes --+
//! former targets -> who owns it? -+--> one decision per destination --> changes, held, questions
//! route table --------------------+         |
//! answers about targets -> cases -----------+
//! ```
//!
//! A route is **ours** if the cloud has recorded this cluster with it, or if its destination is
//! inside the cluster CIDRs and its target is one of our nodes, or was one while this process
//! watched. A route inside the cluster CIDRs whose target is not known becomes ours only when the
//! cloud has proven twice, [`CONFIRM`](cases::CONFIRM) apart, that the target is gone. Everything
//! else is foreign: counted, never touched.
//!
//! | module | what it holds |
//! |---|---|
//! | [`wanted`], [`widths`], `pairs` | the routes that the nodes need; how wide a pod CIDR may be; maps as lists |
//! | `node_view`, `node_routes`, `problem` | a node as the plan sees it; the routes that it lacks; why it does not get one |
//! | [`table`], [`in_flight`] | the route table as this process knows it; changes that are not answered yet |
//! | [`targets`], [`claims`], [`cases`] | which node a target is; the targets that the cloud confirms; the proof that one is gone |
//! | `decide`, `planned`, `held` | one decision per destination; a change; why a change is not made now |
//! | [`failures`], [`retry`] | when a change that failed is tried again, and how often it has failed |
//! | [`condition`] | the condition `NetworkUnavailable` |

pub mod cases;
pub mod claims;
pub mod condition;
mod decide;
pub mod failures;
mod held;
pub mod in_flight;
mod node_routes;
mod node_view;
mod pairs;
mod planned;
mod problem;
pub mod retry;
pub mod table;
pub mod targets;
pub mod wanted;
pub mod widths;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::{
    AppliedChange, CloudError, ClusterId, ErrorKind, LookupResult, Owner, RouteChange, RouteTarget,
    RouteTraits, TargetState,
};
use ccm_controller::brake::{Brake, Budget, Transition, Window, approval::SetApproval};
use ccm_kube::selector::NodeSelector;
use ccm_objects::Shared;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use self::{
    cases::Cases,
    claims::{Claim, Claims},
    decide::Decider,
    failures::Failures,
    in_flight::InFlight,
    planned::target_of,
    table::Table,
    targets::{Former, Targets, is_target},
    wanted::{LeftOut, NodeView, Problem, wanted},
};
pub use self::{
    decide::Title,
    held::Held,
    node_routes::{Lack, LackSource, NodeRoutes},
    planned::Planned,
};
use crate::networks::{Config, MaxPodCidr};

/// The settings that decide on routes, and the approval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// `--cluster-cidr`.
    pub cluster_cidrs: Vec<IpNet>,
    /// `--max-pod-cidr`.
    pub max_pod_cidr: MaxPodCidr,
    /// How many routes may be deleted.
    pub budget: Budget,
    /// The time between two lists.
    pub period: Duration,
    /// The nodes that get routes.
    pub node_selector: NodeSelector,
    /// The user's approval.
    pub approval: Option<SetApproval>,
}

/// Everything that a plan depends on, besides the planner's memory.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The nodes.
    pub nodes: &'a [NodeView],
    /// The route table as listed, with the changes made since.
    pub table: &'a Table,
    /// The traits of the provider.
    pub traits: &'a RouteTraits,
    /// This cluster.
    pub cluster: &'a ClusterId,
    /// The settings and the approval.
    pub parameters: &'a Parameters,
    /// The blocks, if this program gives nodes their pod CIDRs.
    pub blocks: Option<&'a Config>,
    /// Targets that belonged to nodes while this process watched.
    pub former: &'a Former,
    /// True if the cloud can be asked for the instances of nodes. If not, route-ccm believes the nodes.
    pub has_instances: bool,
    /// How many nodes may get a route by the next calls. The others wait, so that a burst is not in
    /// memory as a whole.
    pub sendable: usize,
}

/// How many routes of each kind there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Ours.
    pub ours: usize,
    /// Ours that do not carry traffic.
    pub defective: usize,
    /// Our routes that should be deleted or replaced, but are held.
    pub held: usize,
    /// Routes inside the cluster CIDRs to an unknown target.
    pub unknown: usize,
    /// Routes of another cluster that lead to our nodes' pod CIDRs on these nodes.
    pub lent: usize,
    /// Other routes inside the cluster CIDRs.
    pub foreign: usize,
    /// Other routes outside of them.
    pub elsewhere: usize,
    /// Pod CIDRs that are wider than a flag allows.
    pub cidrs_too_wide: usize,
    /// Pod CIDRs that are wider than the pod CIDRs of most nodes.
    pub cidrs_wider_than_most: usize,
    /// Pod CIDRs of nodes with the provider ID of another node.
    pub cidrs_of_same_id: usize,
    /// Pod CIDRs of nodes with the address of another node.
    #[serde(default)]
    pub cidrs_of_same_address: usize,
    /// Nodes of another provider.
    pub nodes_of_others: usize,
    /// Nodes that do not match `--node-selector`.
    pub nodes_not_selected: usize,
    /// Nodes without pod CIDRs.
    pub nodes_without_cidrs: usize,
    /// Nodes whose routes all exist.
    pub nodes_complete: usize,
    /// Nodes that lack a route.
    pub nodes_incomplete: usize,
}

impl Counts {
    /// Counts a pod CIDR that gets no route because of its node.
    fn refused(&mut self, problem: &Problem) {
        *match problem {
            Problem::TooWide { .. } => &mut self.cidrs_too_wide,
            Problem::WiderThanMost { .. } => &mut self.cidrs_wider_than_most,
            Problem::SameTarget { target: RouteTarget::Address(_), .. } => {
                &mut self.cidrs_of_same_address
            }
            Problem::SameTarget { .. } => &mut self.cidrs_of_same_id,
            _ => return,
        } += 1;
    }

    /// Counts an excluded node.
    pub fn left_out(&mut self, why: LeftOut) {
        *match why {
            LeftOut::AnotherProvider => &mut self.nodes_of_others,
            LeftOut::NotSelected => &mut self.nodes_not_selected,
        } += 1;
    }
}

/// The cause of an open breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The API server lists no node, while there are routes of ours.
    NoNodes,
}

/// The decided steps.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The changes of the table: at most one per destination. Due ones that give a node its route come first.
    pub changes: Vec<Planned>,
    /// The state of each node that has pod CIDRs.
    pub nodes: BTreeMap<Shared, NodeRoutes>,
    /// The problems of nodes, sorted by node.
    pub problems: Vec<(Shared, Problem)>,
    /// Targets to ask the cloud about.
    pub questions: Vec<RouteTarget>,
    /// Nodes to ask the cloud about, because routes depend only on their own statements.
    pub claims: Vec<Claim>,
    /// Some targets of routes that are as wanted: most of them exist, so they are asked with the others.
    pub witnesses: Vec<RouteTarget>,
    /// The counts.
    pub counts: Counts,
    /// When to plan again, if nothing changes.
    pub next: Option<At>,
    /// The transition of the breaker.
    pub breaker: Option<Transition<Cause>>,
}

impl Plan {
    /// Returns the changes that are due.
    pub fn due(&self) -> impl Iterator<Item = &Planned> {
        self.changes.iter().filter(|planned| planned.held.is_none())
    }

    /// Returns true if nodes wait for room in the table.
    pub fn is_full(&self) -> bool {
        self.changes.iter().any(|planned| planned.held == Some(Held::NoRoom))
    }

    /// Plans again at this time, or earlier.
    fn again(&mut self, at: At) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

/// The memory of the plans of one leader.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Planner {
    brake: Brake<Cause>,
    cases: Cases,
    claims: Claims,
    pub(super) failures: Failures,
    /// The changes that are not answered yet.
    pub(super) in_flight: InFlight,
    /// The counted losses that the brake has let pass and that are not made yet. True if they were
    /// charged. False if an earlier loss of the destination was charged, because that one was made.
    passed: BTreeMap<IpNet, bool>,
    /// How many questions about targets were answered.
    questions: usize,
    /// The cluster CIDRs that were in force when no route was in doubt, or nothing if that is not
    /// known. The leader leaves them to the next one.
    pub(super) networks: Vec<IpNet>,
}

impl Planner {
    /// Continues with the deletions that the last leader has made, and with its networks.
    pub fn resume(now: At, window: Window, networks: Vec<IpNet>) -> Self {
        Self { brake: Brake::resume(now, window), networks, ..Self::default() }
    }

    /// Returns recent deletions, for the next leader.
    pub fn window(&self) -> &Window {
        self.brake.window()
    }

    /// Plans. A deletion that is due is charged to the budget.
    pub fn plan(&mut self, now: At, view: &View<'_>) -> Plan {
        let targets = Targets::new(view.nodes);
        let wanted = wanted(&targets, view);
        let mut destinations: BTreeMap<IpNet, Option<usize>> =
            view.table.destinations().map(|destination| (destination, None)).collect();
        destinations.extend(wanted.routes.iter().map(|(cidr, node)| (*cidr, Some(*node))));
        let mut decider = Decider::new(now, view, &targets, self);
        for (destination, node) in &destinations {
            match node {
                Some(node) => decider.wanted(*destination, *node),
                None if wanted.disputed.contains(destination) => decider.disputed(*destination),
                None => decider.unwanted(*destination),
            }
        }
        let (mut plan, unknown) = decider.finish();
        self.failures.retain(now, |destination| destinations.contains_key(&destination));
        self.cases.retain(&unknown);
        plan.questions = self.cases.due(now, unknown.iter());
        let next = [self.cases.next(now), self.claims.next(now)];
        next.into_iter().flatten().for_each(|next| plan.again(next));
        nodes(view, &wanted, &mut plan);
        plan
    }

    /// Returns the plan that would be made now. It changes nothing: for explanations.
    pub fn rehearse(&self, now: At, view: &View<'_>, changed: impl Iterator<Item = IpNet>) -> Plan {
        let mut copy = self.clone();
        copy.node_changed(changed);
        copy.plan(now, view)
    }

    /// Returns the removals and replacements that are already charged to the budget and that the
    /// present plan still contains. `waiting`: changes that are in flight, and not sent yet.
    pub fn again(&self, now: At, view: &View<'_>, waiting: &[Planned]) -> Vec<RouteChange> {
        // A list without any nodes is not believed, not even with an approval.
        if view.nodes.is_empty() {
            return Vec::new();
        }
        let mut copy = self.clone();
        for planned in waiting {
            copy.in_flight.remove(planned.change.destination());
        }
        let plan = copy.plan(now, view);
        let is_charged = |planned: &Planned| {
            let destination = planned.change.destination();
            self.passed.contains_key(&destination) || !copy.passed.contains_key(&destination)
        };
        let due = plan.changes.into_iter().filter(|one| one.held.is_none() && one.old().is_some());
        due.filter(is_charged).map(|planned| planned.change).collect()
    }

    /// Returns when the cloud is asked next about the targets of routes.
    pub fn asks_at(&self, now: At) -> Option<At> {
        [self.cases.next(now), self.claims.next(now)].into_iter().flatten().min()
    }

    /// Records that the change is sent: its destination waits for the answer.
    pub fn sent(&mut self, now: At, planned: &Planned) {
        self.in_flight.insert(planned.change.destination(), now, planned.old());
    }

    /// Records that the change is not due any more, and is not sent.
    pub fn withdrawn(&mut self, planned: &Planned) {
        let destination = planned.change.destination();
        self.in_flight.remove(destination);
        self.release(destination);
    }

    /// Records that a change was answered. Returns whether the table must be listed before the next
    /// plan.
    pub fn applied(
        &mut self,
        now: At,
        planned: &Planned,
        answer: &Result<AppliedChange, CloudError>,
    ) -> bool {
        let destination = planned.change.destination();
        self.in_flight.remove(destination);
        match answer {
            Ok(applied) => {
                self.renew_charge(now, destination);
                match applied.route.as_ref() {
                    // There is room for another route.
                    None => self.failures.forget_kind(ErrorKind::QuotaExceeded),
                    Some(route) => route.target.iter().for_each(|target| {
                        self.claims.made(destination, target.clone());
                    }),
                }
                match applied.route.as_ref().and_then(|route| route.defect.as_deref()) {
                    Some(defect) => self.failures.add_defect(now, destination, defect),
                    None => self.failures.forget(destination),
                }
                false
            }
            Err(error) => {
                match error.maybe_done {
                    true => self.renew_charge(now, destination),
                    false => self.release(destination),
                }
                self.failures.add(now, destination, error);
                error.maybe_done || matches!(error.kind, ErrorKind::Busy | ErrorKind::Conflict)
            }
        }
    }

    /// Gives back the charges of losses that are neither due any more nor under way.
    fn give_back(&mut self, due: &BTreeSet<IpNet>) {
        let is_over = |loss: &&IpNet| !due.contains(*loss) && !self.in_flight.contains(**loss);
        let over: Vec<IpNet> = self.passed.keys().filter(is_over).copied().collect();
        for loss in over {
            self.release(loss);
        }
    }

    /// Records that a loss that the brake let pass is made, or may be: its charge begins again,
    /// also if an earlier loss has paid it.
    fn renew_charge(&mut self, now: At, destination: IpNet) {
        if self.passed.remove(&destination).is_some() {
            self.brake.renew(now, &destination.to_string());
        }
    }

    /// Gives back the charge of a loss that was not made.
    fn release(&mut self, destination: IpNet) {
        if self.passed.remove(&destination) == Some(true) {
            self.brake.release(&destination.to_string());
        }
    }

    /// Records that the cloud has answered about targets. A target counts as gone only if a witness
    /// is found. If most witnesses are said to be gone, nothing of the answer counts; returns one
    /// of them then. A few nodes may be left whose instances are really gone.
    pub fn record_answers(
        &mut self,
        now: At,
        answers: Vec<(RouteTarget, Result<TargetState, CloudError>)>,
        witnesses: &[RouteTarget],
    ) -> Option<RouteTarget> {
        self.questions = self.questions.wrapping_add(1);
        let (heard, answers): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|(target, _)| witnesses.contains(target));
        let found = heard.iter().filter(|(_, one)| matches!(one, Ok(TargetState::Exists))).count();
        let mut gone = heard.iter().filter(|(_, one)| matches!(one, Ok(TargetState::Gone(_))));
        if let Some((witness, _)) = gone.clone().nth(found).and(gone.next()) {
            self.cases.postpone(now);
            return Some(witness.clone());
        }
        for (target, answer) in answers {
            let answer = match answer {
                Ok(TargetState::Gone(_)) if found == 0 && !witnesses.is_empty() => {
                    let what = "no target of a node was found, either";
                    Err(CloudError::new(ErrorKind::Unavailable, what))
                }
                answer => answer,
            };
            self.cases.record_answer(now, target, answer, found > 0);
        }
        None
    }

    /// Records that the cloud has answered about the instances of nodes.
    pub fn claimed(&mut self, now: At, answers: Vec<(Claim, LookupResult)>) {
        for (claim, answer) in answers {
            self.claims.record_answer(now, claim, &answer);
        }
    }

    /// Records that the table was listed.
    pub fn listed(&mut self, now: At, table: &Table) {
        self.claims.retain(now, &table.targets());
        // The list shows what others have changed.
        self.failures.forget_kind(ErrorKind::Busy);
    }

    /// Records that a node has changed: what has failed for its routes is tried at once.
    pub fn node_changed(&mut self, destinations: impl Iterator<Item = IpNet>) {
        for destination in destinations {
            self.failures.forget(destination);
        }
    }
}

/// Computes the state of each node, from what its destinations lack.
fn nodes(view: &View<'_>, wanted: &wanted::Wanted, plan: &mut Plan) {
    for (place, node) in view.nodes.iter().enumerate() {
        let name = &node.node.name;
        let problems = wanted.problems.get(&place).map(Vec::as_slice).unwrap_or_default();
        if let Some(why) = node.left_out {
            plan.counts.left_out(why);
            continue;
        }
        if node.node.pod_cidrs.is_empty() {
            plan.counts.nodes_without_cidrs += 1;
            continue;
        }
        let state = plan.nodes.entry(Shared::clone(name)).or_default();
        state.uid.clone_from(&node.node.uid);
        let mut lacking = problems.iter().filter(|problem| !has_its_route(problem, node, view));
        state.problem = lacking.next().map(ToString::to_string);
        if state.is_complete() {
            plan.counts.nodes_complete += 1;
        } else {
            plan.counts.nodes_incomplete += 1;
        }
        for problem in problems {
            plan.counts.refused(problem);
        }
        plan.problems.extend(problems.iter().map(|problem| (Shared::clone(name), problem.clone())));
    }
    plan.problems.sort_by(|(one, _), (other, _)| one.cmp(other));
}

/// Returns true if a pod CIDR outside of the cluster CIDRs has its route all the same, for instance
/// from before the cluster CIDRs were changed.
fn has_its_route(problem: &Problem, node: &NodeView, view: &View<'_>) -> bool {
    let Problem::Outside(cidr) = problem else { return false };
    view.table.to(cidr.trunc()).iter().any(|route| {
        let is_theirs = |owner: &Owner| owner.cluster.uid != view.cluster.uid;
        route.defect.is_none()
            && !route.owner.as_ref().is_some_and(is_theirs)
            && route.target.as_ref().is_some_and(|target| is_target(target, node))
    })
}

#[cfg(test)]
pub(super) mod tests;
