//! Settings and credentials that change while the program runs.
//!
//! The files are read again every few seconds, because what a Secret mounts changes by
//! symbolic links that watches lose sight of. New settings are tried with a login before
//! they replace the old ones; until then the old ones stay.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::PathBuf,
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
    config::{Config, Loaded, Process, Unusable, files},
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
    path: PathBuf,
}

impl Files {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Reads and checks all of them.
    pub(super) async fn load(&self) -> Result<Loaded, Unusable> {
        let path = self.path.clone();
        spawn_blocking(move || Config::load(&path, &Process)).await.unwrap_or_else(|error| {
            let why = format!("cannot read the files: {error}");
            let error = CloudError::new(ErrorKind::Unavailable, why);
            Err(Unusable { error, files: vec![self.path.clone()] })
        })
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

/// What is known of the files.
struct Watched {
    files: Vec<PathBuf>,
    /// What they held when they were read last.
    seen: u64,
    /// When settings that the cloud did not take are tried again.
    again: Option<Instant>,
    /// How often Keystone refused the credentials that they hold.
    refusals: u32,
}

impl Watched {
    /// The cloud did not take what the files hold.
    fn refused(&mut self, error: &CloudError) {
        let pause = match is_refused_login(error) {
            true => {
                self.refusals = self.refusals.saturating_add(1);
                REFUSED.after(self.refusals)
            }
            false => AGAIN,
        };
        self.again = Some(Instant::now() + pause);
    }
}

/// Looks at the files until the cloud is given up.
pub(super) async fn run(
    files: Files,
    loaded: Loaded,
    cloud: Weak<OpenStackCloud>,
    metrics: OpenStackMetrics,
) {
    let seen = fingerprint(loaded.files.clone()).await;
    let mut watched = Watched { files: loaded.files, seen, again: None, refusals: 0 };
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(cloud) = cloud.upgrade() else { return };
        let now = fingerprint(watched.files.clone()).await;
        let is_due = watched.again.is_some_and(|at| at <= Instant::now());
        if now == watched.seen && !is_due {
            continue;
        }
        let is_news = now != watched.seen;
        watched.seen = now;
        let outcome = adopt(&files, &cloud, &mut watched, is_news).await;
        metrics.configuration(outcome.is_ok());
        if let Err(error) = outcome {
            let path = files.path.display();
            if is_news {
                tracing::warn!(%path, %error, "the changed cloud configuration is not used; the one before stays");
            } else {
                tracing::debug!(%path, %error, "the changed cloud configuration is still not used");
            }
        }
    }
}

async fn adopt(
    files: &Files,
    cloud: &OpenStackCloud,
    watched: &mut Watched,
    is_news: bool,
) -> Result<(), CloudError> {
    watched.again = None;
    let (read, counting) = match files.load().await {
        Ok(loaded) => (Ok((loaded.config, loaded.warnings)), loaded.files),
        Err(unusable) => (Err(unusable.error), unusable.files),
    };
    if watched.files != counting {
        watched.seen = fingerprint(counting.clone()).await;
        watched.files = counting;
    }
    let (config, warnings) = read?;
    if is_news {
        watched.refusals = 0;
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
    }
    // Whatever the cloud has against them, it may change its mind.
    cloud.replace(&config, TRIAL).await.inspect_err(|error| watched.refused(error))?;
    tracing::info!(path = %files.path.display(), "the changed cloud configuration is in use");
    Ok(())
}

#[cfg(test)]
mod tests;
