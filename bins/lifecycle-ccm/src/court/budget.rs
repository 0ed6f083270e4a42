//! How many nodes may be deleted in a window of time.

use std::collections::VecDeque;

use serde::Serialize;

use super::{At, Budget, Policy};

/// A percentage never allows fewer than this, or small clusters could not lose a node.
const LEAST: usize = 3;

/// How much of the budget is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Deletions in the window.
    pub used: usize,
    /// How many there may be.
    pub limit: usize,
}

/// The deletions of this leader, the oldest first.
#[derive(Debug, Default)]
pub struct Ledger {
    spent: VecDeque<(At, Box<str>)>,
}

impl Ledger {
    /// What is used of what is allowed with so many known nodes.
    pub fn usage(&self, now: At, known: usize, policy: &Policy) -> Usage {
        let within = |at: At| at + policy.budget_window > now;
        Usage {
            used: self.spent.iter().filter(|(at, _)| within(*at)).count(),
            limit: limit(policy.budget, known),
        }
    }

    /// Takes one deletion out of the budget; says until when there is none otherwise.
    /// A node that was paid for within the window is not paid for again.
    pub fn take(
        &mut self,
        now: At,
        uid: &str,
        known: usize,
        policy: &Policy,
    ) -> Result<(), Option<At>> {
        while self.spent.front().is_some_and(|(at, _)| *at + policy.budget_window <= now) {
            self.spent.pop_front();
        }
        if self.spent.iter().any(|(_, paid)| &**paid == uid) {
            return Ok(());
        }
        let limit = limit(policy.budget, known);
        let used = self.spent.len();
        if used < limit {
            self.spent.push_back((now, uid.into()));
            return Ok(());
        }
        let frees = if limit == 0 { None } else { self.spent.get(used - limit) };
        Err(frees.map(|(at, _)| *at + policy.budget_window))
    }

    /// Gives back what was taken for this node.
    pub fn release(&mut self, uid: &str) {
        self.spent.retain(|(_, paid)| &**paid != uid);
    }
}

fn limit(budget: Budget, known: usize) -> usize {
    match budget {
        Budget::Count(count) => usize::try_from(count).unwrap_or(usize::MAX),
        Budget::Percent(0) => 0,
        Budget::Percent(percent) => (known * usize::from(percent)).div_ceil(100).max(LEAST),
    }
}
