//! Turns: spaces out writes that many nodes need at the same time.
//!
//! A node whose turn has not come goes back to the queue until then. So it does not occupy a worker
//! while it waits, other work on the same node is not delayed, and nothing has to be drained.

use std::{collections::BTreeMap, time::Duration};

use ccm_base::At;
use ccm_objects::Shared as Name;
use serde::{Deserialize, Serialize};

/// The time for which a turn is valid. It is longer than a node takes from the queue to its worker,
/// but short, so that missed turns are not all used at the end of a disturbance.
const VALID: Duration = Duration::from_secs(10);
/// The longest interval between two writes.
const LONGEST: Duration = Duration::from_hours(1);

/// The turns of nodes that wait for one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Turns {
    rate: Option<f64>,
    interval: Duration,
    /// When the last reserved interval ends.
    full_at: Option<At>,
    waiting: BTreeMap<Name, At>,
}

impl Turns {
    /// Allows at most this many writes per second on average, and one second's worth at once;
    /// `None` for no limit.
    pub(super) fn new(rate: Option<f64>) -> Self {
        let interval = Duration::try_from_secs_f64(rate.unwrap_or(f64::INFINITY).recip());
        let interval = interval.map_or(LONGEST, |interval| interval.min(LONGEST));
        Self { rate, interval, full_at: None, waiting: BTreeMap::new() }
    }

    /// Uses the node's turn for this many writes if it has come. Otherwise reserves a turn.
    ///
    /// # Errors
    ///
    /// The time until the node's turn.
    pub(super) fn take(&mut self, name: &Name, writes: usize, now: At) -> Result<(), Duration> {
        let known = self.waiting.get(name).copied().filter(|turn| now < *turn + VALID);
        let turn =
            known.unwrap_or_else(|| (0..writes).map(|_| self.reserve(now)).fold(now, At::max));
        if turn <= now || self.rate.is_none() {
            self.waiting.remove(name);
            return Ok(());
        }
        self.waiting.insert(Name::clone(name), turn);
        Err(turn.since(now))
    }

    /// Reserves the time for one write, and returns when it may begin.
    fn reserve(&mut self, now: At) -> At {
        let start = self.full_at.map_or(now, |at| at.max(now));
        self.full_at = Some(start + self.interval);
        let at_once = Duration::from_secs(1).saturating_sub(self.interval);
        now + start.since(now).saturating_sub(at_once)
    }

    /// Forgets a node that does not need a turn any more.
    pub(super) fn forget(&mut self, name: &Name) {
        self.waiting.remove(name);
    }

    /// Changes the rate. All waiting nodes lose their turns and are returned: they have to reserve
    /// new ones.
    pub(super) fn configure(&mut self, rate: Option<f64>) -> Vec<Name> {
        if rate == self.rate {
            return Vec::new();
        }
        let old = std::mem::replace(self, Self::new(rate));
        old.waiting.into_keys().collect()
    }

    /// Returns the number of nodes that wait for their turn.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const START: At = At(Duration::from_hours(1));

    fn names(count: usize) -> Vec<Name> {
        (0..count).map(|number| number.to_string().into()).collect()
    }

    #[test]
    fn many_nodes_get_one_second_at_once_and_then_the_rate() {
        let mut turns = Turns::new(Some(50.0));
        let mut due: Vec<(Name, At)> = names(240).into_iter().map(|name| (name, START)).collect();
        let mut done = [0; 5];
        while let Some((name, at)) = due.pop() {
            match turns.take(&name, 1, at) {
                Ok(()) => done[usize::try_from(at.since(START).as_secs()).unwrap()] += 1,
                Err(wait) => due.insert(0, (name, at + wait)),
            }
        }
        assert_eq!((done, turns.waiting()), ([99, 50, 50, 41, 0], 0));
        let mut unlimited = Turns::new(None);
        assert!(names(240).iter().all(|name| unlimited.take(name, 1, START).is_ok()));
        for (rate, wait) in [(f64::MIN_POSITIVE, LONGEST), (0.5, 2 * SECOND)] {
            let mut rare = Turns::new(Some(rate));
            let [one, other] = ["a".into(), "b".into()];
            assert_eq!(rare.take(&one, 1, START), Ok(()));
            assert_eq!(rare.take(&other, 1, START), Err(wait), "{rate}");
        }
    }

    #[test]
    fn a_node_keeps_its_turn_and_asks_once_for_it() {
        let (mut turns, now) = (Turns::new(Some(1.0)), START);
        let [a, b, c]: [Name; 3] = ["a".into(), "b".into(), "c".into()];
        assert_eq!(turns.take(&a, 1, now), Ok(()));
        assert_eq!(turns.take(&b, 1, now), Err(SECOND));
        assert_eq!(turns.take(&c, 2, now), Err(3 * SECOND), "two writes take two turns");
        for early in [0, 400, 900] {
            let early = Duration::from_millis(early);
            assert_eq!(turns.take(&b, 1, now + early), Err(SECOND - early));
        }
        assert_eq!(turns.take(&b, 1, now + 3 * SECOND), Ok(()), "a little late is in time");
        assert_eq!(turns.waiting(), 1);
        turns.forget(&c);
        assert_eq!(turns.waiting(), 0);
    }

    /// After a disturbance all nodes are due at once.
    #[test]
    fn missed_turns_are_not_all_used_at_once() {
        let mut turns = Turns::new(Some(50.0));
        let names = names(5000);
        for now in [START, START + Duration::from_mins(5)] {
            let at_once = names.iter().filter(|name| turns.take(name, 1, now).is_ok()).count();
            assert_eq!(at_once, 50);
        }
    }

    #[test]
    fn a_new_rate_voids_the_turns() {
        let (mut turns, now) = (Turns::new(Some(0.01)), START);
        let [a, b]: [Name; 2] = ["a".into(), "b".into()];
        assert_eq!(turns.take(&a, 1, now), Ok(()));
        turns.take(&b, 1, now).unwrap_err();
        assert!(turns.configure(Some(0.01)).is_empty(), "the same rate");
        assert_eq!(turns.waiting(), 1);
        assert_eq!(turns.configure(Some(50.0)), [Name::clone(&b)]);
        assert_eq!(turns.take(&b, 1, now), Ok(()));
        assert!(turns.configure(None).is_empty());
    }
}
