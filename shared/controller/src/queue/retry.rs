//! Retries by the class of an error.

use std::{fmt, hash::Hash, time::Duration};

use ccm_base::{Backoff, RetryClass, duration};
use serde::{Deserialize, Serialize};

use super::{Priority, WorkQueue};

/// Retry interval for errors that an operator has to fix.
pub const LONG_RETRY: Duration = Duration::from_mins(5);

/// Delay after a conflict, so that the informer receives the other writer's change.
const AFTER_CONFLICT: Duration = Duration::from_millis(20);

/// When a key is retried while nothing changes. The text completes "retrying" and does not depend
/// on the current attempt, because an event stays visible for many attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pace {
    /// With exponential back-off.
    Backoff(Backoff),
    /// At this interval.
    Every(Duration),
    /// Once, after the `Retry-After` of the response.
    RetryAfter(Duration),
}

impl Pace {
    /// Returns the pace after an error of this class, with this back-off.
    pub fn after_error(class: RetryClass, backoff: Backoff) -> Self {
        match class {
            RetryClass::Retry => Self::Backoff(backoff),
            RetryClass::RetryAfter(after) => Self::RetryAfter(after.min(LONG_RETRY)),
            RetryClass::Permanent => Self::Every(LONG_RETRY),
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backoff(Backoff { longest, .. }) => {
                write!(f, "with exponential back-off (max {})", duration::format(*longest))
            }
            Self::Every(wait) => write!(f, "every {}", duration::format(*wait)),
            Self::RetryAfter(wait) => {
                write!(f, "in about {} (Retry-After)", duration::format(rounded(*wait)))
            }
        }
    }
}

/// Rounds to whole seconds, at least one, because the timing is not more exact.
fn rounded(wait: Duration) -> Duration {
    Duration::from_secs((wait + Duration::from_millis(500)).as_secs().max(1))
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> WorkQueue<K> {
    /// Retries the key as the class of its error demands. Call it before [`WorkQueue::done`].
    pub fn retry_as(&self, key: K, class: RetryClass) -> Pace {
        match class {
            RetryClass::Retry => {
                self.retry(key);
                Pace::Backoff(self.shared.waits)
            }
            RetryClass::RetryAfter(after) => Pace::RetryAfter(self.retry_after(key, after)),
            RetryClass::Permanent => self.retry_every(key, LONG_RETRY),
        }
    }

    /// Retries a key whose object has changed since it was read: adds the key again soon, and later
    /// each time. Returns false after `most` conflicts in a row: then this one is a failure.
    pub fn again_after_conflict(&self, key: K, most: u32, priority: Priority) -> bool {
        let conflicts = self.change(|core, _| core.conflict(key.clone()));
        let is_usual = conflicts <= most;
        if is_usual {
            self.add_after(key, AFTER_CONFLICT * conflicts, priority);
        }
        is_usual
    }

    /// Adds the key after this time. A change of its object adds it earlier.
    pub fn retry_every(&self, key: K, after: Duration) -> Pace {
        self.add_after(key, after, Priority::Routine);
        Pace::Every(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event is written once and stays readable while its object waits.
    #[test]
    fn the_text_does_not_depend_on_the_attempt() {
        let waits = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };
        let check = |pace: Pace, expect: &str| assert_eq!(pace.to_string(), expect);
        check(Pace::Backoff(waits), "with exponential back-off (max 1m0s)");
        check(Pace::Every(Duration::from_secs(30)), "every 30s");
        check(Pace::RetryAfter(Duration::from_millis(6700)), "in about 7s (Retry-After)");
    }
}
