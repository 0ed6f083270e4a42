//! The rate of each key.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    time::Duration,
};

use tokio::time::Instant;

use ccm_base::later;

/// How often one key may be added with [`WorkQueue::add_paced`](super::WorkQueue::add_paced).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRate {
    /// How often it may be added in a row.
    pub burst: u32,
    /// The time between two adds after that. Zero: no limit.
    pub interval: Duration,
}

/// When the bucket of each key is full again. A key with a full bucket is not kept.
#[derive(Debug)]
pub(super) struct Paces<K> {
    rate: KeyRate,
    full_at: HashMap<K, Instant>,
    /// Each kept key once, with a time at which its bucket may be full.
    looks: VecDeque<(Instant, K)>,
}

impl<K: Clone + Eq + Hash> Paces<K> {
    pub(super) fn new(rate: KeyRate) -> Self {
        Self { rate, full_at: HashMap::new(), looks: VecDeque::new() }
    }

    /// Takes from the bucket of this key. Returns how long the key has to wait.
    pub(super) fn reserve(&mut self, key: &K, now: Instant) -> Duration {
        let KeyRate { burst, interval } = self.rate;
        if interval.is_zero() {
            return Duration::ZERO;
        }
        self.forget_full(now);
        let known = self.full_at.get(key).copied();
        let start = known.map_or(now, |at| at.max(now));
        let full_at = later(start, interval);
        self.full_at.insert(key.clone(), full_at);
        if known.is_none() {
            self.looks.push_back((full_at, key.clone()));
        }
        let at_once = interval.saturating_mul(burst.saturating_sub(1));
        start.duration_since(now).saturating_sub(at_once)
    }

    fn forget_full(&mut self, now: Instant) {
        while self.looks.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.looks.pop_front() else { return };
            match self.full_at.get(&key).copied() {
                Some(full_at) if full_at > now => self.looks.push_back((full_at, key)),
                _ => drop(self.full_at.remove(&key)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_added_all_the_time_waits_for_itself_alone() {
        let second = Duration::from_secs(1);
        let mut paces = Paces::new(KeyRate { burst: 3, interval: 10 * second });
        let begin = Instant::now();
        let waits: Vec<_> = (0..5).map(|_| paces.reserve(&1, begin).as_secs()).collect();
        assert_eq!(waits, [0, 0, 0, 10, 20]);
        assert_eq!(paces.reserve(&2, begin), Duration::ZERO);
        let later = begin + 50 * second;
        assert_eq!(paces.reserve(&2, later), Duration::ZERO, "it is full again");
        assert_eq!((paces.full_at.len(), paces.looks.len()), (1, 1), "a full one is not kept");
        let mut none = Paces::new(KeyRate { burst: 1, interval: Duration::ZERO });
        assert!((0..99).all(|_| none.reserve(&1, begin).is_zero()));
    }
}
