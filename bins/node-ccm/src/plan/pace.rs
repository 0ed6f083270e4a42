//! Retry intervals of a node that is not in sync yet.

use std::{fmt, time::Duration};

use ccm_base::{Backoff, duration};

/// The back-off after failures. Upstream begins with 5 ms, which makes eight calls to a
/// failing cloud within a second.
pub const RETRY: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };

/// How often a node is retried while nothing changes. Its text completes "retrying" and does
/// not depend on the current attempt, because an event stays visible for many attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Exponential back-off after this number of failures.
    Backoff {
        /// Consecutive failures.
        failures: u32,
    },
    /// At this interval.
    Every(Duration),
    /// Once, after the `Retry-After` of the response.
    RetryAfter(Duration),
}

impl Pace {
    /// Approximate time until the next retry.
    pub fn next(self) -> Duration {
        match self {
            Self::Backoff { failures } => RETRY.after(failures),
            Self::Every(wait) | Self::RetryAfter(wait) => wait,
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backoff { .. } => {
                let longest = duration::format(RETRY.longest);
                write!(f, "with exponential back-off (max {longest})")
            }
            Self::Every(wait) => write!(f, "every {}", duration::format(*wait)),
            Self::RetryAfter(wait) => {
                write!(f, "in about {} (Retry-After)", duration::format(rounded(*wait)))
            }
        }
    }
}

/// Whole seconds, at least one: the timing is not more exact than that.
fn rounded(wait: Duration) -> Duration {
    Duration::from_secs((wait + Duration::from_millis(500)).as_secs().max(1))
}

#[cfg(test)]
mod tests;
