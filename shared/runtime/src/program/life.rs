//! The lifecycle of a process in one place.

use ccm_base::message::chain;
use ccm_cloud::ProviderRegistry;
use tokio_util::sync::CancellationToken;

use super::{Failure, Loaded, Program, shell::Shell};
use crate::logging::LogControl;

/// Runs a program until `stop` is cancelled or an error ends it, which is logged. `main` adds
/// the command line, the logger and the signals.
pub async fn run<P: Program>(
    loaded: Loaded<P>,
    providers: &ProviderRegistry,
    log: LogControl,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let shell = match stop.run_until_cancelled(Shell::<P>::start(loaded, log)).await {
        None => return Ok(()),
        Some(started) => started.inspect_err(say)?,
    };
    let mut leading = None;
    let outcome = shell.watch(&stop, shell.live(providers, &mut leading)).await;
    // Log first: the orderly shutdown takes time, and may be killed.
    let outcome = outcome.inspect_err(say);
    shell.end(outcome, leading).await
}

fn say(failure: &Failure) {
    tracing::error!("cannot go on: {}", chain(failure));
}
