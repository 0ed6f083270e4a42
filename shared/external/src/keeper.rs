//! Keeps the provider's description up to date, in the background.

use std::{ops::Range, sync::Arc, time::Duration};

use ccm_base::{Backoff, Files, jittered};
use ccm_cloud::{Call, CloudError, ErrorKind};
use tokio::time::{Instant, sleep_until};

use super::shared::Shared;

/// The time limit of a `Describe` call.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of `Describe` calls while the provider answers.
const REFRESH: Duration = Duration::from_mins(1);
/// The back-off after failures. The longest pause is short, because a call to a local provider is
/// cheap and all work waits for it.
const RETRY: Backoff =
    Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(5) };
/// The minimum interval of calls, even if the connection breaks often.
const PAUSE: Duration = Duration::from_millis(500);

/// The factors of waits, so that many processes do not call in step.
const SPREAD: Range<f64> = 0.9..1.1;

/// Runs until it is aborted.
pub async fn run(shared: Arc<Shared>, mut files: Files) {
    let connections = Arc::clone(&shared.wire.connection.connections);
    let mut made = connections.made.subscribe();
    let mut failures = 0_u32;
    loop {
        let outcome = shared.describe(Call::routine(DESCRIBE_TIMEOUT)).await;
        made.mark_unchanged();
        failures = if outcome.is_ok() { 0 } else { failures.saturating_add(1) };
        if let Err(CloudError { kind: ErrorKind::Timeout, .. }) = &outcome {
            renew(&shared);
        }
        let asked = Instant::now();
        let again = asked
            + outcome
                .as_ref()
                .map_or_else(|error| pause_after(error, failures), |()| jittered(REFRESH, SPREAD));
        // After a failure the call is repeated soon anyway.
        tokio::select! {
            () = sleep_until(again) => {}
            () = files.changed() => reload(&shared, &mut files).await,
            // The provider may be another process with another configuration.
            Ok(()) = made.changed(), if outcome.is_ok() => shared.changed.notify_waiters(),
            () = connections.suspect.notified(), if outcome.is_ok() => {}
        }
        sleep_until(asked + PAUSE).await;
    }
}

async fn reload(shared: &Shared, files: &mut Files) {
    let connection = &shared.wire.connection;
    match connection.reload(files).await {
        Ok(()) => {
            shared.changed.notify_waiters();
            tracing::info!(endpoint = connection.endpoint(), "provider configuration changed");
        }
        Err(error) => {
            tracing::warn!(%error, "provider configuration refused; the previous one stays in use");
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
