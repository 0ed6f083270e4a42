//! From the command line to a running process, and from its end to the exit code.

use std::{io, process::ExitCode};

use ccm_cloud::ProviderRegistry;
use ccm_settings::{Action, Invocation, Origin};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{
    Loaded, Program, check, life,
    setup::{BROKEN, DONE, forbid_dumps, install_tls, print, refuse, runtime},
    specimens,
};
use crate::{
    identity::{COMMIT, VERSION},
    logging::{self, LogControl},
    rights::{needed, optional},
    settings,
};

/// Runs a program: the whole `main` of a binary. Exit codes: 0 for an orderly shutdown (also
/// `--help`, `--version`), 2 for an invalid command line, settings or kubeconfig, 129, 130 or 143
/// for a second SIGHUP, SIGINT or SIGTERM, 1 for everything else.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a binary has no use for its providers afterwards"
)]
pub fn main<P: Program>(providers: ProviderRegistry) -> ExitCode {
    let code = act::<P>(&Invocation::of_process(), &providers);
    ExitCode::from(code.unwrap_or_else(|problem| refuse::<P>(&problem)))
}

/// Does what the command line says and returns the exit code. An error is a problem of the command
/// line or the settings.
fn act<P: Program>(invocation: &Invocation, providers: &ProviderRegistry) -> Result<u8, String> {
    let catalogue = settings::catalogue::<P::Settings>(&P::IDENTITY);
    let command = ccm_settings::parse(&catalogue, &invocation.arguments);
    let load = || {
        settings::load::<P::Settings>(P::IDENTITY, providers.names(), invocation)
            .map_err(|error| error.to_string())
    };
    Ok(match command.map_err(|error| error.to_string())?.action {
        Action::Print(text) => print(&text),
        Action::PrintOptions => print(&ccm_settings::markdown(&catalogue)),
        Action::PrintConfig => print(&load()?.configz()),
        Action::PrintMetrics => print_metrics::<P>(),
        // The roles in `manifests/` are compared with these permissions.
        Action::PrintRights => {
            let mut all = needed(P::rights(), &load()?.common.election);
            all.extend(optional(P::IDENTITY.binary));
            serde_json::to_string(&all).map_or(BROKEN, |text| print(&text))
        }
        Action::CheckConfig => check::check::<P>(load()?, providers)?,
        Action::Run => {
            let loaded = load()?;
            let log = logging::init(&loaded.common.logging)?;
            work::<P>(loaded, providers, log).unwrap_or_else(|error| {
                tracing::error!(%error, "cannot start the async runtime or listen to signals");
                BROKEN
            })
        }
    })
}

/// Prints the input of the metrics reference.
fn print_metrics<P: Program>() -> u8 {
    // The async runtime's gauges exist only inside a runtime.
    let Ok(runtime) = runtime::<P>() else { return BROKEN };
    let _within = runtime.enter();
    specimens::<P>().encode_classic().map_or(BROKEN, |page| print(&page))
}

fn work<P: Program>(
    loaded: Loaded<P>,
    providers: &ProviderRegistry,
    log: LogControl,
) -> io::Result<u8> {
    introduce::<P>(&loaded);
    if let Err(error) = forbid_dumps() {
        tracing::warn!(%error, "cannot forbid core dumps, which hold secrets");
    }
    install_tls();
    let runtime = runtime::<P>()?;
    let code = runtime.block_on(async {
        let stop = CancellationToken::new();
        tokio::select! {
            biased;
            code = signalled(&stop) => code,
            ended = life::run::<P>(loaded, providers, log, stop.clone()) => Ok(match ended {
                Ok(()) => {
                    tracing::info!("ended");
                    DONE
                }
                Err(failure) => failure.exit_code(),
            }),
        }
    });
    // Background work of libraries must not delay the exit.
    runtime.shutdown_background();
    code
}

/// Cancels `stop` at the first signal. Returns the exit code at the second. SIGINT is Ctrl-C,
/// Kubernetes sends SIGTERM, a terminal that is closed sends SIGHUP.
pub(super) async fn signalled(stop: &CancellationToken) -> io::Result<u8> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    loop {
        // The exit code is 128 plus the signal number, as in a shell.
        let (signal, code) = tokio::select! {
            _ = interrupt.recv() => ("SIGINT", 130),
            _ = terminate.recv() => ("SIGTERM", 143),
            _ = hangup.recv() => ("SIGHUP", 129),
        };
        if stop.is_cancelled() {
            tracing::warn!(signal, "exiting immediately");
            return Ok(code);
        }
        tracing::info!(signal, "shutting down; a second signal exits immediately");
        stop.cancel();
    }
}

/// Logs the first lines: the program, its settings, and settings without effect.
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
        commit = COMMIT,
        settings = set.join(", "),
        "starting"
    );
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
}
