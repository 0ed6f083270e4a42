//! The configuration file while the program runs.
//!
//! The content is polled, not the file watched: a mounted ConfigMap swaps a symbolic
//! link, and a watch on the file goes blind after the first change.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use ccm_metrics::{Counter, Every, Family, Gauge, label, metrics};
use sha2::{Digest as _, Sha256};
use strum::{IntoStaticStr, VariantNames};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::{
    CommonSettings, Problems, RawSettings,
    layers::merge,
    load::{Loaded, configz, typed},
};
use crate::{
    health::{Condition, Health, Scope},
    metrics::Metrics,
    options::Known,
    program::Program,
};

/// How often the content of the file is looked at.
const PERIOD: Duration = Duration::from_secs(5);

/// How one new version of the file ended.
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
        /// New versions of the configuration file, by whether they were taken over
        [ALPHA] ccm_config_reloads { result } => reloads: Family<Counter, Outcome>, begin Every;
        /// Whether the configuration file as it is now is valid: 1, or 0 while an older version is used
        [ALPHA] ccm_config_valid => valid: Gauge;
    }
}

/// What came of one look at the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The content is what it was.
    Same,
    /// A new version was taken over, as far as that is possible without a restart.
    Taken {
        /// The keys that changed.
        changed: Vec<String>,
        /// The keys that changed in the file, but take effect only at the next start.
        restart: Vec<String>,
    },
    /// A new version was refused; the old one stays.
    Refused(Problems),
}

/// Keeps a program's settings up to date with its file.
pub(crate) struct Reload<P: Program> {
    loaded: Loaded<P>,
    /// The last content looked at, good or bad; an error is content, too.
    seen: Result<[u8; 32], String>,
    common: watch::Sender<Arc<CommonSettings>>,
    own: watch::Sender<Arc<P::Settings>>,
    page: Arc<ArcSwap<String>>,
    condition: Condition,
    metrics: ConfigMetrics,
}

impl<P: Program> Reload<P> {
    /// Begins with what was loaded at the start.
    pub(crate) fn new(loaded: Loaded<P>, health: &Health, metrics: &Metrics) -> Self {
        let condition = health.condition("config", Scope::Information, "not read");
        let page = configz::<P>(&loaded.raw, &loaded.common, &loaded.own);
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

    /// The common settings as they change.
    pub(crate) fn common(&self) -> watch::Receiver<Arc<CommonSettings>> {
        self.common.subscribe()
    }

    /// The program's own settings as they change.
    pub(crate) fn own(&self) -> watch::Receiver<Arc<P::Settings>> {
        self.own.subscribe()
    }

    /// The page `/configz`, kept up to date.
    pub(crate) fn page(&self) -> Arc<ArcSwap<String>> {
        Arc::clone(&self.page)
    }

    /// Looks at the file until the token is cancelled.
    pub(crate) async fn run(mut self, token: CancellationToken) {
        let Some(path) = self.loaded.given.config_path().map(str::to_owned) else {
            // The senders live here, so that receivers never see them closed.
            token.cancelled().await;
            return;
        };
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while token.run_until_cancelled(ticks.tick()).await.is_some() {
            let content = tokio::fs::read_to_string(&path).await.map_err(|error| error.to_string());
            match self.look(content) {
                Look::Same => {}
                Look::Taken { changed, restart } => {
                    tracing::info!(
                        file = path,
                        changed = changed.join(","),
                        "took over a new version of the configuration file"
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
                            "refused the new version of the configuration file: {problem}"
                        );
                    }
                }
            }
        }
    }

    /// Judges the content of the file.
    pub(crate) fn look(&mut self, content: Result<String, String>) -> Look {
        let seen = content.as_deref().map(digest).map_err(Clone::clone);
        if seen == self.seen {
            return Look::Same;
        }
        self.seen = seen;
        match self.take(content) {
            Ok((changed, restart)) => {
                self.metrics.reloads.of(Outcome::Success).inc();
                self.metrics.valid.set(1);
                self.report(&restart);
                Look::Taken { changed, restart }
            }
            Err(problems) => {
                self.metrics.reloads.of(Outcome::Failure).inc();
                self.metrics.valid.set(0);
                let lines = problems.to_string().replace('\n', "; ");
                self.condition
                    .fail(format!("the new version is refused, the old one stays: {lines}"));
                Look::Refused(problems)
            }
        }
    }

    fn take(
        &mut self,
        content: Result<String, String>,
    ) -> Result<(Vec<String>, Vec<String>), Problems> {
        let mut problems = Problems::new();
        let text = content.map_err(|error| {
            let mut problems = Problems::new();
            let config = self.loaded.given.describe_config();
            problems.add(config, format!("must be a readable file: {error}"));
            problems
        })?;
        let merged = merge(&self.loaded.catalogue, &self.loaded.given, Some(&text), &mut problems);
        // The whole new version must be valid, also what needs a restart: the next start
        // must not be the moment in which a mistake is found.
        typed::<P>(&self.loaded.catalogue, &merged.raw, problems)?;
        let (raw, changed, restart) = self.effective(&merged.raw);
        let (common, own) = typed::<P>(&self.loaded.catalogue, &raw, Problems::new())?;
        self.page.store(Arc::new(configz::<P>(&raw, &common, &own)));
        publish(&self.common, &common);
        publish(&self.own, &own);
        self.loaded.raw = raw;
        (self.loaded.common, self.loaded.own, self.loaded.file) = (common, own, Some(text));
        Ok((changed, restart))
    }

    /// The new values of live settings with the old ones of the others; the keys of
    /// both.
    fn effective(&self, new: &RawSettings) -> (RawSettings, Vec<String>, Vec<String>) {
        let (mut changed, mut restart) = (Vec::new(), Vec::new());
        let mut effective = RawSettings::default();
        for (key, value) in new.iter() {
            let old = self.loaded.raw.value(key);
            let is_new = old.is_none_or(|old| old.text != value.text);
            let live = matches!(self.loaded.catalogue.find(key), Some(Known::Setting(entry)) if entry.doc.live);
            let kept = match old {
                Some(old) if is_new && !live => {
                    restart.push(key.to_owned());
                    old
                }
                _ => {
                    if is_new {
                        changed.push(key.to_owned());
                    }
                    value
                }
            };
            effective.insert(key.to_owned(), kept.clone());
        }
        (effective, changed, restart)
    }

    fn report(&self, restart: &[String]) {
        let text = match (self.loaded.given.config_path(), &self.seen) {
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
