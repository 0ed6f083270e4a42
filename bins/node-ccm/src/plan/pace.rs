//! When a node that could not be finished is looked at again.

use std::{fmt, time::Duration};

use ccm_base::{Backoff, duration};

/// The waits after failures. Upstream begins with 5 ms, which is eight questions to a
/// failing cloud within a second.
pub const RETRY: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };

/// How often a node is looked at while nothing changes. Displayed as the end of
/// "looked at again", and so that it stays true for as long as an event is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// After so many failures, and ever more seldom.
    Growing {
        /// Failures in a row.
        failures: u32,
    },
    /// Each time after this long.
    Every(Duration),
    /// Once, after the time that whoever refused has asked for.
    Asked(Duration),
}

impl Pace {
    /// About how long it is until the next look.
    pub fn next(self) -> Duration {
        match self {
            Self::Growing { failures } => RETRY.after(failures),
            Self::Every(wait) | Self::Asked(wait) => wait,
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Growing { .. } => {
                let longest = duration::format(RETRY.longest);
                write!(f, "at growing intervals, at most every {longest}")
            }
            Self::Every(wait) => write!(f, "every {}", duration::format(*wait)),
            Self::Asked(wait) => {
                write!(f, "in about {}, as it asks", duration::format(rounded(*wait)))
            }
        }
    }
}

/// Whole seconds, at least one: more exact than that would be a promise.
fn rounded(wait: Duration) -> Duration {
    Duration::from_secs((wait + Duration::from_millis(500)).as_secs().max(1))
}

#[cfg(test)]
mod tests;
