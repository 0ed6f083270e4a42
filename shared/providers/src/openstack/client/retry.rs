//! Which failures are retried, and when.

use std::time::Duration;

use ccm_base::jittered;
use ccm_cloud::{Call, CloudError, ErrorKind};
use tokio::time::{Instant, sleep_until};

/// The maximum number of retries of a request.
const REPETITIONS: u32 = 3;
/// The wait before the first retry, tripled before each later one.
const WAIT: Duration = Duration::from_millis(200);
/// Callers that waited for the end of the same pause continue at random times within this span.
const SPREAD: Duration = Duration::from_millis(500);

/// Why a request failed, and whether a retry may help.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: CloudError,
    pub(crate) repeat: bool,
    /// How long other callers of a shared request get this failure.
    pub(crate) holds: Duration,
}

impl Failure {
    /// A retry may help.
    pub(crate) fn passing(error: CloudError) -> Self {
        Self { repeat: true, ..error.into() }
    }

    /// The failure for another caller: it holds for this much longer.
    pub(crate) fn with_left(mut self, left: Duration) -> Self {
        self.error.retry_after = self.error.retry_after.map(|after| after.min(left));
        self
    }
}

/// A retry does not help.
impl From<CloudError> for Failure {
    fn from(error: CloudError) -> Self {
        Self { error, repeat: false, holds: Duration::ZERO }
    }
}

/// The retries of one call.
#[derive(Debug, Default)]
pub(super) struct Retry {
    done: u32,
}

impl Retry {
    /// Waits before the next attempt, or returns the error if there is none.
    pub(super) async fn again(&mut self, failure: Failure, call: Call) -> Result<(), CloudError> {
        let Failure { error, repeat, .. } = failure;
        if !repeat || self.done == REPETITIONS {
            return Err(error);
        }
        let pause = error.retry_after;
        let wait = match pause {
            Some(pause) => pause + jittered(SPREAD, 0.0..1.0),
            None => jittered(WAIT * 3_u32.pow(self.done), 0.5..1.0),
        };
        if pause.unwrap_or(wait) >= call.left() {
            return Err(if pause.is_some() { hurried(error, call) } else { error });
        }
        self.done += 1;
        sleep_until((Instant::now() + wait).min(call.end)).await;
        Ok(())
    }
}

/// The error for a caller whose time ends before the service's pause does.
fn hurried(error: CloudError, call: Call) -> CloudError {
    let message = format!(
        "{} (it asks for a pause, which lasts longer than the {} s that the call has)",
        error.message,
        call.timeout.as_secs_f64()
    );
    CloudError { kind: ErrorKind::Throttled, message, ..error }
}
