//! Remembers when a failed change of a route is tried again, and how often it has failed. Pure.

use std::time::Duration;

use ccm_base::{At, RetryClass, Waits};
use serde::{Deserialize, Serialize};

/// The consecutive failures of one thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// The number of failures.
    pub times: u32,
    /// The time of the next attempt.
    pub at: At,
}

impl Retry {
    /// Records one more failure. Returns the wait before the next attempt.
    pub fn record_failure(&mut self, now: At, waits: &Waits, class: RetryClass) -> Duration {
        self.times = self.times.saturating_add(1);
        let wait = waits.after(class, self.times);
        self.at = now + wait;
        wait
    }

    /// Returns true if the next attempt is due.
    pub fn is_due(&self, now: At) -> bool {
        self.at <= now
    }
}

#[cfg(test)]
mod tests {
    use ccm_base::Backoff;

    use super::*;

    #[test]
    fn each_failure_waits_longer_and_what_the_other_side_asks_for_counts() {
        let at = |seconds| At(Duration::from_secs(seconds));
        let waits = Waits::within(Backoff {
            first: Duration::from_secs(5),
            longest: Duration::from_mins(5),
        });
        let mut retry = Retry::default();
        assert!(retry.is_due(at(0)));
        for (now, class, expect) in [
            (100, RetryClass::Retry, 105),
            (105, RetryClass::Retry, 115),
            (115, RetryClass::RetryAfter(Duration::from_secs(42)), 157),
            (157, RetryClass::Retry, 197),
            (197, RetryClass::Permanent, 497),
        ] {
            retry.record_failure(at(now), &waits, class);
            assert_eq!(retry.at, at(expect), "{class:?}");
            assert!(!retry.is_due(at(expect - 1)) && retry.is_due(at(expect)));
        }
        assert_eq!(retry.times, 5);
    }
}
