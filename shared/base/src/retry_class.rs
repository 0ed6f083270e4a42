//! How a caller should react to an error, and how long it waits then.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Backoff;

/// How a caller should react to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetryClass {
    /// Retry with back-off.
    Retry,
    /// Retry, but not before this time has passed.
    RetryAfter(Duration),
    /// Retrying does not help until an operator fixes the cause; retry rarely.
    Permanent,
}

/// The waits before a retry, by the class of the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// The back-off of [`RetryClass::Retry`].
    pub backoff: Backoff,
    /// The shortest and the longest wait that the other side may ask for.
    pub asked: (Duration, Duration),
    /// The wait after [`RetryClass::Permanent`].
    pub permanent: Duration,
}

impl Waits {
    /// Returns the waits of this back-off alone: a wait that the other side asks for stays within
    /// its bounds, and after a permanent error the caller waits for the longest time of the
    /// back-off.
    pub const fn within(backoff: Backoff) -> Self {
        let Backoff { first, longest } = backoff;
        Self { backoff, asked: (first, longest), permanent: longest }
    }

    /// Returns the wait after this many consecutive failures, of which the last one has this class.
    /// 1 is the first failure.
    pub fn after(&self, class: RetryClass, failures: u32) -> Duration {
        let (shortest, longest) = self.asked;
        match class {
            RetryClass::Retry => self.backoff.after(failures),
            RetryClass::RetryAfter(asked) => asked.min(longest).max(shortest),
            RetryClass::Permanent => self.permanent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_wait() {
        let seconds = Duration::from_secs;
        let waits = Waits::within(Backoff { first: seconds(2), longest: seconds(60) });
        for (class, failures, expect) in [
            (RetryClass::Retry, 1, 2),
            (RetryClass::Retry, 3, 8),
            (RetryClass::Retry, 99, 60),
            (RetryClass::RetryAfter(seconds(0)), 9, 2),
            (RetryClass::RetryAfter(seconds(42)), 1, 42),
            (RetryClass::RetryAfter(seconds(4000)), 1, 60),
            (RetryClass::Permanent, 1, 60),
        ] {
            assert_eq!(waits.after(class, failures), seconds(expect), "{class:?} {failures}");
        }
        let longer = Waits { asked: (seconds(1), Duration::MAX), permanent: seconds(300), ..waits };
        assert_eq!(longer.after(RetryClass::RetryAfter(seconds(4000)), 1), seconds(4000));
        assert_eq!(longer.after(RetryClass::Permanent, 1), seconds(300));
    }
}
