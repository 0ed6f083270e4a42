//! The end of a call, all its requests and waits included.

use std::time::Duration;

use ccm_cloud::Call;
use tokio::time::Instant;

/// No call takes longer than this, whatever it was given: the timers need a bound.
const LONGEST: Duration = Duration::from_hours(24);

/// When a call must have ended, and who waits for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// The end.
    pub(crate) at: Instant,
    call: Call,
}

impl Deadline {
    /// Starts the clock of `call`.
    pub(crate) fn start(call: Call) -> Self {
        let call = Call { timeout: call.timeout.min(LONGEST), ..call };
        Self { at: Instant::now() + call.timeout, call }
    }

    /// What is left.
    pub(crate) fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// What is left, as the terms of the next request.
    pub(crate) fn rest(&self) -> Call {
        Call { timeout: self.left(), ..self.call }
    }

    /// The time that there was at the beginning, in seconds for messages.
    pub(crate) fn seconds(&self) -> f64 {
        (self.call.timeout.as_secs_f64() * 10.0).round() / 10.0
    }
}
