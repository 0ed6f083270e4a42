//! Exponential back-off, and waits that processes do not share.

use std::{ops::Range, time::Duration};

use serde::{Deserialize, Serialize};

/// An exponential back-off: the wait doubles with each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first: Duration,
    /// The upper bound of the wait.
    pub longest: Duration,
}

impl Backoff {
    /// Returns the wait after this many consecutive failures. 1 is the first failure.
    pub fn after(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }
}

/// Returns `wait` times a random factor from `range`, so that many callers or processes do not act
/// in step.
pub fn jittered(wait: Duration, range: Range<f64>) -> Duration {
    wait.mul_f64(rand::random_range(range))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let check = |first: u64, longest: u64, expect: &[(u32, u64)]| {
            let (first, longest) = (Duration::from_millis(first), Duration::from_millis(longest));
            for (failures, wait) in expect {
                let after = Backoff { first, longest }.after(*failures);
                assert_eq!(after, Duration::from_millis(*wait), "{failures} failures");
            }
        };
        check(
            5,
            60_000,
            &[(0, 5), (1, 5), (2, 10), (3, 20), (10, 2560), (14, 40_960), (15, 60_000)],
        );
        check(5, 60_000, &[(33, 60_000), (u32::MAX, 60_000)]);
        check(0, 60_000, &[(1, 0), (u32::MAX, 0)]);
        check(9, 3, &[(1, 3), (2, 3)]);
        check(u64::MAX, u64::MAX, &[(1, u64::MAX), (40, u64::MAX)]);
    }
}
