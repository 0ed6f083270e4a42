//! The life of a process in one place.

use ccm_cloud::ProviderRegistry;
use tokio_util::sync::CancellationToken;

use super::{Failure, Program, shell::Shell};
use crate::{logging::LogControl, settings::Loaded};

/// Runs a program until `stop` is cancelled or something ends it. `main` puts the
/// command line, the logger and the signals around it.
pub async fn run<P: Program>(
    loaded: Loaded<P>,
    providers: &ProviderRegistry,
    log: LogControl,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let shell = Shell::start(loaded, log).await?;
    let mut leading = None;
    let outcome = shell.watch(&stop, shell.live(providers, &mut leading)).await;
    shell.end(outcome, leading).await
}
