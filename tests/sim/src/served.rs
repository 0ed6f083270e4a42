//! The simulated cloud behind the external protocol, for separate programs.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use ccm_external_server::{self as server, Listener};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cloud::SimCloud;

/// A [`SimCloud`] served on a Unix socket, with the matching `--cloud-config`.
pub struct ServedCloud {
    cloud: SimCloud,
    endpoint: String,
    config: PathBuf,
    serving: Mutex<Option<Serving>>,
}

struct Serving {
    stop: CancellationToken,
    tasks: JoinSet<Result<(), server::ServeError>>,
}

impl ServedCloud {
    /// Serves a new, empty cloud on a socket in `folder`.
    pub async fn start(folder: &Path) -> Result<Self> {
        let endpoint = format!("unix://{}", folder.join("cloud.sock").display());
        let config = folder.join("cloud.yaml");
        tokio::fs::write(&config, format!("endpoint: {endpoint}\n")).await?;
        let served = Self { cloud: SimCloud::new(), endpoint, config, serving: Mutex::new(None) };
        served.resume().await?;
        Ok(served)
    }

    /// Returns the cloud, to be filled and disturbed.
    pub fn cloud(&self) -> &SimCloud {
        &self.cloud
    }

    /// Returns the file for `--cloud-config`.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Stops serving: removes the socket and ends connections.
    pub async fn pause(&self) -> Result<()> {
        let serving = self.serving.lock().take();
        let Some(mut serving) = serving else { return Ok(()) };
        serving.stop.cancel();
        // A client keeps its connection open; it is cut here, as by a crash.
        let ended =
            tokio::time::timeout(Duration::from_millis(200), serving.tasks.join_next()).await;
        if ended.is_err() {
            serving.tasks.shutdown().await;
        }
        Ok(())
    }

    /// Serves again on the same socket.
    pub async fn resume(&self) -> Result<()> {
        let listener =
            Listener::bind(&self.endpoint).await.context("serving the simulated cloud")?;
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(server::serve(Arc::new(self.cloud.clone()), listener, None, stop.clone()));
        *self.serving.lock() = Some(Serving { stop, tasks });
        Ok(())
    }
}
