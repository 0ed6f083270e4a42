//! From the command line to a running process, and from its end to an exit code.

use std::{io::Write as _, process::ExitCode, thread::available_parallelism};

use ccm_cloud::{NoMetrics, OpenGate, ProviderConfig, ProviderContext, ProviderRegistry};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use super::{Failure, Program, check, life, signals::Signals, specimens};
use crate::{
    logging::{self, LogControl},
    options::{Action, options_markdown},
    rights::needed,
    settings::{CommonSettings, Invocation, Loaded, command_line, load_for},
};

/// A controller works in few tasks at a time; a machine with many processors is no
/// reason for as many threads.
const THREADS: usize = 4;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// In order.
    Done,
    /// Leadership lost, a task ended unexpectedly, or the like.
    Broken,
    /// The command line or the settings are wrong.
    Usage,
    /// A second signal.
    Signal(u8),
}

impl Exit {
    /// The code that the parent process sees.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Broken => 1,
            Self::Usage => 2,
            Self::Signal(code) => code,
        }
    }
}

impl From<&Failure> for Exit {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::Usage(_) => Self::Usage,
            Failure::Broken(_) => Self::Broken,
        }
    }
}

/// Runs a program: the whole of a binary's `main`. Exit codes: 0 for an end in order
/// (also `--help`, `--version`), 2 for a wrong command line or wrong settings, 130 or
/// 143 for a second signal, 1 for everything else.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a binary has no use for its providers afterwards"
)]
pub fn main<P: Program>(providers: ProviderRegistry) -> ExitCode {
    ExitCode::from(start::<P>(&Invocation::of_process(), &providers).code())
}

pub(super) fn start<P: Program>(invocation: &Invocation, providers: &ProviderRegistry) -> Exit {
    let action = match command_line::<P>(invocation) {
        Ok(command) => command.action,
        Err(error) => return refuse::<P>(&error.to_string()),
    };
    match action {
        Action::Print(text) => print(&text),
        Action::PrintOptions => print(&options_markdown::<P>()),
        Action::PrintMetrics => print_metrics::<P>(),
        Action::PrintRights => print_rights::<P>(invocation, providers),
        Action::CheckConfig => check::check::<P>(invocation, providers),
        Action::Run => match load_for::<P>(invocation, providers) {
            Ok(loaded) => work(loaded, providers),
            Err(error) => refuse::<P>(&error.to_string()),
        },
    }
}

/// Prints lines about a wrong command line or wrong settings; the logger is not there yet.
pub(super) fn refuse<P: Program>(lines: &str) -> Exit {
    for line in lines.lines() {
        eprintln!("{}: {line}", P::IDENTITY.binary);
    }
    Exit::Usage
}

/// Prints a text on stdout. A reader that has gone, as `head` does, is no error.
pub(super) fn print(text: &str) -> Exit {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Exit::Broken,
        _ => Exit::Done,
    }
}

/// Prints what the reference of the metrics is written from.
fn print_metrics<P: Program>() -> Exit {
    // The gauges of the async runtime are there only within one.
    let Ok(runtime) = runtime::<P>() else { return Exit::Broken };
    let _within = runtime.enter();
    specimens::<P>().encode().map_or(Exit::Broken, |text| print(&text))
}

/// Prints what the roles in `manifests/` are compared with.
fn print_rights<P: Program>(invocation: &Invocation, providers: &ProviderRegistry) -> Exit {
    let loaded = match load_for::<P>(invocation, providers) {
        Ok(loaded) => loaded,
        Err(error) => return refuse::<P>(&error.to_string()),
    };
    match serde_json::to_string(&needed::<P>(&loaded.common)) {
        Ok(text) => print(&text),
        Err(_) => Exit::Broken,
    }
}

/// What a provider is built from, but for the gate and the metrics of a running process.
pub(super) fn provider_context<P: Program>(common: &CommonSettings) -> ProviderContext {
    let agents = common.cloud.user_agents.iter().cloned().chain([P::IDENTITY.user_agent()]);
    ProviderContext {
        config: ProviderConfig {
            path: common.cloud.config.clone(),
            cluster_name: common.cloud.cluster_name.clone(),
        },
        gate: std::sync::Arc::new(OpenGate),
        metrics: std::sync::Arc::new(NoMetrics),
        user_agent: agents.collect::<Vec<_>>().join(" "),
    }
}

pub(super) fn runtime<P: Program>() -> std::io::Result<Runtime> {
    let threads = available_parallelism().map_or(1, usize::from).min(THREADS);
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name(P::IDENTITY.binary)
        .enable_all()
        .build()
}

/// One TLS library for the whole process. Fails only if one is there already.
pub(super) fn install_tls() {
    rustls::crypto::ring::default_provider().install_default().ok();
}

fn work<P: Program>(loaded: Loaded<P>, providers: &ProviderRegistry) -> Exit {
    let log = match logging::init(&loaded.common.logging) {
        Ok(log) => log,
        Err(error) => return refuse::<P>(&error.to_string()),
    };
    introduce(&loaded);
    install_tls();
    let runtime = match runtime::<P>() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot start the async runtime");
            return Exit::Broken;
        }
    };
    let exit = runtime.block_on(until_signalled(loaded, providers, log));
    // Whatever a library still does in the background must not hold up the end.
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
        ended = life::run(loaded, providers, log, stop.clone()) => ended,
    };
    match ended {
        Ok(()) => {
            tracing::info!("ended");
            Exit::Done
        }
        Err(failure) => Exit::from(&failure),
    }
}

/// The first lines of the log: who this is, what was set, and what has no effect.
fn introduce<P: Program>(loaded: &Loaded<P>) {
    let set: Vec<String> = loaded
        .raw
        .iter()
        .filter(|(_, value)| value.origin != crate::settings::Origin::Default)
        .map(|(key, _)| loaded.raw.describe(key))
        .collect();
    tracing::info!(
        program = P::IDENTITY.binary,
        version = super::VERSION,
        settings = set.join(", "),
        "starting"
    );
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
}
