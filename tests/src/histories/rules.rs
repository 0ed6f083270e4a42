//! Rules about questions, decisions, writes and `/plan`.

use std::{collections::BTreeSet, sync::Arc};

use ccm_cloud::{Lookup, LookupResult};
use ccm_controller::brake::Breaker;
use ccm_objects::{Node, Shared as Name, instance_gone};
use lifecycle_ccm::{
    machine::{
        Effect,
        effect::{Ask, NodePlan},
    },
    policy::{
        Decision, Doubt, NodeView, PROVEN, Source, Verdict,
        action::{APPROVED, Action, Marks, Write},
        shutdown::{self, Removal, TaintStep},
    },
};

use super::{Run, Variant, at, ms, world};

/// A list or lookup while it counts, in milliseconds.
const IN_TIME: u64 = 30_000;
/// The longest time between two lists, or two lookups of a node that runs on another machine: a period of half a
/// minute, and passes with slow answers.
const SELDOM: u64 = 180_000;
/// The pause after a write that the API server did not store.
const REFUSED: u64 = 60_000;
/// The time after which a write counts as accepted.
const ACCEPTED: u64 = 600_000;
/// How long the views of processes may differ about the age of a node.
const APPEARED: u64 = 120_000;

/// The answers of one look at the cloud.
#[derive(Default)]
pub struct Look {
    /// When it began.
    pub asked: u64,
    /// When the lookups were answered.
    pub answered: u64,
    /// The lookups: name, UID, and true if an instance was found.
    pub lookups: Vec<(Name, Box<str>, bool)>,
    /// The UIDs of witnesses that the cloud denied.
    pub denied: Vec<Box<str>>,
    /// The machines in the list, if it was read in time.
    pub shown: Option<BTreeSet<usize>>,
}

impl Look {
    /// Remembers an answer.
    pub fn heard(&mut self, node: &Node, is_witness: bool, result: &LookupResult) {
        let is_found = matches!(result, Ok(Lookup::Found(_)));
        if is_witness {
            let is_denied = matches!(result, Ok(Lookup::Gone(_)));
            self.denied.extend(is_denied.then(|| node.uid.clone()));
            return;
        }
        self.lookups.push((Arc::clone(&node.name), node.uid.clone(), is_found));
    }

    /// Remembers a list that was read at this time.
    pub fn listed(&mut self, now: u64, shown: BTreeSet<usize>) {
        self.shown = (now - self.asked <= IN_TIME).then_some(shown);
    }
}

fn has_approval(node: &Node) -> bool {
    node.annotations.contains_key(APPROVED)
}

fn has_proof(node: &Node) -> bool {
    node.annotations.contains_key(instance_gone::KEY)
}

fn has_taint(node: &Node) -> bool {
    node.taint(shutdown::KEY).is_some()
}

impl Run {
    pub fn node(&self, uid: &str) -> Option<&world::Node> {
        self.index(uid).and_then(|index| self.world.nodes.get(index))
    }

    fn is_open(&self, now: u64) -> bool {
        self.leader.machine.gauges(at(now)).is_open
    }

    /// Returns true if nothing is wrong with this node from the view of the process.
    fn is_well(&self, node: &Node, now: u64) -> bool {
        node.is_ready() && self.node(&node.uid).is_some_and(|node| !node.is_replaced(now))
    }

    fn is_in_reach(&self, node: &Node) -> bool {
        self.node(&node.uid).is_some_and(world::Node::in_reach) && !node.deleting
    }

    /// Checks that the cloud is asked only about nodes that it may know, and only when something is
    /// wrong with one of them.
    pub fn asks_rightly(&self, now: u64, ask: &Ask) -> Result<(), String> {
        for node in ask.look_up.iter().chain(&ask.witnesses) {
            if !self.is_in_reach(node) {
                return Err(self.fail(now, &format!("{} is left out and looked up", node.uid)));
            }
        }
        if let Some(node) = ask.look_up.iter().find(|node| self.is_well(node, now)) {
            return Err(self.fail(now, &format!("{} is well and looked up", node.uid)));
        }
        Ok(())
    }

    /// Checks that an open breaker can close, and a node that runs on another machine is looked up,
    /// Ready or not.
    pub fn asks_often(&self, now: u64) -> Result<(), String> {
        let trail = &self.leader.trail;
        let began = trail.began.max(self.world.schemes_from);
        let is_long_ago = |last: Option<u64>| now > last.unwrap_or(0).max(began) + SELDOM;
        let (is_open, lists) = (self.is_open(now), self.variant != Variant::Listless);
        if self.observes && lists && trail.listed.is_none() {
            return Err(self.fail(now, "an observer does not list the fleet"));
        }
        if is_open && lists && is_long_ago(trail.listed) {
            return Err(self.fail(now, "the breaker is open, and the fleet is not listed"));
        }
        for (uid, since) in &trail.moved {
            let is_there = self.leader.store.values().any(|node| node.uid == *uid)
                && self.node(uid).is_some_and(|node| node.registered(now) && !node.leaving(now));
            let last = trail.looked.get(uid).copied().unwrap_or(0).max(*since);
            if is_there && is_long_ago(Some(last)) {
                return Err(self.fail(now, &format!("{uid} runs on another machine, unseen")));
            }
        }
        Ok(())
    }

    /// Remembers that the breaker closes.
    pub fn follow_breaker(&mut self, now: u64, views: &[NodeView], effects: &[Effect]) {
        for effect in effects {
            if let Effect::Breaker { before: Breaker::Open { .. }, after: Breaker::Closed } = effect
            {
                let approved = views.iter().filter(|view| view.approved);
                let approved = approved.map(|view| view.uid.clone()).collect();
                self.leader.trail.closed = Some((now, approved));
            }
        }
    }

    /// Checks that late answers and answers from before the breaker closed do not count, and that
    /// an open breaker holds everything that is not approved.
    pub fn is_founded(
        &self,
        now: u64,
        views: &[NodeView],
        decision: &Decision,
        look: &Look,
    ) -> Result<(), String> {
        let Decision { uid, verdict, evidence, .. } = decision;
        let (Some(first), Some(latest)) = (&evidence.first, &evidence.latest) else {
            return Ok(());
        };
        if latest.asked == at(look.asked) && look.answered - look.asked > IN_TIME {
            return Err(self.fail(now, &format!("the evidence against {uid} came late")));
        }
        let source = if self.variant == Variant::Listless { Source::Lookups } else { Source::List };
        if evidence.list.is_some_and(|list| list.by != source) {
            return Err(self.fail(now, "the fleet was shown by something else"));
        }
        if let Verdict::Keep(_) = verdict {
            return Ok(());
        }
        if self.leader.store.values().all(|node| node.uid != *uid) {
            return Err(self.fail(now, &format!("{uid} is suspected after its end")));
        }
        self.is_confirmed(now, decision)?;
        if *verdict == Verdict::Delete {
            self.is_unheld(now, views, decision, look)?;
        }
        if let Some((closed, approved)) = &self.leader.trail.closed {
            let is_older = first.answered < at(*closed) && !approved.contains(uid);
            if is_older && latest.asked.since(first.answered) < PROVEN {
                return Err(self.fail(now, "evidence from before the breaker closed"));
            }
        }
        Ok(())
    }

    /// Checks that the answers about a node span the confirmation period.
    fn is_confirmed(&self, now: u64, decision: &Decision) -> Result<(), String> {
        let Decision { uid, evidence, verdict, .. } = decision;
        if let Verdict::Suspect {
            why: Doubt::Newborn | Doubt::Unconfirmed | Doubt::NoAnswer, ..
        } = verdict
        {
            return Ok(());
        }
        let span = evidence.latest.as_ref().zip(evidence.first.as_ref());
        let span = span.map(|(latest, first)| latest.asked.since(first.answered));
        match span.is_none_or(|span| span < self.variant.confirmation(&self.policy)) {
            true => Err(self.fail(now, &format!("{uid}: {verdict:?} without confirmation"))),
            false => Ok(()),
        }
    }

    /// Checks that a node is deleted if the list lacks it, and no open breaker holds it.
    fn is_unheld(
        &self,
        now: u64,
        views: &[NodeView],
        decision: &Decision,
        look: &Look,
    ) -> Result<(), String> {
        let uid = &decision.uid;
        let is_approved = views.iter().any(|view| view.uid == *uid && view.approved);
        let is_shown =
            |shown: &BTreeSet<usize>| self.index(uid).is_none_or(|at| shown.contains(&at));
        if self.variant != Variant::Listless && look.shown.as_ref().is_none_or(is_shown) {
            return Err(self.fail(now, &format!("{uid} was deleted without a list that lacks it")));
        }
        if self.is_open(now) && !is_approved {
            return Err(self.fail(now, &format!("{uid} was deleted though the breaker is open")));
        }
        Ok(())
    }

    /// Checks that a node that the operator protects is not announced as leaving.
    pub fn is_protected(
        &self,
        now: u64,
        views: &[NodeView],
        decision: &Decision,
    ) -> Result<(), String> {
        let is_it = |view: &&NodeView| view.uid == decision.uid && view.protected;
        let is_kept = matches!(
            decision.verdict,
            Verdict::Keep(_) | Verdict::Suspect { why: Doubt::NoAnswer, .. }
        );
        match views.iter().find(is_it).filter(|_| !is_kept) {
            Some(view) => Err(self.fail(now, &format!("{} is protected and held", view.uid))),
            None => Ok(()),
        }
    }

    /// Checks that witnesses, or a list that shows none of the nodes or lacks most of them, are not
    /// believed.
    pub fn is_doubted(&self, now: u64, views: &[NodeView], look: &Look) -> Result<(), String> {
        let is_denied = |view: &NodeView| view.is_well() && look.denied.contains(&view.uid);
        let is_denied = views.iter().any(is_denied) && self.variant == Variant::Listless;
        if is_denied && look.answered - look.asked <= IN_TIME && !self.is_open(now) {
            return Err(self.fail(now, "a Ready node is denied, and the cloud is believed"));
        }
        self.list_is_doubted(now, views, look)
    }

    /// Checks that a list that shows none of the nodes, or lacks most of them, is not believed.
    fn list_is_doubted(&self, now: u64, views: &[NodeView], look: &Look) -> Result<(), String> {
        let Some(shown) = &look.shown else { return Ok(()) };
        let lacks = |view: &&NodeView| self.index(&view.uid).is_none_or(|at| !shown.contains(&at));
        let missing = views.iter().filter(lacks).map(|view| Arc::clone(&view.name));
        let missing: BTreeSet<Name> = missing.collect();
        self.surveys_rightly(now, views, &missing)?;
        let grown = ms(self.policy.grace_period);
        let is_growing = |view: &NodeView| (grown..grown + APPEARED).contains(&ms(view.age));
        let is_long = self.world.end - world::START > ms(PROVEN);
        if views.iter().any(is_growing) {
            return Ok(());
        }
        let is_ours = |view: &NodeView| view.in_reach() && view.has_id && !view.marked;
        let is_empty = !views.iter().any(|view| is_ours(view) && !lacks(&view));
        let is_odd = is_empty && self.lacks_a_witness(views, &missing);
        let is_mass = !is_long && self.is_mass(views, &missing);
        let ready = views.iter().filter(|view| view.is_well() && self.is_counted(view));
        let is_contradicted = ready.clone().filter(lacks).count() * 2 > ready.count();
        // An answer "found" may have hidden from the memory that a node runs on another machine.
        let is_contradicted = is_contradicted && !views.iter().any(|one| one.ready && one.replaced);
        if (is_odd || is_mass || is_contradicted) && !self.is_open(now) {
            return Err(self.fail(now, "an implausible list was believed"));
        }
        Ok(())
    }

    /// Checks that the survey is about the selected nodes, and that a list shows only nodes that it
    /// had.
    fn surveys_rightly(
        &self,
        now: u64,
        views: &[NodeView],
        missing: &BTreeSet<Name>,
    ) -> Result<(), String> {
        let (selected, shown) = self.leader.machine.survey();
        let left_out = |node: &&Arc<Node>| self.node(&node.uid).is_none_or(|node| !node.selected());
        if let Some(node) = selected.iter().find(left_out) {
            return Err(self.fail(now, &format!("{} is left out and surveyed", node.uid)));
        }
        let there = views.iter().filter(|view| view.in_reach() && !view.uninitialised);
        let there = there.filter(|view| !missing.contains(&view.name)).count();
        match shown.filter(|shown| shown.by == Source::List && shown.found > there) {
            Some(shown) => Err(self.fail(now, &format!("{shown:?}, and the list had {there}"))),
            None => Ok(()),
        }
    }

    /// Checks that each node that is not Ready, looked up and not found is on `/plan`.
    pub fn shows_why(&self, now: u64, views: &[NodeView], look: &Look) -> Result<(), String> {
        for (name, uid, is_found) in &look.lookups {
            let is_watched = |view: &NodeView| view.uid == *uid && view.in_reach() && !view.ready;
            let is_shown = self.leader.trail.plans.contains_key(name);
            if !is_found && views.iter().any(is_watched) && !is_shown {
                return Err(self.fail(now, &format!("/plan does not have {uid}")));
            }
        }
        Ok(())
    }

    /// A node that has not changed since this pass began is on `/plan` with its wrong marks, or
    /// because it is excluded.
    pub fn shows_plans(&self, now: u64, before: &[Arc<Node>]) -> Result<(), String> {
        let version = |node: &Node| (node.uid.clone(), node.resource_version.clone());
        let stays = |node: &&Arc<Node>| {
            let known = self.leader.store.get(&node.name);
            known.is_some_and(|known| version(known) == version(node))
        };
        for node in before.iter().filter(stays) {
            let Some(known) = self.node(&node.uid) else { continue };
            if known.is_replaced(now) {
                continue;
            }
            let page = self.leader.trail.plans.get(&node.name);
            let is_marked = has_approval(node) || has_proof(node) || has_taint(node);
            let is_right = match (node.is_ready(), known.in_reach() && !node.deleting) {
                (true, true) if is_marked => matches!(page, Some(NodePlan::Steps(_))),
                (true, _) => page.is_none(),
                (false, true) => true,
                (false, false) if known.in_reach() => matches!(page, Some(NodePlan::Blocked(_))),
                (false, false) => {
                    let is_it = |left_out: &bool| *left_out == known.selected();
                    matches!(page, Some(NodePlan::LeftOut { is_selected }) if is_it(is_selected))
                }
            };
            if !is_right {
                return Err(self.fail(now, &format!("/plan says of {}: {page:?}", node.uid)));
            }
        }
        Ok(())
    }

    /// Checks that a Ready node loses its marks at once.
    pub fn removes_marks(&self, now: u64, effects: &[Effect]) -> Result<(), String> {
        let trail = &self.leader.trail;
        for node in self.leader.store.values() {
            let is_ours = self.leader.claim(node, now).is_some() && self.is_in_reach(node);
            let is_recent = trail.last(&node.uid, "marks").is_some_and(|at| at + ACCEPTED > now);
            if self.observes || is_recent || !is_ours || !self.is_well(node, now) {
                continue;
            }
            let of_it =
                |effect: &&Effect| matches!(effect, Effect::Write(action) if action.node == *node);
            let marks = match effects.iter().find(of_it) {
                Some(Effect::Write(Action { write: Write::Marks(marks), .. })) => *marks,
                _ => Marks::default(),
            };
            let is_untainted = marks.taint.is_some_and(|(step, _)| step == TaintStep::Remove);
            if (has_taint(node), has_approval(node), has_proof(node))
                != (is_untainted, marks.end_approval, marks.end_proof)
            {
                return Err(self.fail(now, &format!("{} is Ready and marked", node.uid)));
            }
        }
        Ok(())
    }

    /// Checks that this may be written now.
    pub fn writes_rightly(&self, now: u64, action: &Action) -> Result<(), String> {
        let Action { node, write } = action;
        let wrong = |what: &str| Err(self.fail(now, &format!("{}: {what}", node.uid)));
        if self.observes {
            return wrong("an observer writes");
        }
        if !self.is_in_reach(node) {
            return wrong("it is excluded and written");
        }
        if self.leader.trail.dropped(action).is_some_and(|last| last + REFUSED > now) {
            return wrong("what the API server does not store is written again at once");
        }
        match write {
            Write::Proof(..)
                if node
                    .annotation(instance_gone::KEY)
                    .is_some_and(|proof| instance_gone::is_fresh(proof, at(now))) =>
            {
                wrong("a fresh proof is written again")
            }
            Write::Marks(Marks { taint: Some((TaintStep::Remove, _)), .. })
                if !node.is_ready() && self.removal == Removal::Ready =>
            {
                wrong("its taint should stay until it is Ready")
            }
            _ => Ok(()),
        }
    }

    /// Checks that a write is reported as made only if the API server shows it, and that a write
    /// that met a newer node is not continued.
    pub fn tells_rightly(
        &self,
        now: u64,
        is_conflict: bool,
        is_made: bool,
        effects: &[Effect],
    ) -> Result<(), String> {
        for effect in effects {
            match effect {
                Effect::Write(_) if is_conflict => {
                    return Err(self.fail(now, "a node that has changed is written"));
                }
                Effect::Told(told) if told.result == Ok(true) && !is_made => {
                    let uid = &told.action.node.uid;
                    return Err(self.fail(now, &format!("{uid}: told, and not made")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns true if the API server shows these marks of a write.
    pub fn is_stored(&self, Action { node, write }: &Action) -> bool {
        let marks = self.objects.marks.get(&node.uid).cloned().unwrap_or_default();
        match write {
            Write::Delete(_) => false,
            Write::Proof(..) => marks.proof.is_some(),
            Write::Marks(Marks { taint, end_approval, end_proof }) => {
                taint.is_none_or(|(step, _)| marks.is_shut_down == (step == TaintStep::Add))
                    && (marks.is_unapproved || !end_approval)
                    && (marks.proof.is_none() || !end_proof)
            }
        }
    }

    /// Checks that the memory has the claims of the provider as the provider reported them.
    pub fn knows_claims(&self, now: u64) -> Result<(), String> {
        let claims = self.leader.machine.claims();
        let is_wrong = |(node, claim): &&(Arc<Node>, _)| self.leader.claim(node, now) != *claim;
        match claims.iter().find(is_wrong) {
            Some((node, claim)) => {
                Err(self.fail(now, &format!("{}: the memory has the claim {claim:?}", node.uid)))
            }
            None => Ok(()),
        }
    }
}
