//! Reloads the configuration file while the program runs.

use std::{path::Path, sync::Arc};

use arc_swap::ArcSwap;
use ccm_metrics::{Counter, Every, Family, Gauge, label, metrics};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use strum::{IntoStaticStr, VariantNames};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use ccm_settings::{Changes, Problems, configuration_files};

use crate::{
    health::{Condition, Health, Scope},
    metrics::Metrics,
    settings::{CommonSettings, Loaded},
};

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
        /// 1 if the current configuration file is valid, 0 while an older version is in use
        [ALPHA] ccm_config_valid => valid: Gauge;
    }
}

/// Keeps a program's settings up to date with its file.
pub(crate) struct Reload<S> {
    loaded: Loaded<S>,
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
            common: watch::Sender::new(Arc::clone(&loaded.common)),
            own: watch::Sender::new(Arc::clone(&loaded.own)),
            page: Arc::new(ArcSwap::from_pointee(page)),
            loaded,
            condition,
            metrics: ConfigMetrics::new(metrics),
        };
        this.metrics.valid.set(1);
        this.report(&Changes::default());
        this
    }

    /// Returns the common settings, updated on reload.
    pub(crate) fn common(&self) -> watch::Receiver<Arc<CommonSettings>> {
        self.common.subscribe()
    }

    /// Returns the program's own settings, updated on reload.
    pub(crate) fn own(&self) -> watch::Receiver<Arc<S>> {
        self.own.subscribe()
    }

    /// Returns the page `/configz`, updated on reload.
    pub(crate) fn page(&self) -> Arc<ArcSwap<String>> {
        Arc::clone(&self.page)
    }

    /// Follows the file until the token is cancelled.
    pub(crate) async fn run(mut self, token: CancellationToken) {
        let Some(file) = self.loaded.config_path().map(str::to_owned) else {
            // This keeps the senders alive, so that receivers never see them closed.
            token.cancelled().await;
            return;
        };
        let (path, mut files) = (Path::new(&file), configuration_files());
        let start = self.loaded.file.clone().unwrap_or_default();
        files.remember(path, &Ok(start.into_bytes()));
        while token.run_until_cancelled(files.changed()).await.is_some() {
            match self.take(files.text(path)) {
                Ok(Changes { changed, restart, warnings, .. }) => {
                    tracing::info!(
                        file,
                        changed = changed.join(","),
                        "loaded a new version of the configuration file"
                    );
                    if !restart.is_empty() {
                        tracing::warn!(
                            file,
                            settings = restart.join(","),
                            "changed settings need a restart to take effect"
                        );
                    }
                    for warning in warnings {
                        tracing::warn!(file, "{warning}");
                    }
                }
                Err(problems) => {
                    for problem in problems.iter() {
                        tracing::error!(
                            file,
                            "rejected the new version of the configuration file: {problem}"
                        );
                    }
                }
            }
        }
    }

    /// Validates the content of the file and applies it, except for settings that need a restart.
    /// An invalid version is refused as a whole: the previous one stays in force.
    fn take(&mut self, content: Result<String, String>) -> Result<Changes, Problems> {
        let outcome = self.loaded.take(content);
        match &outcome {
            Ok(changes) => {
                self.page.store(Arc::new(self.loaded.configz()));
                publish(&self.common, &self.loaded.common);
                publish(&self.own, &self.loaded.own);
                self.metrics.reloads.series(Outcome::Success).inc();
                self.metrics.valid.set(1);
                self.report(changes);
            }
            Err(problems) => {
                self.metrics.reloads.series(Outcome::Failure).inc();
                self.metrics.valid.set(0);
                let lines = problems.to_string().replace('\n', "; ");
                self.condition
                    .fail(format!("the new version is invalid, the old one stays in use: {lines}"));
            }
        }
        outcome
    }

    fn report(&self, Changes { restart, stops, .. }: &Changes) {
        let text = match (self.loaded.config_path(), &self.loaded.file) {
            (Some(path), Some(text)) => {
                let [a, b, c, d, ..]: [u8; 32] = Sha256::digest(text).into();
                let mut parts = vec![format!("{path}, sha256 {a:02x}{b:02x}{c:02x}{d:02x}")];
                if !restart.is_empty() {
                    parts.push(format!("a restart is needed for {}", restart.join(", ")));
                }
                let kept = |stop| format!("{stop} is no longer in the file and stays 0");
                parts.extend(stops.iter().map(kept));
                parts.join("; ")
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

#[cfg(test)]
mod tests;
