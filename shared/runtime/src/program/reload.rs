//! Reloads the configuration file while the program runs.
//!
//! It polls the content instead of watching the file: a mounted ConfigMap replaces a symbolic
//! link, and a watch on the file misses all changes after the first.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use ccm_metrics::{Counter, Every, Family, Gauge, label, metrics};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use strum::{IntoStaticStr, VariantNames};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use ccm_settings::{Changes, Problems};

use crate::{
    health::{Condition, Health, Scope},
    metrics::Metrics,
    settings::{CommonSettings, Loaded},
};

/// Poll interval for the content of the file.
const PERIOD: Duration = Duration::from_secs(5);

/// The outcome of a new version of the file.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum Outcome {
    Success,
    Failure,
}

label!(Outcome);

metrics! {
    /// `ccm_config_*`.
    pub(crate) struct ConfigMetrics {
        /// New versions of the configuration file, by whether they were loaded
        [ALPHA] ccm_config_reloads { result } => reloads: Family<Counter, Outcome>, begin Every;
        /// Whether the current configuration file is valid: 1, or 0 while an older version is in use
        [ALPHA] ccm_config_valid => valid: Gauge;
    }
}

/// The result of one poll of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The content is unchanged.
    Same,
    /// A new version was applied, except for settings that need a restart.
    Taken(Changes),
    /// A new version was rejected; the previous one stays in force.
    Refused(Problems),
}

/// Keeps a program's settings up to date with its file.
pub(crate) struct Reload<S> {
    loaded: Loaded<S>,
    /// The last content read, valid or not; a read error counts as content.
    seen: Result<[u8; 32], String>,
    common: watch::Sender<Arc<CommonSettings>>,
    own: watch::Sender<Arc<S>>,
    page: Arc<ArcSwap<String>>,
    condition: Condition,
    metrics: ConfigMetrics,
}

impl<S: PartialEq + Serialize + Send + Sync + 'static> Reload<S> {
    /// Starts with the settings loaded at startup.
    pub(crate) fn new(loaded: Loaded<S>, health: &Health, metrics: &Metrics) -> Self {
        let condition = health.condition("config", Scope::Information, "not read");
        let page = loaded.configz();
        let this = Self {
            seen: Ok(digest(loaded.file.as_deref().unwrap_or_default())),
            common: watch::Sender::new(Arc::clone(&loaded.common)),
            own: watch::Sender::new(Arc::clone(&loaded.own)),
            page: Arc::new(ArcSwap::from_pointee(page)),
            loaded,
            condition,
            metrics: ConfigMetrics::new(metrics),
        };
        this.metrics.valid.set(1);
        this.report(&[]);
        this
    }

    /// The common settings, updated on reload.
    pub(crate) fn common(&self) -> watch::Receiver<Arc<CommonSettings>> {
        self.common.subscribe()
    }

    /// The program's own settings, updated on reload.
    pub(crate) fn own(&self) -> watch::Receiver<Arc<S>> {
        self.own.subscribe()
    }

    /// The page `/configz`, updated on reload.
    pub(crate) fn page(&self) -> Arc<ArcSwap<String>> {
        Arc::clone(&self.page)
    }

    /// Polls the file until the token is cancelled.
    pub(crate) async fn run(mut self, token: CancellationToken) {
        let Some(path) = self.loaded.config_path().map(str::to_owned) else {
            // Keeps the senders alive, so that receivers never see them closed.
            token.cancelled().await;
            return;
        };
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while token.run_until_cancelled(ticks.tick()).await.is_some() {
            let content = tokio::fs::read_to_string(&path).await.map_err(|error| error.to_string());
            match self.look(content) {
                Look::Same => {}
                Look::Taken(Changes { changed, restart }) => {
                    tracing::info!(
                        file = path,
                        changed = changed.join(","),
                        "loaded a new version of the configuration file"
                    );
                    if !restart.is_empty() {
                        tracing::warn!(
                            file = path,
                            settings = restart.join(","),
                            "changed settings need a restart to take effect"
                        );
                    }
                }
                Look::Refused(problems) => {
                    for problem in problems.iter() {
                        tracing::error!(
                            file = path,
                            "rejected the new version of the configuration file: {problem}"
                        );
                    }
                }
            }
        }
    }

    /// Validates the content of the file and applies it.
    pub(crate) fn look(&mut self, content: Result<String, String>) -> Look {
        let seen = content.as_deref().map(digest).map_err(Clone::clone);
        if seen == self.seen {
            return Look::Same;
        }
        self.seen = seen;
        match self.loaded.take(content) {
            Ok(changes) => {
                self.page.store(Arc::new(self.loaded.configz()));
                publish(&self.common, &self.loaded.common);
                publish(&self.own, &self.loaded.own);
                self.metrics.reloads.of(Outcome::Success).inc();
                self.metrics.valid.set(1);
                self.report(&changes.restart);
                Look::Taken(changes)
            }
            Err(problems) => {
                self.metrics.reloads.of(Outcome::Failure).inc();
                self.metrics.valid.set(0);
                let lines = problems.to_string().replace('\n', "; ");
                self.condition
                    .fail(format!("the new version is invalid, the old one stays in use: {lines}"));
                Look::Refused(problems)
            }
        }
    }

    fn report(&self, restart: &[String]) {
        let text = match (self.loaded.config_path(), &self.seen) {
            (Some(path), Ok(digest)) => {
                let [a, b, c, d, ..] = digest;
                let short = format!("{a:02x}{b:02x}{c:02x}{d:02x}");
                let pending = match restart {
                    [] => String::new(),
                    keys => format!("; a restart is needed for {}", keys.join(", ")),
                };
                format!("{path}, sha256 {short}{pending}")
            }
            _ => "no configuration file".to_owned(),
        };
        self.condition.pass(text);
    }
}

fn publish<T: PartialEq>(sender: &watch::Sender<Arc<T>>, value: &Arc<T>) {
    sender.send_if_modified(|current| {
        let is_new = *current != *value;
        if is_new {
            *current = Arc::clone(value);
        }
        is_new
    });
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

#[cfg(test)]
mod tests;
