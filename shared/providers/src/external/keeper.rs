//! Keeps the provider's description up to date, in the background.

use std::{ops::Range, sync::Arc, time::Duration};

use ccm_base::{Backoff, jittered};
use ccm_cloud::{Call, CloudError, ErrorKind};
use tokio::time::{Instant, sleep_until};

use super::shared::Shared;

/// The time limit of a `Describe` call.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of `Describe` calls while the provider answers.
const REFRESH: Duration = Duration::from_mins(1);
/// The back-off after failures. The longest is short, because a call to a local provider is
/// cheap and all work waits for it.
const RETRY: Backoff =
    Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(5) };
/// The interval of reading the configuration files.
const RELOAD: Duration = Duration::from_secs(10);
/// The minimum interval of calls, even if the connection breaks often.
const PAUSE: Duration = Duration::from_millis(500);

/// The factors of waits, so that many processes do not call in step.
const SPREAD: Range<f64> = 0.9..1.1;

/// Runs until it is aborted.
pub(super) async fn run(shared: Arc<Shared>) {
    let connections = Arc::clone(&shared.wire.connection.connections);
    let mut failures = 0_u32;
    let mut reload_error = None;
    let mut next_reload = Instant::now() + RELOAD;
    loop {
        let outcome = shared.describe(Call::routine(DESCRIBE_TIMEOUT)).await;
        let described = connections.count();
        failures = if outcome.is_ok() { 0 } else { failures.saturating_add(1) };
        if let Err(CloudError { kind: ErrorKind::Timeout, .. }) = &outcome {
            renew(&shared);
        }
        let asked = Instant::now();
        let again = asked
            + outcome
                .as_ref()
                .map_or_else(|error| pause_after(error, failures), |()| jittered(REFRESH, SPREAD));
        loop {
            tokio::select! {
                () = sleep_until(again) => break,
                () = sleep_until(next_reload) => {
                    next_reload = Instant::now() + RELOAD;
                    if reload(&shared, &mut reload_error).await {
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

/// Reads the configuration again; `true` if it is new. An error is logged once.
async fn reload(shared: &Shared, told: &mut Option<CloudError>) -> bool {
    match shared.wire.connection.reload().await {
        Ok(changed) => {
            *told = None;
            if changed {
                tracing::info!(
                    endpoint = shared.wire.connection.endpoint(),
                    "provider configuration changed"
                );
            }
            changed
        }
        Err(error) => {
            if told.as_ref() != Some(&error) {
                tracing::warn!(error = %error, "provider configuration refused; the one before stays in use");
                *told = Some(error);
            }
            false
        }
    }
}

fn renew(shared: &Shared) {
    if let Err(error) = shared.wire.connection.renew() {
        tracing::warn!(error = %error, "no new connection to the provider");
    }
}

fn pause_after(error: &CloudError, failures: u32) -> Duration {
    jittered(RETRY.after(failures), SPREAD).max(error.retry_after.unwrap_or_default().min(REFRESH))
}
