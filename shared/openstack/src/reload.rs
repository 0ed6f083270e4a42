//! Replaces settings and credentials that change while the program runs.
//!
//! New settings are tried on the cloud first. Credentials and certificates that work replace the
//! old ones; other settings that work need a restart. All others are refused.

use std::{
    path::{Path, PathBuf},
    sync::Weak,
    time::Duration,
};

use ccm_base::Files;
use ccm_cloud::{Call, CloudError, ErrorKind};
use ccm_openstack_client::{
    api::{REFUSED, is_refused_login},
    config::Environment,
    metrics::OpenStackMetrics,
};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep_until},
};

use crate::{
    cloud::{Adopted, OpenStackCloud},
    config::{Config, Loaded},
};

/// How long the new settings are tried.
const TRIAL: Duration = Duration::from_secs(30);
/// The time until settings that the cloud did not accept are tried again: a region, for instance,
/// can be added to the catalog later. Credentials that Keystone refused wait longer each time.
const AGAIN: Duration = Duration::from_secs(30);

/// The file of `--cloud-config`, and all files that it leads to.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    files: Files,
}

impl Source {
    pub fn new(path: PathBuf) -> Self {
        Self { path, files: Files::default() }
    }

    /// Reads and checks all files.
    pub async fn load(&mut self) -> Result<Loaded, CloudError> {
        self.load_by(|path, files| Config::load(path, &Environment::of_process(), files)).await
    }

    async fn load_by(
        &mut self,
        read: impl FnOnce(&Path, &mut Files) -> Result<Loaded, CloudError> + Send + 'static,
    ) -> Result<Loaded, CloudError> {
        let path = self.path.clone();
        let read = move || {
            let mut files = Files::default();
            let outcome = read(&path, &mut files);
            (files, outcome)
        };
        let (files, outcome) = spawn_blocking(read).await.unwrap_or_else(|panic| {
            // The same files would make the reader panic again.
            let mut files = Files::default();
            files.notice(&self.path);
            let why = format!("{}: cannot be read: {panic}", self.path.display());
            (files, Err(CloudError::new(ErrorKind::Invalid, why)))
        });
        self.files = files;
        outcome
    }
}

/// Decides when settings that the cloud did not accept are tried again.
#[derive(Default)]
struct NextTrial {
    at: Option<Instant>,
    /// The number of times that Keystone refused the credentials of the files.
    refusals: u32,
}

impl NextTrial {
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
}

/// Follows the files until the cloud is given up.
pub async fn run(mut source: Source, cloud: Weak<OpenStackCloud>, metrics: OpenStackMetrics) {
    let mut again = NextTrial::default();
    loop {
        let is_news = tokio::select! {
            () = source.files.changed() => true,
            () = sleep_until(again.at.unwrap_or_else(Instant::now)), if again.at.is_some() => false,
        };
        let Some(cloud) = cloud.upgrade() else { return };
        if is_news {
            again = NextTrial::default();
        }
        let outcome = adopt(&mut source, &cloud, &mut again, is_news).await;
        metrics.configuration(outcome.is_ok());
        if let Err(error) = outcome {
            let path = source.path.display();
            if is_news {
                tracing::warn!(%path, %error, "the changed cloud configuration is not used; the previous one stays in use");
            } else {
                tracing::debug!(%path, %error, "the changed cloud configuration is still not used");
            }
        }
    }
}

async fn adopt(
    source: &mut Source,
    cloud: &OpenStackCloud,
    again: &mut NextTrial,
    is_news: bool,
) -> Result<(), CloudError> {
    again.at = None;
    let Loaded { config, warnings, .. } = source.load().await?;
    if is_news {
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
    }
    match cloud.adopt(&config, Call::routine(TRIAL)).await {
        Ok(Adopted::InUse) => cloud.introduce("the changed cloud configuration is in use"),
        Ok(Adopted::AtRestart(settings)) => {
            tracing::info!(settings, "the changed cloud configuration works and needs a restart");
        }
        Err(error) => {
            again.later(&error);
            return Err(error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
