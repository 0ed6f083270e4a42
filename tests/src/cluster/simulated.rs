//! The simulated API server behind an HTTP listener.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Request;

/// A running simulated API server.
pub struct SimulatedCluster {
    kubeconfig: PathBuf,
}

impl SimulatedCluster {
    /// Starts it on a free port.
    pub async fn start() -> Result<Self> {
        anyhow::bail!("not there yet")
    }

    /// The kubeconfig for it.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// What it was asked.
    pub fn requests(&self) -> Vec<Request> {
        Vec::new()
    }

    /// Ends it.
    pub fn stop(self) {}
}
