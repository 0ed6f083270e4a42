//! Log lines on stderr: text for people or JSON for collectors, with levels that can
//! change while the process runs.

use ccm_settings::one_of;
use serde::Serialize;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::{
    Layer, Registry,
    filter::{FilterExt as _, Targets, filter_fn},
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
        /// Log verbosity: 0 to 3 info, 4 and 5 debug, 6 and more trace.
        pub verbosity: u8 = live(Count, "v", "0");
        /// Log levels per module, instead of -v, for instance info,ccm_runtime::leadership=debug. Bodies of requests
        /// and responses are never logged.
        pub filter: Option<String> = live(Text, "log-filter", ""), read_filter;
        /// text or json.
        pub format: LogFormat = fixed(Text, "logging-format", "text"),
            one_of(&[("text", LogFormat::Text), ("json", LogFormat::Json)]);
    }
}

/// Levels for the libraries' own lines, which help only in debugging a library. Each warning of
/// kube_runtime is about an error that the informer also logs. kube_client logs whole bodies. Its
/// messages may contain secrets that it cannot parse, so only errors are logged.
const LIBRARIES: &str = "kube_client=error,kube_runtime=error,hyper=warn,hyper_util=warn,rustls=warn,tower=warn,h2=warn,tonic=warn";

/// Reads a filter. Returns `None` for an empty text.
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
fn filter(settings: &LogSettings) -> Targets {
    let level = match settings.verbosity {
        0..=3 => "info",
        4..=5 => "debug",
        6.. => "trace",
    };
    let chosen = settings.filter.as_deref().unwrap_or(level);
    // The user's directive for a library comes later and takes precedence. All parts were checked
    // when the settings were read.
    format!("{LIBRARIES},{chosen}").parse().unwrap_or_default()
}

/// Drops bodies: kube_client's lines below level error may contain them.
fn without_bodies(metadata: &Metadata<'_>) -> bool {
    *metadata.level() == Level::ERROR || !metadata.target().starts_with("kube_client")
}

/// Changes the levels of a running process. Clones control the same logger.
#[derive(Clone, Debug)]
pub struct LogControl(Option<reload::Handle<Targets, Registry>>);

impl LogControl {
    /// Creates a control without effect, for a process that uses another logger.
    pub fn detached() -> Self {
        Self(None)
    }

    /// Applies the levels of these settings. The format stays.
    pub fn apply(&self, settings: &LogSettings) {
        if let Some(handle) = &self.0 {
            // Fails only when the logger is gone, and then nothing can be logged.
            handle.reload(filter(settings)).ok();
        }
    }
}

/// Returns a logger that writes to `writer`, and its level control.
pub(crate) fn logger<W>(
    settings: &LogSettings,
    writer: W,
) -> (impl Subscriber + Send + Sync, LogControl)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(filter(settings));
    let output = lines(settings.format, writer).with_filter(filter.and(filter_fn(without_bodies)));
    (Registry::default().with(output), LogControl(Some(handle)))
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
pub fn init(settings: &LogSettings) -> Result<LogControl, String> {
    let (subscriber, control) = logger(settings, std::io::stderr);
    tracing::subscriber::set_global_default(subscriber)
        .map_err(|_| "logging is already set up".to_owned())?;
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let text = panic.payload_as_str().unwrap_or("without a message");
        tracing::error!(place, "panic: {text}");
    }));
    Ok(control)
}

#[cfg(test)]
mod tests;
