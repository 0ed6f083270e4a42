//! Settings and credentials that change while the program runs.
//!
//! The files are read again every few seconds, because what a Secret mounts changes by
//! symbolic links that watches lose sight of. New settings are tried on the cloud before
//! they replace the old ones; until then the old ones stay.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    sync::Weak,
    time::Duration,
};

use ccm_cloud::{Call, CloudError, ErrorKind};
use tokio::{
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{
    cloud::OpenStackCloud,
    config::{Config, Environment, Loaded, Unusable, files},
    metrics::OpenStackMetrics,
    session::{REFUSED, is_refused_login},
};

/// From one look at the files to the next.
const PERIOD: Duration = Duration::from_secs(5);
/// How long the new settings are tried.
const TRIAL: Call = Call::routine(Duration::from_secs(30));
/// When settings that the cloud did not take are tried again: a region, for instance, can
/// come into the catalog later. Credentials that Keystone refused wait longer each time.
const AGAIN: Duration = Duration::from_secs(30);

/// The file of `--cloud-config` and all that it leads to.
#[derive(Clone, Debug)]
pub(super) struct Files {
    /// The first is that of `--cloud-config`.
    paths: Vec<PathBuf>,
    /// What they held just before they were read last: what changes while they are read
    /// is noticed at the next look.
    seen: u64,
}

impl Files {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { paths: vec![path], seen: 0 }
    }

    fn path(&self) -> &Path {
        self.paths.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Reads and checks all of them.
    pub(super) async fn load(&mut self) -> Result<Loaded, CloudError> {
        loop {
            self.seen = fingerprint(self.paths.clone()).await;
            let path = self.path().to_owned();
            let outcome =
                spawn_blocking(move || Config::load(&path, &Environment::of_process())).await;
            let (outcome, paths) = match outcome {
                Ok(Ok(loaded)) => {
                    let files = loaded.files.clone();
                    (Ok(loaded), files)
                }
                Ok(Err(Unusable { error, files })) => (Err(error), files),
                Err(error) => {
                    let why = format!("cannot read the files: {error}");
                    return Err(CloudError::new(ErrorKind::Unavailable, why));
                }
            };
            if self.paths == paths {
                return outcome;
            }
            // Which files there are is known only now.
            self.paths = paths;
        }
    }

    /// Whether they hold something else than when they were read.
    async fn have_changed(&self) -> bool {
        fingerprint(self.paths.clone()).await != self.seen
    }
}

/// A number for what these files hold. A file that cannot be read, or is not there yet,
/// counts, too.
async fn fingerprint(files: Vec<PathBuf>) -> u64 {
    let read = move || {
        let mut hasher = DefaultHasher::new();
        for path in &files {
            path.hash(&mut hasher);
            files::bytes(path).ok().hash(&mut hasher);
        }
        hasher.finish()
    };
    spawn_blocking(read).await.unwrap_or_default()
}

/// Settings that the cloud did not take, and when they are tried again.
#[derive(Default)]
struct Again {
    at: Option<Instant>,
    /// How often Keystone refused the credentials that the files hold.
    refusals: u32,
}

impl Again {
    /// Whatever the cloud has against them, it may change its mind: a region, for
    /// instance, can come into the catalog later.
    fn later(&mut self, error: &CloudError) {
        let pause = match is_refused_login(error) {
            true => {
                self.refusals = self.refusals.saturating_add(1);
                REFUSED.after(self.refusals)
            }
            false => AGAIN,
        };
        self.at = Some(Instant::now() + pause);
    }

    fn is_due(&self) -> bool {
        self.at.is_some_and(|at| at <= Instant::now())
    }
}

/// Looks at the files until the cloud is given up.
pub(super) async fn run(mut files: Files, cloud: Weak<OpenStackCloud>, metrics: OpenStackMetrics) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut again = Again::default();
    loop {
        ticks.tick().await;
        let Some(cloud) = cloud.upgrade() else { return };
        let is_news = files.have_changed().await;
        if !is_news && !again.is_due() {
            continue;
        }
        if is_news {
            again = Again::default();
        }
        let outcome = adopt(&mut files, &cloud, &mut again, is_news).await;
        metrics.configuration(outcome.is_ok());
        if let Err(error) = outcome {
            let path = files.path().display();
            if is_news {
                tracing::warn!(%path, %error, "the changed cloud configuration is not used; the one before stays");
            } else {
                tracing::debug!(%path, %error, "the changed cloud configuration is still not used");
            }
        }
    }
}

async fn adopt(
    files: &mut Files,
    cloud: &OpenStackCloud,
    again: &mut Again,
    is_news: bool,
) -> Result<(), CloudError> {
    again.at = None;
    let Loaded { config, warnings, .. } = files.load().await?;
    if is_news {
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
    }
    cloud.replace(&config, TRIAL).await.inspect_err(|error| again.later(error))?;
    cloud.introduce("the changed cloud configuration is in use");
    Ok(())
}

#[cfg(test)]
mod tests;
