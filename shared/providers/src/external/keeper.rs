//! Keeps what is known about the provider true, in the background.

use std::{sync::Arc, time::Duration};

use ccm_base::Backoff;
use ccm_cloud::{Call, CloudError, ErrorKind};
use rand::Rng;
use tokio::time::{Instant, sleep_until};

use super::{rpc::Deadline, shared::Shared};

/// How long to wait for an answer to `Describe`.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a provider that answers is asked about itself.
const REFRESH: Duration = Duration::from_mins(1);
/// The waits after failures. The longest is short, because asking a neighbour is cheap
/// and everything waits for the answer.
const RETRY: Backoff =
    Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(5) };
/// How often the configuration files are read again.
const RELOAD: Duration = Duration::from_secs(10);
/// Never asked more often than this, however often the connection breaks.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs until it is aborted.
pub(super) async fn run(shared: Arc<Shared>) {
    let connections = Arc::clone(&shared.wire.connection.connections);
    let mut failures = 0_u32;
    let mut reload_error = None;
    let mut next_reload = Instant::now() + RELOAD;
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
                () = sleep_until(next_reload) => {
                    next_reload = Instant::now() + RELOAD;
                    if reload(&shared, &mut reload_error).await {
                        break;
                    }
                }
                // After a failure the question is repeated soon anyhow, and the
                // connection that the question itself made tells nothing new.
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

/// Reads the configuration again; `true` if there is a new one. An error is told once.
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
    jittered(RETRY.after(failures)).max(error.retry_after.unwrap_or_default().min(REFRESH))
}

/// Within a tenth around `wait`, so that many processes do not ask in step.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(rand::rng().random_range(0.9..1.1))
}
