//! Changes of leaders, and writes that are not carried out.
//!
//! A leader leaves its window of deletions with the renewals of its Lease, and waits for a renewal before it deletes.
//! It may die before that, after that, or between two deletions. The rules count the deletions of all leaders.

use std::{mem, sync::Arc};

use ccm_controller::brake::Window;
use ccm_kube::ApiError;
use ccm_objects::Node;
use lifecycle_ccm::{
    machine::{
        Effect, Event,
        event::{HandoverNote, WriteAnswer},
    },
    policy::{
        At, Decider, Decision, Limit, NodeView, Replaced, Verdict,
        action::{Action, Write},
        shutdown::TaintStep,
    },
};

use super::{
    Run, Sabotage, at, ms,
    objects::{self, Marks, Process},
};

/// The annotation of the Lease with what is left, as text.
#[derive(Default)]
pub struct Lease {
    /// The text that the API server has stored.
    stored: String,
    /// The text that the leader writes with its next renewal.
    left: String,
}

/// A deletion that needed budget.
pub struct Spent {
    uid: Box<str>,
    decided: u64,
    /// The time of the deletion. The note to the next leader may still have the time of the
    /// decision.
    made: u64,
    /// The number of leaders before this one.
    leader: u64,
}

/// The fate of the deletions of one pass.
#[derive(Clone, Copy)]
pub struct Fate {
    /// How many deletions the leader sends before it dies. `None` means that it lives.
    dies_after: Option<usize>,
}

impl Fate {
    /// Returns true if the leader dies in this pass.
    pub const fn is_death(self) -> bool {
        self.dies_after.is_some()
    }
}

/// Returns the budget of a fleet of this size.
const fn limit(budget: Limit) -> usize {
    match budget {
        Limit::Count(count) => count as usize,
        Limit::Percent(0) => 0,
        Limit::Percent(_) => 3,
    }
}

/// The fate of a write at the API server.
#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    Done,
    Conflict,
    NotSent,
    Refused,
    /// The answer is lost; true if the write was made.
    Lost(bool),
}

impl Outcome {
    fn is_done(self) -> bool {
        matches!(self, Self::Done | Self::Lost(true))
    }

    /// Returns the fate of a write that carries an old version.
    fn of_an_old_version(self) -> Self {
        match self {
            Self::Done | Self::Refused => Self::Conflict,
            Self::Lost(_) => Self::Lost(false),
            Self::Conflict | Self::NotSent => self,
        }
    }

    fn answer(self, stored: Option<Arc<Node>>) -> WriteAnswer {
        match self {
            Self::Done => Ok(stored),
            Self::Conflict => Err(Some(ApiError::Conflict)),
            Self::NotSent => Err(None),
            Self::Refused => Err(Some(ApiError::Forbidden("no".to_owned()))),
            Self::Lost(_) => Err(Some(ApiError::Timeout)),
        }
    }
}

impl Run {
    /// Begins the term of the leader.
    pub fn begin(&mut self, now: u64) {
        let mut left =
            serde_json::from_str(&self.lease.stored).unwrap_or_else(|_| HandoverNote::default());
        if self.sabotage == Some(Sabotage::Memory) {
            left.deleted = Window::default();
        }
        // The last leader may have died before it could undo a charge.
        let window = Decider::resume(at(now), left.deleted.clone());
        for (charged, uid) in window.window(at(now), &self.parameters.policy).after(At::default()) {
            if self.charged.iter().all(|(_, known)| **known != *uid) {
                self.charged.push((ms(charged.0), uid.into()));
            }
        }
        self.leader.tell(now, Event::TermBegins(left));
        self.leader.trail.began = now;
        self.tell_set(now);
        self.lease.left.clone_from(&self.lease.stored);
    }

    /// Lets the standby lead, and starts another standby.
    pub fn succeed(&mut self, now: u64) {
        if self.observes {
            return;
        }
        let shown = self.objects.shown(&self.world, now);
        self.standby.watch(now, &shown);
        let mut next = Process::new(&self.parameters, false, self.world.schemes_from);
        next.watch(now, &shown);
        let last = mem::replace(&mut self.leader, mem::replace(&mut self.standby, next));
        self.tally.events += last.events;
        self.begin(now);
        self.healthy.fill(None);
        self.tally.leaders += 1;
    }

    /// Renews the Lease if a renewal is due.
    pub fn renew(&mut self) {
        if self.dice.percent(70) {
            self.lease.stored.clone_from(&self.lease.left);
        }
    }

    /// Leaves the data after these decisions to the next leader, and returns the fate of the
    /// deletions.
    pub fn fate(
        &mut self,
        now: u64,
        decisions: &[Decision],
        left: Option<HandoverNote>,
    ) -> Result<Fate, String> {
        let mut left = left.ok_or("nothing is left to the next leader")?;
        if self.observes {
            return Ok(Fate { dies_after: None });
        }
        self.leaves_rightly(now, decisions, &left.deleted)?;
        if self.dice.percent(5) {
            // The text is too long for the Lease.
            left.deleted.sum_up();
        }
        self.lease.left = serde_json::to_string(&left).map_err(|error| error.to_string())?;
        let deleted = decisions.iter().filter(|one| one.verdict == Verdict::Delete);
        let (count, before) = (deleted.clone().count(), self.charged.len());
        self.charged.extend(deleted.map(|decision| (now, decision.uid.clone())));
        if decisions.iter().any(|one| matches!(one.verdict, Verdict::OverBudget { .. })) {
            self.is_held_rightly(now)?;
        }
        if count == 0 {
            return Ok(Fate { dies_after: None });
        }
        let dies_after = self.dice.percent(20).then(|| self.dice.within(0, count as u64 + 1));
        let dies_after = dies_after.map(|most| usize::try_from(most).unwrap_or(count));
        // The renewal may fail only if the leader dies of that.
        let stores = dies_after != Some(0) || self.dice.percent(50);
        let stores = stores && self.sabotage != Some(Sabotage::Store);
        if stores {
            self.lease.stored.clone_from(&self.lease.left);
        }
        if dies_after == Some(0) && !stores {
            // Nobody learns about the decisions.
            self.charged.truncate(before);
        }
        Ok(Fate { dies_after })
    }

    /// Checks that the note to the next leader has exactly the deletions that still count, with the
    /// time when this leader made them or, before that, the time of the decision.
    fn leaves_rightly(
        &self,
        now: u64,
        decisions: &[Decision],
        left: &Window,
    ) -> Result<(), String> {
        let begins = now.saturating_sub(ms(self.policy.budget_window));
        if left.after(At::default()).any(|(time, _)| time < at(begins)) {
            return Err(self.fail(now, "a deletion is left that does not count any more"));
        }
        let is_known = |uid: &str| self.charged.iter().any(|(_, known)| **known == *uid);
        let is_decided = |uid: &str| decisions.iter().any(|decision| *decision.uid == *uid);
        let mut uids = left.after(At::default()).map(|(_, uid)| uid);
        if let Some(uid) = uids.find(|uid| !is_known(uid) && !is_decided(uid)) {
            return Err(self.fail(now, &format!("{uid} was not deleted, and it is left")));
        }
        let is_marked = |uid: &str| self.node(uid).is_some_and(|node| node.marked(now));
        let decided = decisions.iter().filter(|one| one.verdict == Verdict::Delete);
        let decided = decided.filter(|one| !one.approved && !is_marked(&one.uid));
        let decided = decided.map(|one| (&one.uid, now));
        let own = self.spent.iter().filter(|one| one.leader == self.tally.leaders);
        let made = own.map(|one| (&one.uid, one.made)).filter(|(_, made)| *made > begins);
        for (uid, since) in decided.chain(made) {
            if !left.after(At::default()).any(|(time, one)| *one == **uid && time >= at(since)) {
                return Err(self.fail(now, &format!("the deletion of {uid} is not left")));
            }
        }
        Ok(())
    }

    /// Checks that a node may be deleted by this decision.
    pub fn is_rightful(
        &self,
        now: u64,
        views: &[NodeView],
        decision: &Decision,
    ) -> Result<(), String> {
        let view = views.iter().find(|view| view.uid == decision.uid);
        let node = self.index(&decision.uid).and_then(|index| self.world.nodes.get(index));
        let (Some(view), Some(node)) = (view, node) else {
            return Err(self.fail(now, "an unknown node was deleted"));
        };
        if node.lives(now) {
            return Err(self.fail(now, &format!("{} was deleted though it exists", node.uid)));
        }
        let is_judged = node.has_id() || self.deletes_ghost(view);
        let is_grown = view.age >= self.policy.grace_period;
        if view.protected || !view.is_watched() || !is_grown || !is_judged {
            return Err(self.fail(now, &format!("{} is exempt and was deleted", node.uid)));
        }
        let grown = node.created + ms(self.policy.grace_period);
        if decision.evidence.first.as_ref().is_none_or(|first| ms(first.asked.0) < grown) {
            return Err(self.fail(now, &format!("evidence older than {}", node.uid)));
        }
        if view.ready && self.policy.replaced == Replaced::Report {
            return Err(self.fail(now, &format!("{} is Ready and was deleted", node.uid)));
        }
        Ok(())
    }

    /// Writes marks.
    pub fn mark(&mut self, now: u64, effects: Vec<Effect>) -> Result<(), String> {
        for effect in effects {
            if let Effect::Write(action) = effect {
                self.send(now, action)?;
            }
        }
        Ok(())
    }

    /// Makes these writes while the leader lives. Returns the time of the last answer.
    pub fn write(
        &mut self,
        decided: u64,
        views: &[NodeView],
        writes: Vec<Action>,
        fate: Fate,
    ) -> Result<u64, String> {
        let (mut now, mut deletions) = (decided, 0);
        for action in writes {
            if !matches!(action.write, Write::Marks(_)) {
                deletions += 1;
                if fate.dies_after.is_some_and(|most| deletions > most) {
                    continue;
                }
                if let Some(index) = self.index(&action.node.uid) {
                    self.healthy[index] = None;
                }
            }
            let uid = action.node.uid.clone();
            let mut open = Some(action);
            while let Some(action) = open {
                let is_deletion = matches!(action.write, Write::Delete(_));
                // The window on the Lease of a leader that dies has the times of its decisions.
                now += if fate.is_death() { 0 } else { self.pause() };
                let (is_done, next) = self.send(now, action)?;
                open = next;
                if is_deletion && is_done {
                    self.deleted(now, decided, &uid, views)?;
                }
            }
        }
        Ok(now)
    }

    /// Returns the time that a write takes.
    fn pause(&mut self) -> u64 {
        if self.dice.percent(5) {
            self.dice.within(1_000, 45_000)
        } else {
            self.dice.within(0, 300)
        }
    }

    fn deleted(
        &mut self,
        now: u64,
        decided: u64,
        uid: &str,
        views: &[NodeView],
    ) -> Result<(), String> {
        let shown_until = now + self.dice.within(0, 12_000);
        let index = self.index(uid).and_then(|index| self.world.nodes.get_mut(index));
        if let Some(node) = index {
            (node.removed, node.shown_until) = (now, shown_until);
        }
        self.tally.deletions += 1;
        let Some(view) = views.iter().find(|view| *view.uid == *uid) else { return Ok(()) };
        self.stays_within_the_budget(now, decided, view)
    }

    fn outcome(&mut self, is_there: bool, is_deletion: bool) -> Outcome {
        match self.dice.within(0, 100) {
            // The node is gone, but the informer still shows it.
            _ if !is_there && is_deletion && self.dice.percent(50) => Outcome::Done,
            _ if !is_there && is_deletion && self.dice.percent(50) => Outcome::NotSent,
            0..=2 => Outcome::Conflict,
            3..=4 => Outcome::NotSent,
            5..=7 if is_there => Outcome::Refused,
            8..=14 => Outcome::Lost(is_there),
            15..=19 => Outcome::Lost(false),
            _ if is_there || is_deletion => Outcome::Done,
            _ => Outcome::Conflict,
        }
    }

    /// Sends a write. Returns true if it was made, and the write that follows.
    fn send(&mut self, now: u64, action: Action) -> Result<(bool, Option<Action>), String> {
        self.writes_rightly(now, &action)?;
        let index = self
            .index(&action.node.uid)
            .filter(|index| self.world.nodes.get(*index).is_some_and(|node| node.registered(now)));
        let current = index.map(|index| self.objects.get(&self.world.nodes[index], now));
        let is_there = current.is_some();
        let is_deletion = matches!(action.write, Write::Delete(_));
        let mut outcome = self.outcome(is_there, is_deletion);
        if current.is_some_and(|node| node.resource_version != action.node.resource_version) {
            outcome = outcome.of_an_old_version();
        }
        let is_done = outcome.is_done() && is_there;
        let mut is_made = is_deletion && (is_done || !is_there);
        let mut stored = None;
        if !is_deletion && is_done {
            stored = Some(self.store(now, &action));
            is_made = self.is_stored(&action);
            self.tally.marks += 1;
            self.overtake(now);
        }
        self.charge(now, &action, outcome);
        let answer = self.told(&action, outcome, stored);
        if let Ok(answer) = &answer {
            self.leader.answered(answer.as_ref());
            self.leader.trail.wrote(now, &action, is_made);
        }
        let effects = self.leader.tell(now, Event::Written { action, answer });
        self.tells_rightly(now, outcome == Outcome::Conflict, is_made, &effects)?;
        let next = effects.into_iter().find_map(|effect| match effect {
            Effect::Write(action) => Some(action),
            _ => None,
        });
        Ok((is_done, next))
    }

    /// Lets the watch show a write, and a later change, before the answer to the write comes.
    fn overtake(&mut self, now: u64) {
        if self.dice.percent(30) {
            self.watch(now);
            if self.dice.percent(30) {
                self.meddle(now);
                self.watch(now);
            }
        }
    }

    /// Returns the answer, or another one if a rule is missing.
    fn told(&self, action: &Action, outcome: Outcome, stored: Option<Arc<Node>>) -> WriteAnswer {
        let is_deletion = matches!(action.write, Write::Delete(_));
        let outcome = match (self.sabotage, outcome) {
            (Some(Sabotage::Dropped), Outcome::Done) if !is_deletion => {
                return Ok(stored.map(|_| objects::unmarked(&action.node)));
            }
            _ if !is_deletion => outcome,
            (Some(Sabotage::Doubt), Outcome::Lost(_)) => Outcome::NotSent,
            (Some(Sabotage::Release), Outcome::Conflict | Outcome::NotSent | Outcome::Refused) => {
                Outcome::Lost(false)
            }
            _ => outcome,
        };
        outcome.answer(stored)
    }

    /// Returns the marks that this write leaves on its node.
    fn store(&mut self, now: u64, Action { node, write }: &Action) -> Arc<Node> {
        let marks: &mut Marks = self.objects.marks.entry(node.uid.clone()).or_default();
        match write {
            Write::Delete(_) => {}
            Write::Proof(..) if self.admission.drops_proof(now) => {}
            Write::Proof(_, proof) => marks.proof = Some(proof.clone()),
            Write::Marks(written) => {
                let written = self.admission.stored(now, *written);
                marks.is_unapproved |= written.end_approval;
                marks.proof.take_if(|_| written.end_proof);
                if let Some((step, _)) = written.taint {
                    marks.is_shut_down = step == TaintStep::Add;
                }
            }
        }
        let index = self.index(&node.uid).and_then(|index| self.world.nodes.get(index));
        index.map_or_else(|| Arc::clone(node), |known| self.objects.get(known, now))
    }

    /// Counts what a deletion is charged.
    fn charge(&mut self, now: u64, action: &Action, outcome: Outcome) {
        let uid = &action.node.uid;
        let stops = matches!(outcome, Outcome::Conflict | Outcome::NotSent);
        let (is_undone, is_lost) = match action.write {
            Write::Marks(_) => return,
            Write::Proof(..) => (stops, false),
            Write::Delete(_) => {
                (stops || outcome == Outcome::Refused, matches!(outcome, Outcome::Lost(_)))
            }
        };
        self.tally.undone += u64::from(is_undone || is_lost);
        // A deletion whose answer was lost counts, even if the next answer is an error.
        if is_undone && !self.doubtful.contains(uid) {
            self.charged.retain(|(_, known)| known != uid);
        }
        if is_lost {
            self.doubtful.insert(uid.clone());
        }
        if !is_undone && matches!(action.write, Write::Delete(_)) {
            // The window counts from the deletion.
            let charged = self.charged.iter_mut().filter(|(_, known)| known == uid);
            charged.for_each(|(at, _)| *at = now);
        }
    }

    /// Checks that, over all leaders, no more nodes are deleted in a window than the budget allows.
    fn stays_within_the_budget(
        &mut self,
        now: u64,
        decided: u64,
        view: &NodeView,
    ) -> Result<(), String> {
        if view.approved || view.marked {
            return Ok(());
        }
        let leader = self.tally.leaders;
        self.spent.push(Spent { uid: view.uid.clone(), decided, made: now, leader });
        let window = ms(self.policy.budget_window);
        let since = |spent: &Spent| if spent.leader == leader { spent.made } else { spent.decided };
        let used = self.spent.iter().filter(|spent| since(spent) + window > now).count();
        if used > limit(self.policy.budget) {
            return Err(self.fail(now, "over budget"));
        }
        Ok(())
    }

    /// Checks that deletions are held only because of deletions that were made, or may have been
    /// made.
    fn is_held_rightly(&self, now: u64) -> Result<(), String> {
        let window = ms(self.policy.budget_window);
        let used = self.charged.iter().filter(|(at, _)| at + window > now).count();
        if used < limit(self.policy.budget) {
            return Err(self.fail(now, "held though there is budget"));
        }
        Ok(())
    }
}
