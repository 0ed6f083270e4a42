use std::collections::VecDeque;

use ccm_base::At;
use serde::{Deserialize, Serialize};

use super::Budget;

/// The used part of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Changes in the window.
    pub used: usize,
    /// How many changes are allowed.
    pub limit: usize,
}

/// An entry whose UID begins with this represents several older changes: `~3` for three. UIDs and
/// names of objects never begin with it.
const SUM: char = '~';

/// The maximum number of changes that one entry, or all entries of a record together, may stand
/// for: more than the largest clusters have nodes. The bound is necessary because a record may
/// contain any number, and each change costs memory.
const MOST: usize = 20_000;

/// Returns the number of changes that the entry with this UID represents.
pub fn sum(uid: &str) -> usize {
    let number = uid.strip_prefix(SUM).and_then(|number| number.parse().ok());
    number.map_or(1, |number: usize| number.min(MOST))
}

/// Returns true if the entry with this UID represents unnamed changes.
pub fn is_sum(uid: &str) -> bool {
    uid.starts_with(SUM)
}

/// Returns one entry for each change that this one represents.
fn split(uid: &str) -> impl Iterator<Item = Box<str>> {
    let count = sum(uid);
    (0..count).map(move |number| match count {
        1 => uid.into(),
        _ => format!("{SUM}{count}/{number}").into(),
    })
}

/// Returns one entry for each change that these represent, but no more than [`MOST`].
pub fn split_all<'a>(
    entries: impl Iterator<Item = (At, &'a str)>,
) -> impl Iterator<Item = (At, Box<str>)> {
    entries.flat_map(|(at, uid)| split(uid).map(move |uid| (at, uid))).take(MOST)
}

/// Sums up the older half of these as one entry with the time of the last of them. Returns `None`
/// if they are too few.
pub fn summed_up<'a>(entries: &[(At, &'a str)]) -> Option<(At, Box<str>, Vec<&'a str>)> {
    let mut entries: Vec<_> = entries.to_vec();
    entries.sort_unstable();
    let older = entries.get(..entries.len() / 2).filter(|older| older.len() > 1)?;
    let count: usize = older.iter().map(|(_, uid)| sum(uid)).sum();
    let (at, _) = older.last()?;
    Some((*at, format!("{SUM}{count}").into(), older.iter().map(|(_, uid)| *uid).collect()))
}

/// Recent changes by UID, the oldest first. A leader stores it, serialised, for the next
/// one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Window {
    spent: VecDeque<(At, Box<str>)>,
}

impl FromIterator<(At, Box<str>)> for Window {
    /// Collects changes in any order.
    fn from_iter<I: IntoIterator<Item = (At, Box<str>)>>(changes: I) -> Self {
        let mut spent: VecDeque<_> = changes.into_iter().collect();
        spent.make_contiguous().sort();
        Self { spent }
    }
}

impl Window {
    /// Returns the changes after this time, the oldest first, with their UIDs.
    pub fn after(&self, time: At) -> impl Iterator<Item = (At, &str)> {
        self.spent.iter().filter(move |(at, _)| *at > time).map(|(at, uid)| (*at, &**uid))
    }

    /// Replaces the older half of the entries by one. Returns false if it cannot.
    pub fn sum_up(&mut self) -> bool {
        let entries: Vec<_> = self.spent.iter().map(|(at, uid)| (*at, &**uid)).collect();
        let Some((at, sum, older)) = summed_up(&entries) else { return false };
        let older = older.len();
        self.spent.make_contiguous().sort();
        self.spent.drain(..older);
        self.spent.push_front((at, sum));
        true
    }

    /// Returns the window as read by another process. If that process's clock is behind, a change
    /// in the future counts as one at `now`, so it holds for one window at most.
    pub(super) fn read_at(mut self, now: At) -> Self {
        // The newest changes count for the longest time.
        let newest = self.spent.iter().rev().map(|(at, uid)| ((*at).min(now), &**uid));
        self.spent = split_all(newest).collect();
        self.spent.make_contiguous().sort_by_key(|(at, _)| *at);
        self
    }

    pub(super) fn usage(&self, now: At, population: usize, budget: Budget) -> Usage {
        let within = |at: At| at + budget.window > now;
        Usage {
            used: self.spent.iter().filter(|(at, _)| within(*at)).count(),
            limit: budget.limit.for_population(population),
        }
    }

    /// Charges one change. The error is the time at which budget becomes available.
    pub(super) fn take(
        &mut self,
        now: At,
        uid: &str,
        population: usize,
        budget: Budget,
    ) -> Result<(), Option<At>> {
        while self.spent.front().is_some_and(|(at, _)| *at + budget.window <= now) {
            self.spent.pop_front();
        }
        if self.spent.iter().any(|(_, paid)| &**paid == uid) {
            return Ok(());
        }
        let limit = budget.limit.for_population(population);
        let used = self.spent.len();
        if used < limit {
            self.spent.push_back((now, uid.into()));
            return Ok(());
        }
        let frees = if limit == 0 { None } else { self.spent.get(used - limit) };
        Err(frees.map(|(at, _)| *at + budget.window))
    }

    /// Records that a change that was charged is made only now.
    pub(super) fn renew(&mut self, now: At, uid: &str) {
        if let Some(place) = self.spent.iter().position(|(_, paid)| &**paid == uid)
            && let Some((_, paid)) = self.spent.remove(place)
        {
            self.spent.push_back((now, paid));
        }
    }

    pub(super) fn release(&mut self, uid: &str) {
        self.spent.retain(|(_, paid)| &**paid != uid);
    }
}
