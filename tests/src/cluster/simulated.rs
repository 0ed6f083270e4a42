//! The simulated API server behind an HTTP listener.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Result, anyhow};
use ccm_sim::apiserver::{ApiServer, FaultPlan, ListenHandle, Options};
use serde_json::Value;

use super::Request;

/// A running simulated API server.
pub struct SimulatedCluster {
    server: Arc<ApiServer>,
    listener: ListenHandle,
    kubeconfig: PathBuf,
    _folder: tempfile::TempDir,
}

impl SimulatedCluster {
    /// Starts it on a free port.
    pub async fn start() -> Result<Self> {
        Self::start_with(Options::default()).await
    }

    /// Starts it with these options on a free port.
    pub async fn start_with(options: Options) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("quartet-sim-").tempdir()?;
        let server = ApiServer::new(options);
        let listener = server.listen((Ipv4Addr::LOCALHOST, 0).into()).await?;
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig(listener.addr))?;
        Ok(Self { server, listener, kubeconfig, _folder: folder })
    }

    /// Returns the kubeconfig for it.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Creates an object, without a request.
    pub fn create(&self, object: Value) -> Result<()> {
        self.server.create(object).map(drop).map_err(|error| anyhow!("{error:?}"))
    }

    /// Returns the faults in force, to add to and to clear.
    pub fn faults(&self) -> &FaultPlan {
        self.server.faults()
    }

    /// Ends all watches that are open now.
    pub fn cut_watches(&self) {
        self.server.cut_watches("", true);
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<Request> {
        let request = |record: ccm_sim::apiserver::Record| Request {
            verb: record.verb.as_str().to_owned(),
            code: record.outcome.code(),
            resource: record.resource,
            subresource: record.subresource,
            namespace: record.namespace,
            name: record.name,
            uri: record.uri,
            user_agent: record.user_agent,
            user: record.user,
            uid: None,
            received: None,
        };
        self.server.audit().records().into_iter().map(request).collect()
    }

    /// Ends it.
    pub async fn stop(self) {
        self.listener.shutdown().await;
    }
}
