//! The end of a whole operation, which may take several requests.

use std::time::Duration;

use ccm_cloud::{Call, Priority};
use tokio::time::Instant;

/// No operation takes longer than this, whatever it was given: the timers need a bound.
const LONGEST: Duration = Duration::from_hours(24);

/// When an operation must have ended, and who waits for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    at: Instant,
    priority: Priority,
}

impl Deadline {
    /// Starts the clock of `call`.
    pub(super) fn start(call: Call) -> Self {
        Self { at: Instant::now() + call.timeout.min(LONGEST), priority: call.priority }
    }

    /// What is left, as the terms of the next request.
    pub(super) fn rest(&self) -> Call {
        Call { timeout: self.at.saturating_duration_since(Instant::now()), priority: self.priority }
    }
}
