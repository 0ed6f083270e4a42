//! Computes the batch size: how many keys one call to a cloud asks about. Pure.
//!
//! A provider that works key by key answers a large call too late, and then the whole call may be
//! lost. This module learns from the calls how many keys the provider answers in time: the size
//! shrinks when most keys of a call got no answer, and grows again while calls are fast.

use std::time::Duration;

use ccm_cloud::{ErrorKind, LookupResult};

/// The factor by which the size shrinks after a call without any answer. It is large because
/// each such call costs its whole time limit, while growing costs only short calls.
const SHRINK: usize = 8;
/// The size doubles after an almost full call that took at most this share of its time limit, so that a
/// call of twice the size takes at most half of it.
const FAST: u32 = 4;

/// A call about several keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchCall {
    /// The number of keys.
    pub asked: usize,
    /// The number of keys that were answered, if only by an error about the key.
    pub answered: usize,
    /// The duration of the call.
    pub took: Duration,
    /// Its time limit.
    pub limit: Duration,
}

/// Returns true if this answer may be the failure of a whole call that had too many keys.
pub fn may_concern_all(answer: &LookupResult) -> bool {
    let kinds = [ErrorKind::Timeout, ErrorKind::Invalid, ErrorKind::Malformed];
    answer.as_ref().is_err_and(|error| kinds.contains(&error.kind))
}

impl BatchCall {
    /// Returns true if most keys got no answer, so that fewer keys may get more answers.
    pub const fn is_too_large(&self) -> bool {
        self.asked > 1 && self.answered < self.asked.div_ceil(2)
    }
}

/// The maximum number of keys in the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSize {
    now: usize,
    most: usize,
}

impl BatchSize {
    /// Begins with the largest size, at least 1.
    pub const fn new(most: usize) -> Self {
        let most = if most == 0 { 1 } else { most };
        Self { now: most, most }
    }

    /// Returns the current size.
    pub const fn get(self) -> usize {
        self.now
    }

    /// Learns from a call. Calls may overlap: each counts by its own number of keys.
    pub fn learn(&mut self, call: &BatchCall) {
        let &BatchCall { asked, answered, took, limit } = call;
        if call.is_too_large() {
            // The next call asks about fewer keys than were answered, so that it ends before its
            // time limit.
            self.now = self.now.min((answered - answered / 4).max(asked / SHRINK).max(1));
        } else if asked == 1 && answered == 0 {
            // A single key is as late: the size is not the reason.
            self.now = self.now.max(self.most / SHRINK);
        } else if asked * 4 >= self.now * 3 && answered == asked && took * FAST <= limit {
            self.now = self.now.saturating_mul(2).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn call(asked: usize, answered: usize, took: u64) -> BatchCall {
        BatchCall { asked, answered, took: Duration::from_secs(took), limit: LIMIT }
    }

    /// Returns the size after these calls.
    fn learned(most: usize, calls: &[BatchCall]) -> usize {
        let mut size = BatchSize::new(most);
        for call in calls {
            size.learn(call);
        }
        size.get()
    }

    #[test]
    fn the_size_follows_the_answers() {
        for (calls, expect) in [
            (&[] as &[BatchCall], 500),
            // Without any answer the size shrinks to an eighth, and to one at the least.
            (&[call(500, 0, 30)], 62),
            (&[call(500, 0, 30), call(62, 0, 30)], 7),
            (&[call(500, 0, 30), call(62, 0, 30), call(7, 0, 30)], 1),
            // A small call that is late says more than a large one.
            (&[call(40, 0, 30)], 5),
            (&[call(40, 0, 30), call(400, 0, 30)], 5),
            // With some answers the size shrinks to three quarters of them.
            (&[call(500, 200, 30)], 150),
            (&[call(500, 10, 30)], 62),
            // With most answers the size stays: the other keys are late for another reason.
            (&[call(500, 250, 30)], 500),
            (&[call(2, 1, 30)], 500),
            (&[call(3, 1, 30)], 1),
        ] {
            assert_eq!(learned(500, calls), expect, "{calls:?}");
        }
    }

    #[test]
    fn a_fast_full_call_doubles_the_size() {
        let late = call(500, 0, 30);
        for (next, expect) in [
            (call(62, 62, 7), 124),
            (call(62, 62, 8), 62),
            (call(62, 61, 1), 62),
            // The first call is almost full, the second is not.
            (call(47, 47, 1), 124),
            (call(46, 46, 1), 62),
        ] {
            assert_eq!(learned(500, &[late, next]), expect, "{next:?}");
        }
        assert_eq!(learned(500, &[call(500, 500, 1)]), 500, "the largest size is the limit");
        let quick: Vec<_> =
            [62, 124, 248, 496].into_iter().map(|size| call(size, size, 1)).collect();
        assert_eq!(learned(500, &[&[late], &*quick].concat()), 500);
    }

    /// A cloud that hangs must not leave the program with calls about one key.
    #[test]
    fn a_single_key_without_an_answer_is_no_reason_for_small_calls() {
        let calls = [call(500, 0, 30), call(62, 0, 30), call(7, 0, 30), call(1, 0, 30)];
        assert_eq!(learned(500, &calls), 62);
        assert_eq!(learned(500, &[call(1, 0, 30)]), 500);
    }

    #[test]
    fn odd_bounds_do_no_harm() {
        for most in [0, 1, 7] {
            let mut size = BatchSize::new(most);
            for call in [call(0, 0, 0), call(1, 0, 30), call(9, 0, 30), call(1, 1, 0)] {
                size.learn(&call);
                assert!((1..=most.max(1)).contains(&size.get()), "{most}, {call:?}");
            }
        }
    }

    /// Simulates a provider that works key by key, in `lanes` calls at once, each with the same
    /// size.
    #[test]
    fn a_provider_that_needs_time_for_each_key_gets_what_it_can_answer() {
        for (millis, lanes) in [(50, 1), (50, 4), (200, 4), (1, 4)] {
            let mut size = BatchSize::new(500);
            let needs =
                |size: usize| Duration::from_millis(millis) * lanes * u32::try_from(size).unwrap();
            for _ in 0..20 {
                let (asked, limit) = (size.get(), Duration::from_secs(3));
                let took = needs(asked).min(limit);
                let answered = if needs(asked) <= limit { asked } else { 0 };
                size.learn(&BatchCall { asked, answered, took, limit });
            }
            let (got, best) = (size.get(), 3000 / (millis * u64::from(lanes)));
            let best = usize::try_from(best).unwrap().min(500);
            assert!(got <= best && got > best / 8, "{millis} ms, {lanes} lanes: {got} of {best}");
        }
    }
}
