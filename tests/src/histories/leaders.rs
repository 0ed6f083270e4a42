//! Leaders that change, and deletions that are not carried out.
//!
//! A leader leaves its window of deletions with the renewals of its Lease, and waits for a renewal before it deletes.
//! It may die before that, after that, or between two deletions. The rules count the deletions of all leaders.

use lifecycle_ccm::policy::{At, Decider, Decision, Deletion, Limit, NodeView, Replaced, Verdict};

use super::{Run, Sabotage, at, ms};

/// The annotation of the Lease with the window, as text.
#[derive(Default)]
pub struct Lease {
    /// The window that the API server has stored.
    stored: String,
    /// The window that the leader writes with its next renewal.
    left: String,
}

/// The fate of the deletions of one pass.
#[derive(Clone, Copy)]
pub struct Fate {
    /// How many the leader sends before it dies; none: it lives.
    dies_after: Option<usize>,
}

impl Fate {
    /// True if the leader sends the deletion with this number.
    pub fn allows(self, number: usize) -> bool {
        self.dies_after.is_none_or(|most| number < most)
    }

    /// True if the leader dies in this pass.
    pub const fn is_death(self) -> bool {
        self.dies_after.is_some()
    }
}

/// The budget of a fleet of this size.
const fn limit(budget: Limit) -> usize {
    match budget {
        Limit::Count(count) => count as usize,
        Limit::Percent(0) => 0,
        Limit::Percent(_) => 3,
    }
}

impl Run {
    /// The next leader begins with what is stored.
    pub(super) fn succeed(&mut self, now: u64) -> Result<(), String> {
        self.decider = Decider::default();
        if self.sabotage != Some(Sabotage::Memory) && !self.lease.stored.is_empty() {
            let window = serde_json::from_str(&self.lease.stored);
            self.decider = Decider::resume(at(now), window.map_err(|error| error.to_string())?);
        }
        // The last leader may have died before it could take a charge back.
        for (charged, uid) in self.decider.window(at(now), &self.told).after(At::default()) {
            if self.charged.iter().all(|(_, known)| **known != *uid) {
                self.charged.push((ms(charged.0), uid.into()));
            }
        }
        self.lease.left.clone_from(&self.lease.stored);
        self.healthy.fill(None);
        self.tally.leaders += 1;
        Ok(())
    }

    /// A renewal succeeds, or no renewal was due.
    pub(super) fn renew(&mut self) {
        if self.dice.percent(70) {
            self.lease.stored.clone_from(&self.lease.left);
        }
    }

    /// Leaves the window after these decisions, and returns the fate of the deletions.
    pub(super) fn fate(&mut self, now: u64, decisions: &[Decision]) -> Result<Fate, String> {
        let mut window = self.decider.window(at(now), &self.told);
        if self.dice.percent(5) {
            // The text is too long for the Lease.
            window.sum_up();
        }
        self.lease.left = serde_json::to_string(&window).map_err(|error| error.to_string())?;
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
        self.tally.killed += u64::from(dies_after.is_some());
        let stores = stores && self.sabotage != Some(Sabotage::Store);
        if stores {
            self.lease.stored.clone_from(&self.lease.left);
        }
        if dies_after == Some(0) && !stores {
            // Nobody learns of the decisions.
            self.charged.truncate(before);
        }
        Ok(Fate { dies_after })
    }

    /// Returns the node that may be deleted by this decision.
    pub(super) fn is_rightful(
        &self,
        now: u64,
        views: &[NodeView],
        decision: &Decision,
    ) -> Result<usize, String> {
        let view = views.iter().find(|view| view.uid == decision.uid);
        let index = self.index(&decision.uid);
        let node = index.and_then(|index| self.world.nodes.get(index));
        let (Some(view), Some(index), Some(node)) = (view, index, node) else {
            return Err(self.fail(now, "an unknown node was deleted"));
        };
        if node.lives(now) {
            return Err(self.fail(now, &format!("{} was deleted though it exists", node.uid)));
        }
        if view.protected || !view.is_watched() || view.age < self.policy.grace_period {
            return Err(self.fail(now, &format!("{} is exempt and was deleted", node.uid)));
        }
        let born_later =
            decision.evidence.first.as_ref().is_none_or(|first| {
                ms(first.asked.0) < node.created + ms(self.policy.grace_period)
            });
        if born_later {
            return Err(self.fail(now, &format!("evidence older than {}", node.uid)));
        }
        if view.ready && self.policy.replaced == Replaced::Report {
            return Err(self.fail(now, &format!("{} is Ready and was deleted", node.uid)));
        }
        Ok(index)
    }

    /// Sends the deletion of a node.
    pub(super) fn delete(
        &mut self,
        now: u64,
        index: usize,
        views: &[NodeView],
        decision: &Decision,
    ) -> Result<(), String> {
        if let Some(slot) = self.healthy.get_mut(index) {
            *slot = None;
        }
        let is_there = self.world.nodes.get(index).is_some_and(|node| node.registered(now));
        if !self.carry_out(now, decision, is_there) {
            return Ok(());
        }
        let shown_until = now + self.dice.within(0, 6_000);
        if let Some(node) = self.world.nodes.get_mut(index) {
            (node.removed, node.shown_until) = (now, shown_until);
        }
        let Some(view) = views.iter().find(|view| view.uid == decision.uid) else { return Ok(()) };
        self.tally.deletions += 1;
        self.tally.marked += u64::from(view.marked);
        self.tally.replaced += u64::from(view.ready);
        self.stays_within_the_budget(now, view)
    }

    /// Carries out a rightful deletion, and tells the policy the outcome. Returns true if the node is
    /// deleted.
    fn carry_out(&mut self, now: u64, decision: &Decision, is_there: bool) -> bool {
        let (outcome, is_done) = match self.dice.within(0, 100) {
            _ if !is_there && self.dice.percent(50) => (Deletion::Done, false),
            0..=4 => (Deletion::NotDone, false),
            5..=7 if is_there => (Deletion::Refused, false),
            8..=14 => (Deletion::Uncertain, is_there),
            15..=19 => (Deletion::Uncertain, false),
            _ => (Deletion::Done, is_there),
        };
        let told = match (self.sabotage, outcome) {
            (Some(Sabotage::Doubt), Deletion::Uncertain) => Deletion::NotDone,
            (Some(Sabotage::Release), Deletion::NotDone | Deletion::Refused) => Deletion::Uncertain,
            _ => outcome,
        };
        self.decider.deleted(at(now), decision, told, &self.told);
        match outcome {
            Deletion::Uncertain => self.tally.uncertain += 1,
            Deletion::NotDone | Deletion::Refused => {
                self.tally.undone += 1;
                // A deletion whose answer was lost counts, whatever the next one says.
                if !self.doubtful.contains(&decision.uid) {
                    self.charged.retain(|(_, uid)| *uid != decision.uid);
                }
            }
            _ => {}
        }
        if outcome == Deletion::Uncertain {
            self.doubtful.insert(decision.uid.clone());
        }
        is_done
    }

    /// Over all leaders, no more nodes are deleted in a window than the budget allows.
    fn stays_within_the_budget(&mut self, now: u64, view: &NodeView) -> Result<(), String> {
        if view.approved || view.marked {
            return Ok(());
        }
        self.spent.push(now);
        let window = ms(self.policy.budget_window);
        let used = self.spent.iter().filter(|spent| **spent + window > now).count();
        if used > limit(self.policy.budget) {
            return Err(self.fail(now, "over budget"));
        }
        Ok(())
    }

    /// No deletion is held but for deletions that were made, or may have been.
    fn is_held_rightly(&self, now: u64) -> Result<(), String> {
        let window = ms(self.policy.budget_window);
        let used = self.charged.iter().filter(|(at, _)| at + window > now).count();
        if used < limit(self.policy.budget) {
            return Err(self.fail(now, "held though there is budget"));
        }
        Ok(())
    }
}
