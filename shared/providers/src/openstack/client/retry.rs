//! Which failures are worth another try, and when.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use rand::Rng as _;
use tokio::time::sleep;

use super::Deadline;

/// How often a request is repeated at most.
const REPETITIONS: u32 = 3;
/// The first wait before a repetition, and the longest.
const WAIT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// Why a request has no good answer, and whether the same request may have one soon.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: CloudError,
    pub(crate) repeat: bool,
}

impl Failure {
    /// Asking again soon gives the same.
    pub(crate) fn lasting(error: CloudError) -> Self {
        Self { error, repeat: false }
    }

    /// Asking again may help.
    pub(crate) fn passing(error: CloudError) -> Self {
        Self { error, repeat: true }
    }
}

impl From<CloudError> for Failure {
    fn from(error: CloudError) -> Self {
        Self::lasting(error)
    }
}

/// The repetitions of one call.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    done: u32,
}

impl Retry {
    /// Waits before the next try, or returns the error if there is to be none.
    pub(crate) async fn again(
        &mut self,
        failure: Failure,
        deadline: Deadline,
    ) -> Result<(), CloudError> {
        let Failure { error, repeat } = failure;
        if !repeat || self.done == REPETITIONS {
            return Err(error);
        }
        // A pause that the service asked for is waited for where it is known to all.
        let wait = match error.retry_after {
            Some(_) => Duration::ZERO,
            None => jittered(WAIT.0.saturating_mul(3_u32.pow(self.done)).min(WAIT.1)),
        };
        if error.retry_after.unwrap_or(wait) >= deadline.left() {
            return Err(hurried(error, deadline));
        }
        self.done += 1;
        sleep(wait).await;
        Ok(())
    }
}

/// A caller whose time ends before the service's pause does is told so.
fn hurried(error: CloudError, deadline: Deadline) -> CloudError {
    if error.retry_after.is_none() {
        return error;
    }
    let message = format!(
        "{} (it asks for a pause, which lasts longer than the {} s that the call has)",
        error.message,
        deadline.seconds()
    );
    CloudError { kind: ErrorKind::Throttled, message, ..error }
}

/// Between half of `wait` and all of it, so that callers do not repeat in step.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(rand::rng().random_range(0.5..1.0))
}
