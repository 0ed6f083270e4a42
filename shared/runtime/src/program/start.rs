//! From the command line to a running process, and from its end to the exit code.

use std::process::ExitCode;

use ccm_cloud::ProviderRegistry;
use ccm_settings::{Action, Invocation, Origin};
use tokio_util::sync::CancellationToken;

use super::{
    Loaded, Program, check,
    exit::{Exit, print, refuse},
    life,
    setup::{install_tls, load_for, runtime},
    signals::Signals,
    specimens,
};
use crate::{
    identity::VERSION,
    logging::{self, LogControl},
    rights::needed,
    settings,
};

/// Runs a program: the whole `main` of a binary. Exit codes: 0 for an orderly shutdown (also
/// `--help`, `--version`), 2 for an invalid command line or settings, 130 or 143 for a second
/// signal, 1 for everything else.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a binary has no use for its providers afterwards"
)]
pub fn main<P: Program>(providers: ProviderRegistry) -> ExitCode {
    ExitCode::from(start::<P>(&Invocation::of_process(), &providers).code())
}

pub(super) fn start<P: Program>(invocation: &Invocation, providers: &ProviderRegistry) -> Exit {
    let catalogue = settings::catalogue::<P::Settings>(&P::IDENTITY);
    let action = match ccm_settings::parse(&catalogue, &invocation.arguments) {
        Ok(command) => command.action,
        Err(error) => return refuse::<P>(&error.to_string()),
    };
    match action {
        Action::Print(text) => print(&text),
        Action::PrintOptions => print(&ccm_settings::markdown(&catalogue)),
        Action::PrintMetrics => print_metrics::<P>(),
        Action::PrintRights => print_rights::<P>(invocation, providers),
        Action::CheckConfig => check::check::<P>(invocation, providers),
        Action::Run => match load_for::<P>(invocation, providers) {
            Ok(loaded) => work::<P>(loaded, providers),
            Err(error) => refuse::<P>(&error.to_string()),
        },
    }
}

/// Prints the input of the metrics reference.
fn print_metrics<P: Program>() -> Exit {
    // The async runtime's gauges exist only inside a runtime.
    let Ok(runtime) = runtime::<P>() else { return Exit::Broken };
    let _within = runtime.enter();
    specimens::<P>().page("").map_or(Exit::Broken, |(_, text)| print(&text))
}

/// Prints the permissions that the roles in `manifests/` are compared with.
fn print_rights<P: Program>(invocation: &Invocation, providers: &ProviderRegistry) -> Exit {
    let loaded = match load_for::<P>(invocation, providers) {
        Ok(loaded) => loaded,
        Err(error) => return refuse::<P>(&error.to_string()),
    };
    match serde_json::to_string(&needed(P::rights(), &loaded.common.election)) {
        Ok(text) => print(&text),
        Err(_) => Exit::Broken,
    }
}

fn work<P: Program>(loaded: Loaded<P>, providers: &ProviderRegistry) -> Exit {
    let log = match logging::init(&loaded.common.logging) {
        Ok(log) => log,
        Err(error) => return refuse::<P>(&error.to_string()),
    };
    introduce::<P>(&loaded);
    install_tls();
    let runtime = match runtime::<P>() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot start the async runtime");
            return Exit::Broken;
        }
    };
    let exit = runtime.block_on(until_signalled::<P>(loaded, providers, log));
    // Background work of libraries must not delay the exit.
    runtime.shutdown_background();
    exit
}

async fn until_signalled<P: Program>(
    loaded: Loaded<P>,
    providers: &ProviderRegistry,
    log: LogControl,
) -> Exit {
    let signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => {
            tracing::error!(%error, "cannot listen to signals");
            return Exit::Broken;
        }
    };
    let stop = CancellationToken::new();
    let ended = tokio::select! {
        biased;
        code = signals.watch(stop.clone()) => return Exit::Signal(code),
        ended = life::run::<P>(loaded, providers, log, stop.clone()) => ended,
    };
    match ended {
        Ok(()) => {
            tracing::info!("ended");
            Exit::Done
        }
        Err(failure) => Exit::from(&failure),
    }
}

/// The first log lines: the program, its settings, and settings without effect.
fn introduce<P: Program>(loaded: &Loaded<P>) {
    let set: Vec<String> = loaded
        .raw
        .iter()
        .filter(|(_, value)| value.origin != Origin::Default)
        .map(|(key, _)| loaded.raw.describe(key))
        .collect();
    tracing::info!(
        program = P::IDENTITY.binary,
        version = VERSION,
        settings = set.join(", "),
        "starting"
    );
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
}
