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

/// How lines are written.
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

/// The libraries' own lines, which only a person who looks for a defect in them wants.
/// Each warning of kube_runtime is about an error that the informer tells in its own words.
/// kube_client logs whole bodies, Secrets included, when one cannot be read: errors
/// only, whatever else is asked for.
const LIBRARIES: &str = "kube_client=error,kube_runtime=error,hyper=warn,hyper_util=warn,rustls=warn,tower=warn,h2=warn,tonic=warn";

/// Logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The process has a logger already.
    #[error("logging is set up already")]
    AlreadySet,
    /// The filter cannot be read.
    #[error("--log-filter={filter}: {rule}")]
    Filter {
        /// As given.
        filter: String,
        /// What would be right.
        rule: String,
    },
}

/// The levels that these settings stand for.
fn directives(settings: &LogSettings) -> String {
    let level = match settings.verbosity {
        0..=3 => "info",
        4..=5 => "debug",
        6.. => "trace",
    };
    let chosen = settings.filter.clone().unwrap_or_else(|| level.to_owned());
    // What the person says about a library comes after, and so wins.
    format!("{LIBRARIES},{chosen}")
}

/// Reads a filter; empty is none.
fn read_filter(filter: &str, _: &str) -> Result<Option<String>, String> {
    if filter.is_empty() { Ok(None) } else { check_filter(filter).map(|()| Some(filter.into())) }
}

/// Whether this is a filter. The error says what would be right.
fn check_filter(filter: &str) -> Result<(), String> {
    let is_level =
        |word: &str| matches!(word, "off" | "error" | "warn" | "info" | "debug" | "trace");
    // The library takes a lone misspelt level for the name of a module, and would then
    // log nothing else.
    let is_part =
        |part: &str| !part.contains(' ') && is_level(part.rsplit('=').next().unwrap_or(part));
    if filter.split(',').all(is_part) && filter.parse::<Targets>().is_ok() {
        return Ok(());
    }
    Err("must be levels (off, error, warn, info, debug, trace), alone or with a module, separated by commas, for \
         instance info,ccm_runtime=debug"
        .to_owned())
}

/// By modules only: filters by spans and fields would bring regular expressions, half a
/// megabyte of them.
fn filter(settings: &LogSettings) -> Result<Targets, LogError> {
    directives(settings).parse().map_err(|_| LogError::Filter {
        filter: settings.filter.clone().unwrap_or_default(),
        rule: "must be levels such as info,ccm_runtime=debug".to_owned(),
    })
}

/// Never bodies: what kube_client says below an error may contain them.
fn without_bodies(metadata: &Metadata<'_>) -> bool {
    *metadata.level() == Level::ERROR || !metadata.target().starts_with("kube_client")
}

/// Changes the levels of a running process. Clones act on the same one.
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
    /// Acts on nothing, for a process whose logger is somebody else's.
    pub fn detached() -> Self {
        Self { set: Arc::new(|_| true), current: Arc::default() }
    }

    /// Takes over the levels of these settings. The format stays.
    pub fn apply(&self, settings: &LogSettings) -> Result<(), LogError> {
        let mut current = self.current.lock();
        if current.as_ref() == Some(settings) {
            return Ok(());
        }
        let filter = filter(settings)?;
        // False only when the logger is gone, and then there is nobody to tell.
        if (self.set)(filter) {
            *current = Some(settings.clone());
        }
        Ok(())
    }
}

/// A logger that writes to `writer`, and the control of its levels.
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

/// Sets up the logger of the process, once. Panics become one line of it.
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
