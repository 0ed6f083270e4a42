//! Keeps the provider's description up to date, in the background.

use std::{sync::Arc, time::Duration};

use ccm_base::{Backoff, Files};
use ccm_cloud::{Call, CloudError, ErrorKind};
use rand::Rng;
use tokio::time::{Instant, sleep_until};

use super::{rpc::Deadline, shared::Shared};

/// The time limit of a `Describe` call.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of `Describe` calls while the provider answers.
const REFRESH: Duration = Duration::from_mins(1);
/// The back-off after failures. The longest is short, because a call to a local provider is
/// cheap and all work waits for it.
const RETRY: Backoff =
    Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(5) };
/// The minimum interval of calls, even if the connection breaks often.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs until it is aborted.
pub(super) async fn run(shared: Arc<Shared>, mut files: Files) {
    let connections = Arc::clone(&shared.wire.connection.connections);
    let mut failures = 0_u32;
    loop {
        let outcome = shared.describe(Deadline::start(Call::routine(DESCRIBE_TIMEOUT))).await;
        let described = connections.count();
        failures = if outcome.is_ok() { 0 } else { failures.saturating_add(1) };
        if let Err(CloudError { kind: ErrorKind::Timeout, .. }) = &outcome {
            renew(&shared);
        }
        let asked = Instant::now();
        let again = asked
            + outcome
                .as_ref()
                .map_or_else(|error| pause_after(error, failures), |()| jittered(REFRESH));
        loop {
            tokio::select! {
                () = sleep_until(again) => break,
                () = files.changed() => {
                    if reload(&shared, &mut files).await {
                        break;
                    }
                }
                // After a failure the call is repeated soon anyway, and the connection opened
                // by that call needs no further one.
                () = connections.changed.notified() => {
                    if outcome.is_ok() && connections.count() != described {
                        break;
                    }
                }
                () = connections.suspect.notified() => {
                    if outcome.is_ok() {
                        break;
                    }
                }
            }
        }
        sleep_until(asked + PAUSE).await;
    }
}

/// Reads the changed configuration; `true` if it is in use.
async fn reload(shared: &Shared, files: &mut Files) -> bool {
    let connection = &shared.wire.connection;
    let outcome = connection.reload(files).await;
    match &outcome {
        Ok(()) => {
            tracing::info!(endpoint = connection.endpoint(), "provider configuration changed");
        }
        Err(error) => {
            tracing::warn!(%error, "provider configuration refused; the one before stays in use");
        }
    }
    outcome.is_ok()
}

fn renew(shared: &Shared) {
    if let Err(error) = shared.wire.connection.renew() {
        tracing::warn!(error = %error, "no new connection to the provider");
    }
}

fn pause_after(error: &CloudError, failures: u32) -> Duration {
    jittered(RETRY.after(failures)).max(error.retry_after.unwrap_or_default().min(REFRESH))
}

/// Randomises `wait` by a tenth, so that many processes do not call in step.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(rand::rng().random_range(0.9..1.1))
}
