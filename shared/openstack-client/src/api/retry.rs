//! Sends requests again after failures: how often, and when. `send` decides which repetition a
//! failure allows.

use std::time::Duration;

use ccm_base::jittered;
use ccm_cloud::{Call, CloudError, ErrorKind};
use tokio::time::{Instant, sleep_until};

/// The maximum number of retries of a request.
const REPETITIONS: u32 = 3;
/// The wait before the first retry, tripled before each later one.
const WAIT: Duration = Duration::from_millis(200);

/// The requests that may be repeated after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// No request may be repeated: a repetition would fail again.
    No,
    /// Requests may be repeated that do no harm if the first attempt took effect.
    Harmless,
    /// All requests may be repeated: the first attempt surely had no effect.
    Any,
}

/// A failure: why a request failed, and which retry may help.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The error.
    pub error: CloudError,
    /// The retries that may help.
    pub repeat: Repeat,
    /// How long the other callers of a shared request get this failure.
    pub holds: Duration,
    /// The status of the answer that the error quotes; `None` if the error is in our own words.
    pub status: Option<u16>,
}

impl Failure {
    /// Returns the failure for another caller: it holds for this much longer.
    #[must_use]
    pub fn with_left(mut self, left: Duration) -> Self {
        self.error.retry_after = self.error.retry_after.map(|after| after.min(left));
        self
    }
}

/// A retry does not help.
impl From<CloudError> for Failure {
    fn from(error: CloudError) -> Self {
        Self { error, repeat: Repeat::No, holds: Duration::ZERO, status: None }
    }
}

/// The retries of one call.
#[derive(Debug, Default)]
pub struct Retry {
    done: u32,
}

impl Retry {
    /// Waits before the next attempt, or returns the error if there is none. The gate holds the
    /// attempt back while the service's pause lasts.
    pub async fn again(
        &mut self,
        failure: Failure,
        repeatable: bool,
        call: Call,
    ) -> Result<(), CloudError> {
        let Failure { error, repeat, .. } = failure;
        let may_repeat = repeat == Repeat::Any || repeat == Repeat::Harmless && repeatable;
        if !may_repeat || self.done == REPETITIONS {
            return Err(error);
        }
        let wait = match error.retry_after {
            Some(pause) if pause >= call.left() => return Err(hurried(error, call)),
            Some(_) => Duration::ZERO,
            None => jittered(WAIT * 3_u32.pow(self.done), 0.5..1.0),
        };
        if wait >= call.left() {
            return Err(error);
        }
        self.done += 1;
        sleep_until((Instant::now() + wait).min(call.end)).await;
        Ok(())
    }
}

/// Returns the error for a caller whose time ends before the service's pause does.
fn hurried(error: CloudError, call: Call) -> CloudError {
    let message = format!(
        "{} (it asks for a pause, which lasts longer than the {} s that the call has)",
        error.message,
        call.timeout.as_secs_f64()
    );
    CloudError { kind: ErrorKind::Throttled, message, ..error }
}
