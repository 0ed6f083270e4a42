//! The environment of a measurement: a real API server, the simulated cloud, and node-ccm.

use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use ccm_sim::{
    cloud::Calls,
    program::{Launch, Program},
    served::ServedCloud,
};
use ccm_tests::{
    cluster::{Cluster, Kind, Request},
    nodes,
};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, runtime::watcher};
use parking_lot::Mutex;
use tokio::{task::JoinSet, time::Instant};

use crate::burst;

/// The world of one measurement.
pub struct Arena {
    /// The API server.
    pub cluster: Cluster,
    /// A client with all rights.
    pub client: Client,
    /// The cloud.
    pub served: ServedCloud,
    folder: tempfile::TempDir,
    record_bytes: Option<u64>,
}

impl Arena {
    /// Starts an API server and a cloud.
    pub async fn start(record_bytes: Option<u64>) -> Result<Self> {
        let cluster = Cluster::start(Kind::Real).await?;
        let client = cluster.client().await?;
        let folder = tempfile::Builder::new().prefix("quartet-bench-").tempdir()?;
        let served = ServedCloud::start(folder.path()).await?;
        Ok(Self { cluster, client, served, folder, record_bytes })
    }

    /// Returns how to start node-ccm here.
    pub fn launch(&self) -> Launch {
        self.controller("node-ccm")
    }

    /// Returns how to start the controller of this name here.
    pub fn controller(&self, name: &str) -> Launch {
        let launch =
            Launch::controller(name, self.cluster.kubeconfig(), "external", self.served.config());
        match self.record_bytes {
            Some(bytes) => launch.arg(format!("--record-bytes={bytes}")),
            None => launch,
        }
    }

    /// Starts node-ccm and waits until it leads.
    pub async fn node_ccm(&self, launch: &Launch) -> Result<Program> {
        let mut program = launch.start(self.folder.path())?;
        program.ready().await?;
        program.leading(Duration::from_secs(30)).await?;
        Ok(program)
    }

    /// Starts node-ccm and waits until it is ready.
    pub async fn standby(&self, launch: &Launch) -> Result<Program> {
        let mut program = launch.start(self.folder.path())?;
        program.ready().await?;
        Ok(program)
    }

    /// Returns the folder of the programs' logs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Creates the instances of `count` nodes.
    pub fn instances(&self, count: usize) {
        self.served.cloud().clear();
        for name in burst::names(count) {
            self.served.cloud().add(nodes::instance(&name));
        }
    }

    /// Counts lookups and pages of lists since `earlier`.
    pub fn cloud_calls(&self, earlier: Calls) -> u64 {
        let calls = self.served.cloud().calls().since(&earlier);
        calls.lookup + calls.list
    }

    /// Returns the requests of node-ccm that the API server recorded after the first `mark`
    /// requests.
    pub async fn requests(&self, mark: usize) -> Result<Vec<Request>> {
        let all = self.cluster.requests("").await?;
        Ok(all
            .into_iter()
            .skip(mark)
            .filter(|request| request.user_agent.starts_with("node-ccm/"))
            .collect())
    }

    /// Returns how many requests the API server has recorded so far, from all clients.
    pub async fn mark(&self) -> Result<usize> {
        Ok(self.cluster.requests("").await?.len())
    }

    /// Ends everything.
    pub async fn stop(self) -> Result<()> {
        self.served.pause().await?;
        self.cluster.stop().await
    }
}

/// Watches nodes and notes when each of them was first seen without the taint.
pub struct Untainted {
    seen: Arc<Mutex<HashMap<String, Instant>>>,
    _tasks: JoinSet<()>,
}

impl Untainted {
    /// Starts to watch.
    pub fn watch(client: &Client) -> Self {
        Self::watch_for(client, |node| !nodes::is_tainted(node))
    }

    /// Starts to watch for nodes for which this is true.
    pub fn watch_for(client: &Client, is: fn(&Node) -> bool) -> Self {
        let api = Api::<Node>::all(client.clone());
        let seen = Arc::<Mutex<HashMap<String, Instant>>>::default();
        let mut tasks = JoinSet::new();
        let log = seen.clone();
        tasks.spawn(async move {
            let mut stream =
                std::pin::pin!(watcher(api, watcher::Config::default().page_size(100)));
            loop {
                match stream.try_next().await {
                    Ok(Some(watcher::Event::Apply(node) | watcher::Event::InitApply(node))) => {
                        note(&log, &node, is);
                    }
                    Ok(Some(_)) => (),
                    Ok(None) => return,
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        });
        Self { seen, _tasks: tasks }
    }

    /// Waits until these nodes have been seen without the taint, and returns when each was.
    pub async fn each(&self, names: &[String], limit: Duration) -> Result<Vec<Instant>> {
        let end = Instant::now() + limit;
        loop {
            let seen: Option<Vec<Instant>> = {
                let seen = self.seen.lock();
                names.iter().map(|name| seen.get(name).copied()).collect()
            };
            if let Some(seen) = seen {
                return Ok(seen);
            }
            anyhow::ensure!(Instant::now() < end, "not all nodes initialised after {limit:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until `count` nodes have been seen without the taint, and returns when each was.
    pub async fn all(&self, count: usize, limit: Duration) -> Result<HashMap<String, Instant>> {
        let end = Instant::now() + limit;
        while self.seen.lock().len() < count {
            let seen = self.seen.lock().len();
            (Instant::now() < end)
                .then_some(())
                .with_context(|| format!("{seen} of {count} nodes after {limit:?}"))?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(self.seen.lock().clone())
    }
}

fn note(log: &Mutex<HashMap<String, Instant>>, node: &Node, is: fn(&Node) -> bool) {
    if is(node) {
        let name = node.metadata.name.clone().unwrap_or_default();
        log.lock().entry(name).or_insert_with(Instant::now);
    }
}
