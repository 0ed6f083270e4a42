//! Log lines on stderr: text for people or JSON for collectors, with levels that can
//! change while the process runs.

use std::{fmt, sync::Arc};

use ccm_settings::one_of;
use parking_lot::Mutex;
use serde::Serialize;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::{
    Layer, Registry,
    filter::{FilterExt as _, Targets},
    fmt::MakeWriter,
    layer::SubscriberExt as _,
    registry::LookupSpan,
    reload,
};

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For collectors.
    Json,
}

ccm_settings::settings! {
    /// Logging.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
    pub struct LogSettings {
        /// How much is logged: 0 to 3 the usual, 4 and 5 details, 6 and more everything.
        pub verbosity: u8 = live(Count, "v", "0");
        /// Levels per module in place of -v, for instance info,ccm_runtime::leadership=debug. Bodies of requests and
        /// answers are never logged.
        pub filter: Option<String> = live(Text, "log-filter", ""), read_filter;
        /// text or json.
        pub format: LogFormat = fixed(Text, "logging-format", "text"),
            one_of(&[("text", LogFormat::Text), ("json", LogFormat::Json)]);
    }
}

/// Levels for the libraries' own lines, which help only in debugging a library. Each warning of
/// kube_runtime is about an error that the informer also logs. kube_client logs whole bodies,
/// Secrets included, when it cannot parse one: errors only, whatever the filter.
const LIBRARIES: &str = "kube_client=error,kube_runtime=error,hyper=warn,hyper_util=warn,rustls=warn,tower=warn,h2=warn,tonic=warn";

/// The logger cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The process already has a logger.
    #[error("logging is set up already")]
    AlreadySet,
    /// The filter is invalid.
    #[error("--log-filter={filter}: {rule}")]
    Filter {
        /// The filter as given.
        filter: String,
        /// The valid form.
        rule: String,
    },
}

/// The filter directives for these settings.
fn directives(settings: &LogSettings) -> String {
    let level = match settings.verbosity {
        0..=3 => "info",
        4..=5 => "debug",
        6.. => "trace",
    };
    let chosen = settings.filter.clone().unwrap_or_else(|| level.to_owned());
    // The user's directive for a library comes later and takes precedence.
    format!("{LIBRARIES},{chosen}")
}

/// Reads a filter; empty is none.
fn read_filter(filter: &str, _: &str) -> Result<Option<String>, String> {
    if filter.is_empty() { Ok(None) } else { check_filter(filter).map(|()| Some(filter.into())) }
}

/// Validates a filter. The error names the valid form.
fn check_filter(filter: &str) -> Result<(), String> {
    let is_level =
        |word: &str| matches!(word, "off" | "error" | "warn" | "info" | "debug" | "trace");
    // The library parses a lone misspelt level as a module name, and would then log nothing
    // else.
    let is_part =
        |part: &str| !part.contains(' ') && is_level(part.rsplit('=').next().unwrap_or(part));
    if filter.split(',').all(is_part) && filter.parse::<Targets>().is_ok() {
        return Ok(());
    }
    Err("must be levels (off, error, warn, info, debug, trace), alone or with a module, separated by commas, for \
         instance info,ccm_runtime=debug"
        .to_owned())
}

/// Filters by module only: filters by span and field would add regular expressions, half a
/// megabyte of code.
fn filter(settings: &LogSettings) -> Result<Targets, LogError> {
    directives(settings).parse().map_err(|_| LogError::Filter {
        filter: settings.filter.clone().unwrap_or_default(),
        rule: "must be levels such as info,ccm_runtime=debug".to_owned(),
    })
}

/// Drops bodies: kube_client's lines below level error may contain them.
fn without_bodies(metadata: &Metadata<'_>) -> bool {
    *metadata.level() == Level::ERROR || !metadata.target().starts_with("kube_client")
}

/// Changes the levels of a running process. Clones control the same logger.
#[derive(Clone)]
pub struct LogControl {
    set: Arc<dyn Fn(Targets) -> bool + Send + Sync>,
    current: Arc<Mutex<Option<LogSettings>>>,
}

impl fmt::Debug for LogControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogControl").field("current", &self.current.lock()).finish_non_exhaustive()
    }
}

impl LogControl {
    /// Has no effect; for a process that uses another logger.
    pub fn detached() -> Self {
        Self { set: Arc::new(|_| true), current: Arc::default() }
    }

    /// Applies the levels of these settings. The format stays.
    pub fn apply(&self, settings: &LogSettings) -> Result<(), LogError> {
        let mut current = self.current.lock();
        if current.as_ref() == Some(settings) {
            return Ok(());
        }
        let filter = filter(settings)?;
        // False only when the logger is gone, and then nothing can be logged.
        if (self.set)(filter) {
            *current = Some(settings.clone());
        }
        Ok(())
    }
}

/// A logger that writes to `writer`, and its level control.
pub(crate) fn logger<W>(
    settings: &LogSettings,
    writer: W,
) -> Result<(impl Subscriber + Send + Sync, LogControl), LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter(settings)?);
    let output = lines(settings.format, writer)
        .with_filter(filter.and(tracing_subscriber::filter::filter_fn(without_bodies)));
    let control = LogControl {
        set: Arc::new(move |filter| handle.reload(filter).is_ok()),
        current: Arc::new(Mutex::new(Some(settings.clone()))),
    };
    Ok((Registry::default().with(output), control))
}

fn lines<S, W>(format: LogFormat, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    match format {
        LogFormat::Text => layer.with_ansi(false).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_span_list(false).boxed(),
    }
}

/// Sets up the logger of the process, once. A panic becomes one log line.
pub fn init(settings: &LogSettings) -> Result<LogControl, LogError> {
    let (subscriber, control) = logger(settings, std::io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::AlreadySet)?;
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let text = panic.payload_as_str().unwrap_or("without a message");
        tracing::error!(place, "panic: {text}");
    }));
    Ok(control)
}

#[cfg(test)]
mod tests;
