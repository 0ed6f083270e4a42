//! The rules of each history.

use std::collections::VecDeque;

use ccm_cloud::Route;

use super::{
    nodes::RIVAL,
    router::Entry,
    truth::{has_route, is_of},
    *,
};
use crate::routes::plan::condition::{NETWORK_UNAVAILABLE, NewCondition, Status};

/// The time between the two answers that prove that a target is gone.
const APART: Duration = Duration::from_mins(1);
/// How late a deletion may be carried out.
const LATE: Duration = Duration::from_mins(2);
/// How long the program may not know about changes of others.
const AUDIT: Duration = Duration::from_mins(15);
/// How long a change that was decided before a node was excluded may wait.
const WAITS: Duration = Duration::from_mins(1);
/// How long a change may wait for a lane.
const NEW: Duration = Duration::from_secs(5);
/// How often a process may ask for a change of one route within the window: after failures with back-off, and again
/// after each change of its node; and how often it may list the table.
const CALLS: usize = 120;
/// How often one leader may write the condition of one node within the window: twelve times the
/// same, and more if the route itself comes and goes, because a write of another status does not
/// wait.
const WRITES: usize = 36;
/// How long a condition with a reason of ours may be wrong. A list finds changes of others, and a
/// repeated write waits for five minutes at most.
const WRONG: Duration = Duration::from_mins(20);
/// The time between two looks at all conditions.
const LOOK: Duration = Duration::from_secs(30);

/// A rule of each history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Rule {
    /// No call has more changes than the provider accepts.
    Call,
    /// If the cloud compares versions, only one call is made at a time, with the version.
    Version,
    /// A destination has one change at a time.
    Overlap,
    /// Routes of others are not touched, and no call names one.
    Foreign,
    /// The route to an unknown target is removed only if the target was proven to be gone twice,
    /// with a pause.
    Proof,
    /// While the program sees no node, nothing is deleted.
    NoNodes,
    /// Within a window, no more routes are removed than the brake allows.
    Loss,
    /// A pod CIDR of a node does not lose its route if the cloud can avoid that.
    Gap,
    /// An excluded node does not get a route or a condition, and a route to it stays.
    LeftOut,
    /// The network of a node is reported as available only if its routes exist.
    Available,
    /// A condition is reported as written only if the node shows it.
    Told,
    /// An explanation has a cause and a fix, and says that a node is fine only if it is.
    Explained,
    /// In the end each node has its routes, nothing is left over, and the conditions show that.
    Converges,
    /// In the end the routes of others are counted.
    Counted,
    /// The machine does not write a route or a condition that is right.
    Quiet,
    /// The cloud is not asked for the same change again and again.
    Calls,
    /// No condition is written again and again, whoever else writes it.
    Writes,
    /// A condition is not wrong for long.
    Lasting,
    /// The memory is the same when it was written and read.
    Plain,
}

impl Rule {
    /// Returns true if it is broken, as a rule, when all faults have ended.
    pub(in super::super) fn is_of_the_end(self) -> bool {
        matches!(self, Self::Converges | Self::Counted | Self::Quiet | Self::Lasting)
    }
}

/// The answers "gone" about a target since the last other answer.
#[derive(Clone, Copy, Debug)]
struct Proof {
    first: At,
    last: At,
    /// The first and the last answer that came with found targets of nodes.
    witnessed: Option<(At, At)>,
}

impl Proof {
    fn is_enough(self) -> bool {
        self.last >= self.first + APART
    }

    fn is_witnessed(self) -> bool {
        self.witnessed.is_some_and(|(first, last)| last >= first + APART)
    }
}

/// The memory of the rules, and the rules that are broken.
#[derive(Debug)]
pub(in super::super) struct Rules {
    /// How many routes may be removed within a window.
    limit: usize,
    /// Destinations whose route was removed without a mark or proof, and when.
    lost: BTreeMap<IpNet, At>,
    /// The routes whose deletion was free when it was sent. It may be carried out late.
    free: BTreeSet<(IpNet, RouteTarget)>,
    /// How many calls change each destination now.
    pub(super) in_flight: BTreeMap<IpNet, usize>,
    proofs: BTreeMap<RouteTarget, Proof>,
    /// When others last changed the routes of a destination, or a list hid that.
    pub(super) touched: BTreeMap<IpNet, At>,
    /// Since when a node has been excluded, by its UID.
    pub(super) left_out: BTreeMap<Box<str>, At>,
    /// When a node has come or has changed its targets or pod CIDRs, by its UID.
    pub(super) moved: BTreeMap<Box<str>, At>,
    /// When each destination was changed. Lists are under the network of all addresses.
    calls: BTreeMap<IpNet, VecDeque<At>>,
    /// When the condition of each node was written, by its UID.
    writes: BTreeMap<Box<str>, VecDeque<At>>,
    /// Since when the condition of a node has been wrong, by its UID.
    wrong: BTreeMap<Box<str>, At>,
    looked: At,
    /// True while nothing has to be written.
    pub(super) is_quiet: bool,
    broken: Vec<(Rule, String)>,
}

impl Rules {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            lost: BTreeMap::new(),
            free: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            proofs: BTreeMap::new(),
            touched: BTreeMap::new(),
            left_out: BTreeMap::new(),
            moved: BTreeMap::new(),
            calls: BTreeMap::new(),
            writes: BTreeMap::new(),
            wrong: BTreeMap::new(),
            looked: At::default(),
            is_quiet: false,
            broken: Vec::new(),
        }
    }

    /// Records that this rule is broken in this way. The first way counts.
    pub(super) fn breaks(&mut self, rule: Rule, how: String) {
        if !self.is_broken(rule) {
            self.broken.push((rule, how));
        }
    }

    pub(in super::super) fn is_broken(&self, rule: Rule) -> bool {
        self.broken.iter().any(|(one, _)| *one == rule)
    }

    /// Returns the broken rules, and how.
    pub(in super::super) fn broken(&self) -> &[(Rule, String)] {
        &self.broken
    }

    /// Records that another process leads. It knows the deletions of the last one, and neither its
    /// writes nor its answers.
    pub(super) fn lead(&mut self) {
        self.in_flight.clear();
        self.proofs.clear();
        self.calls.clear();
        self.writes.clear();
    }

    /// Records that the cloud says that a target is gone, or is not. `found`: it has found targets
    /// of nodes, or was not asked.
    pub(super) fn answered(&mut self, now: At, target: &RouteTarget, is_gone: bool, found: bool) {
        if !is_gone {
            self.proofs.remove(target);
            return;
        }
        let new = Proof { first: now, last: now, witnessed: None };
        let proof = self.proofs.entry(target.clone()).or_insert(new);
        proof.last = now;
        if found {
            proof.witnessed.get_or_insert((now, now)).1 = now;
        }
    }

    fn is_proven(&self, target: &RouteTarget) -> bool {
        self.proofs.get(target).is_some_and(|proof| proof.is_enough())
    }

    pub(super) fn is_touched(&self, now: At, destination: IpNet) -> bool {
        self.touched.get(&destination).is_some_and(|at| now.since(*at) < AUDIT)
    }

    /// Counts calls about these destinations.
    pub(super) fn count_calls(&mut self, now: At, destination: IpNet) {
        let count = count(self.calls.entry(destination).or_default(), now);
        if count > CALLS {
            self.breaks(Rule::Calls, format!("{count} calls about {destination} in ten minutes"));
        }
    }

    pub(super) fn count_writes(&mut self, now: At, node: &Node) {
        let count = count(self.writes.entry(node.uid.clone()).or_default(), now);
        if count > WRITES {
            self.breaks(Rule::Writes, format!("{count} writes of {} in ten minutes", node.name));
        }
    }

    /// Sets the limit. A limit of zero does not let proven routes go, either.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }
}

/// Adds a time, and counts those within a window.
fn count(times: &mut VecDeque<At>, now: At) -> usize {
    times.push_back(now);
    while times.front().is_some_and(|first| *first + WINDOW < now) {
        times.pop_front();
    }
    times.len()
}

impl World {
    fn breaks(&mut self, rule: Rule, how: String) {
        self.rules.breaks(rule, format!("at {}: {how}", self.now));
    }

    /// Checks a call that the program is about to make.
    pub(super) fn check_call(&mut self, batch: &[Planned], base: Option<&str>) {
        let traits = self.router.traits.clone();
        if batch.is_empty() || batch.len() > traits.max_batch {
            self.breaks(Rule::Call, format!("{} changes in a call", batch.len()));
        }
        let is_busy = self.rules.in_flight.values().any(|calls| *calls > 0);
        if traits.compares_version && (base.is_none() || is_busy) {
            let how = format!("a call on version {base:?}, another one under way: {is_busy}");
            self.breaks(Rule::Version, how);
        }
        if self.rules.is_quiet {
            let words: Vec<String> = batch.iter().map(Planned::words).collect();
            self.breaks(Rule::Quiet, format!("all is well: {words:?}"));
        }
        for planned in batch {
            let destination = planned.change.destination();
            self.rules.count_calls(self.now, destination);
            let calls = self.rules.in_flight.entry(destination).or_default();
            *calls += 1;
            if *calls > 1 {
                self.breaks(Rule::Overlap, format!("{destination} is changed twice at once"));
            }
            let left_out = planned.node.as_ref().and_then(|name| self.nodes.get(name)).cloned();
            if left_out.is_some_and(|node| self.was_left_out(&node)) {
                self.breaks(Rule::LeftOut, planned.words());
            }
        }
    }

    /// Returns true if the node was excluded when the program decided what it does now.
    fn was_left_out(&self, node: &Node) -> bool {
        let since = self.rules.left_out.get(&node.uid);
        since.is_some_and(|since| self.now.since(*since) >= WAITS)
    }

    /// Checks a change that the program asks for.
    pub(super) fn check_change(&mut self, change: &RouteChange) {
        match change {
            RouteChange::Create(_) => {}
            RouteChange::Replace { old, .. } => {
                self.check_foreign(old);
                if self.router.traits.several_targets {
                    let how = format!("{} is replaced: it may have both targets", old.destination);
                    self.breaks(Rule::Gap, how);
                }
            }
            RouteChange::Delete(old) => {
                self.check_foreign(old);
                self.check_proof(old);
                if self.store.is_empty() {
                    let how = format!(
                        "{} is deleted while the machine does not see a node",
                        old.destination
                    );
                    self.breaks(Rule::NoNodes, how);
                }
                let mut nodes =
                    self.nodes.values().filter(|node| self.store.contains_key(&node.name));
                let node = nodes.find(|node| old.target.as_ref().is_some_and(|to| is_of(to, node)));
                let is_its = node.is_some_and(|node| self.was_left_out(node));
                // The route of another node exists as well.
                let is_surplus = self.truth().wanted.contains_key(&old.destination);
                if is_its && !is_surplus {
                    self.breaks(Rule::LeftOut, format!("{} goes", old.destination));
                }
                self.check_gap(old);
                if let Some(target) = old.target.clone().filter(|target| self.is_free(target)) {
                    self.rules.free.insert((old.destination, target));
                }
            }
        }
    }

    /// Returns true if the node may have come, or moved, since the program decided what it does now.
    fn is_new(&self, node: &Node) -> bool {
        self.rules.moved.get(&node.uid).is_some_and(|at| self.now.since(*at) < NEW)
    }

    /// Returns the route that this one means, as it is now.
    fn meant(&self, old: &Route) -> Option<&Entry> {
        let mut now = self.router.to(old.destination.trunc()).iter();
        now.find(|one| {
            old.id.as_ref().is_none_or(|id| one.route.id.as_ref() == Some(id))
                && one.route.target == old.target
        })
    }

    fn check_foreign(&mut self, old: &Route) {
        if self.meant(old).is_some_and(|meant| meant.is_foreign) {
            self.breaks(Rule::Foreign, format!("a call names {old:?}"));
        }
    }

    /// Checks that a route has a proof if this process never saw its target as a node's.
    fn check_proof(&mut self, old: &Route) {
        let (None, Some(target)) = (&old.owner, &old.target) else { return };
        if !self.known.contains_key(target) && !self.rules.is_proven(target) {
            let how = format!("{} to {target} should be deleted without a proof", old.destination);
            self.breaks(Rule::Proof, how);
        }
    }

    /// Checks that the only route of a node's pod CIDR is not deleted, nor a route to a disputed
    /// pod CIDR.
    fn check_gap(&mut self, old: &Route) {
        let destination = old.destination.trunc();
        let truth = self.truth();
        let is_needed = truth.needs(destination);
        if !is_needed || !self.hidden.is_empty() || self.rules.is_touched(self.now, destination) {
            return;
        }
        let Some(meant) = self.meant(old) else { return };
        let (id, node) = (meant.route.id.clone(), truth.wanted.get(&destination));
        // It has come since that decision.
        if node.is_some_and(|node| self.is_new(node)) {
            return;
        }
        let works = |one: &&Entry| {
            let is_right = |to: &RouteTarget| node.is_none_or(|node| is_of(to, node));
            one.route.defect.is_none() && one.route.target.as_ref().is_some_and(is_right)
        };
        let others = self.router.to(destination).iter().filter(|one| one.route.id != id);
        // A route of others is in the way.
        let is_blocked = others.clone().any(|one| self.is_of_others(one));
        if !is_blocked && !others.clone().any(|one| works(&one)) {
            let name = node.map(|node| Name::clone(&node.name));
            let how = format!("{destination} of {name:?} loses its route to {:?}", old.target);
            self.breaks(Rule::Gap, how);
        }
    }

    /// Returns true if a route to this target may go at any time: its node was marked, or the target is proven to be gone.
    fn is_free(&self, target: &RouteTarget) -> bool {
        let proof = self.rules.proofs.get(target);
        let is_proven = proof.is_some_and(|proof| proof.is_witnessed());
        // A change that was decided before another node had the target may wait for a lane.
        let was_marked = self.marked.get(target);
        let was_marked =
            was_marked.is_some_and(|since| since.is_none_or(|since| self.now.since(since) < NEW));
        was_marked || is_proven && self.rules.limit > 0
    }

    /// Checks the loss of a route.
    pub(super) fn check_loss(&mut self, destination: IpNet, gone: &Entry) {
        if gone.is_foreign {
            self.breaks(Rule::Foreign, format!("{:?} of others was touched", gone.route));
        }
        // A surplus route may be removed while others remove the one that serves the node.
        let is_taken = self.rules.is_touched(self.now, destination)
            && self.truth().wanted.contains_key(&destination);
        if is_taken || !self.router.to(destination).is_empty() {
            return;
        }
        let was_free = |target| {
            self.is_free(target) || self.rules.free.contains(&(destination, target.clone()))
        };
        if !gone.route.target.as_ref().is_some_and(was_free) {
            self.rules.lost.insert(destination, self.now);
        }
        let (now, limit) = (self.now, self.rules.limit);
        self.rules.lost.retain(|_, at| now < *at + WINDOW - LATE);
        if self.rules.lost.len() > limit {
            let how = format!("more than {limit} routes went: {:?}", self.rules.lost);
            self.breaks(Rule::Loss, how);
        }
    }

    /// Checks a condition that the program writes to a node.
    pub(super) fn check_write(&mut self, node: &Node, condition: &NewCondition) {
        if self.rules.is_quiet {
            let how = format!("all is well: {} {}", node.name, condition.message);
            self.breaks(Rule::Quiet, how);
        }
        let there = self.nodes.get(&node.name).filter(|there| there.uid == node.uid).cloned();
        let Some(there) = there else { return };
        if !self.is_blind && self.rules.left_out.contains_key(&there.uid) {
            self.breaks(Rule::LeftOut, format!("the condition of {} is written", node.name));
        }
        if condition.status == Status::False {
            self.check_available(&there, Rule::Available);
        }
    }

    /// Checks the program's report that a node shows its condition.
    pub(super) fn check_shown(&mut self, name: &Name, status: Status) {
        let node = self.nodes.get(name);
        if node.is_some_and(|node| node.condition(NETWORK_UNAVAILABLE) != Some(status.as_str())) {
            self.breaks(Rule::Told, format!("{name} does not show {status:?}"));
        }
    }

    /// Checks the program's claim that the routes of a node exist.
    pub(super) fn check_available(&mut self, node: &Node, rule: Rule) {
        for cidr in truth::pod_cidrs(node) {
            let is_known = self.rules.is_touched(self.now, cidr);
            if !is_known && !has_route(&self.router, node, cidr) {
                let how = format!("{} lacks {cidr}: {:?}", node.name, self.router.to(cidr));
                self.breaks(rule, how);
            }
        }
    }

    /// Looks now and then for how long conditions are wrong.
    pub(super) fn look_at_conditions(&mut self) {
        if self.now.since(self.rules.looked) < LOOK {
            return;
        }
        self.rules.looked = self.now;
        if !self.hidden.is_empty() {
            return self.rules.wrong.clear();
        }
        let truth = self.truth();
        let is_wrong = |node: &&Arc<Node>| {
            let mut cidrs = truth::pod_cidrs(node);
            let lacks = cidrs.any(|cidr| !truth.is_served(&self.router, node, cidr));
            let expect = if lacks { "True" } else { "False" };
            let shown = node.conditions.iter().find(|one| *one.kind == *NETWORK_UNAVAILABLE);
            let is_left_out = self.rules.left_out.contains_key(&node.uid);
            !is_left_out
                && shown.is_some_and(|shown| {
                    shown.reason.as_deref() != Some(RIVAL) && *shown.status != *expect
                })
        };
        let wrong: Vec<Arc<Node>> = self.nodes.values().filter(is_wrong).cloned().collect();
        self.rules.wrong.retain(|uid, _| wrong.iter().any(|node| node.uid == *uid));
        for node in wrong {
            let since = *self.rules.wrong.entry(node.uid.clone()).or_insert(self.now);
            if since + WRONG < self.now {
                let how = format!("{}: {:?} is wrong since {since}", node.name, node.conditions);
                self.breaks(Rule::Lasting, how);
            }
        }
    }
}
