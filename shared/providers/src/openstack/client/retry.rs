//! Which failures are worth another try, and when.

use std::time::Duration;

use ccm_base::jittered;
use ccm_cloud::{Call, CloudError, ErrorKind};
use tokio::time::{Instant, sleep_until};

/// How often a request is repeated at most.
const REPETITIONS: u32 = 3;
/// The wait before the first repetition; it is three times as long before each later one.
const WAIT: Duration = Duration::from_millis(200);
/// Callers that waited for the end of the same pause go on within so long of each other.
const SPREAD: Duration = Duration::from_millis(500);

/// Why a request has no good answer, and whether the same request may have one soon.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: CloudError,
    pub(crate) repeat: bool,
    /// For how long it answers other callers, where they share the request.
    pub(crate) holds: Duration,
}

impl Failure {
    /// Asking again may help.
    pub(crate) fn passing(error: CloudError) -> Self {
        Self { repeat: true, ..error.into() }
    }

    /// As a caller sees it for whom it holds for so long.
    pub(crate) fn with_left(mut self, left: Duration) -> Self {
        self.error.retry_after = self.error.retry_after.map(|after| after.min(left));
        self
    }
}

/// Asking again soon gives the same.
impl From<CloudError> for Failure {
    fn from(error: CloudError) -> Self {
        Self { error, repeat: false, holds: Duration::ZERO }
    }
}

/// The repetitions of one call.
#[derive(Debug, Default)]
pub(super) struct Retry {
    done: u32,
}

impl Retry {
    /// Waits before the next try, or returns the error if there is to be none.
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
