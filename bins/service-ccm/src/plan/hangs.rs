//! Calls that do not return in time: which Services are served by slow lanes, and when one of these
//! lanes makes a call.
//!
//! A Service whose call alone does not return keeps its slow lane until it does. If the cloud does
//! not answer any call of one kind, all Services with such a call are slow. The slow lanes then try
//! in turn whether it answers again, and the first answer to a call of this kind returns these
//! Services to the usual lanes.

use std::{collections::BTreeMap, time::Duration};

use ccm_base::At;
use serde::{Deserialize, Serialize};

use super::CallKind;

/// The number of lanes for Services whose last call did not return in time.
pub const SLOW_LANES: u32 = 4;

/// A call that did not return in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowCall {
    /// Its kind.
    pub call: CallKind,
    /// True if the cloud has answered other calls of this kind in the meantime.
    pub alone: bool,
}

/// The state of the calls of all Services.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Hangs {
    /// When the cloud last carried out a call of each kind.
    answered: BTreeMap<CallKind, At>,
    /// The kinds of calls that the cloud did not answer at all, so that Services wait.
    waiting: Vec<CallKind>,
    /// The number of slow lanes at work, and when the last one began.
    at_work: usize,
    began: At,
}

impl Hangs {
    /// Records that a call that began then did not return in time.
    pub fn timed_out(&mut self, call: CallKind, began: At) -> SlowCall {
        let alone = self.answered.get(&call).is_some_and(|answered| began < *answered);
        if !alone && !self.waiting.contains(&call) {
            self.waiting.push(call);
        }
        SlowCall { call, alone }
    }

    /// Records that the cloud has carried out a call. Returns true if Services wait for that.
    pub fn record_success(&mut self, call: CallKind, now: At) -> bool {
        self.answered.insert(call, now);
        let before = self.waiting.len();
        self.waiting.retain(|waiting| *waiting != call);
        self.waiting.len() < before
    }

    /// Records that a slow lane begins, or has ended.
    pub fn slow_lane(&mut self, begins: bool, now: At) {
        if begins {
            (self.at_work, self.began) = (self.at_work + 1, now);
        } else {
            self.at_work = self.at_work.saturating_sub(1);
        }
    }

    /// Returns when the next slow lane may begin if no other one ends before. `None` means at once.
    /// If the lanes began together, all could begin just before the cloud answers again.
    pub fn next(&self, limit: Duration) -> Option<At> {
        (self.at_work > 0).then(|| self.began + limit / SLOW_LANES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> At {
        At(Duration::from_secs(seconds))
    }

    #[test]
    fn a_call_that_hangs_alone_is_told_from_a_cloud_that_hangs() {
        let (mut hangs, members, ensure) = (Hangs::default(), CallKind::Members, CallKind::Ensure);
        assert!(!hangs.record_success(members, at(10)), "nobody waits");
        assert!(!hangs.timed_out(members, at(10)).alone, "no answer since it began");
        assert!(hangs.timed_out(members, at(9)).alone, "others were answered");
        assert!(!hangs.record_success(ensure, at(50)), "they wait for the other kind");
        assert!(hangs.record_success(members, at(51)));
        assert!(!hangs.record_success(members, at(52)), "they have been given back");
        assert!(hangs.timed_out(members, at(50)).alone);
    }

    #[test]
    fn the_slow_lanes_begin_by_turns() {
        let mut hangs = Hangs::default();
        let limit = Duration::from_secs(30);
        assert_eq!(hangs.next(limit), None);
        hangs.slow_lane(true, at(100));
        assert_eq!(hangs.next(limit), Some(At(Duration::from_millis(107_500))));
        hangs.slow_lane(false, at(101));
        assert_eq!(hangs.next(limit), None);
    }
}
