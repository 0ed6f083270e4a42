//! The fixture of every test on a cluster, whatever its cloud: an empty cluster, and the programs
//! with their own accounts.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use ccm_base::clock;
use ccm_sim::program::{Launch, Program};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Client;

use crate::{
    cluster::{self, Cluster, Request},
    nodes,
};

/// The kubeconfigs of programs with their own accounts, by the program's name.
pub type Accounts = BTreeMap<&'static str, PathBuf>;

/// The number of lines of each log that a failure shows.
const LOGGED: usize = 30;

/// A cluster without nodes, and what the programs did there since then.
pub struct Fixture {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// A client with all rights.
    pub client: Client,
    accounts: Accounts,
    folder: tempfile::TempDir,
    mark: usize,
    since: Timestamp,
    /// Time limit for actions that take moments with this cloud.
    soon: Duration,
}

impl Fixture {
    /// Empties the cluster. Programs without an account here use the admin's.
    pub async fn new(cluster: Arc<Cluster>, accounts: Accounts, soon: Duration) -> Result<Self> {
        let client = cluster.client().await?;
        cluster::clear(&client).await?;
        let folder = tempfile::Builder::new().prefix("quartet-scenario-").tempdir()?;
        let mark = cluster.requests("").await?.len();
        Ok(Self { cluster, client, accounts, folder, mark, since: clock::wall(), soon })
    }

    /// Returns a path for a file of this test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the program of this name for this cluster and a cloud, with its own rights where the
    /// cluster knows them.
    pub fn controller(&self, program: &str, provider: &str, config: &Path) -> Launch {
        Launch::controller(program, self.kubeconfig(program), provider, config)
    }

    /// Returns the kubeconfig of this program.
    pub fn kubeconfig(&self, program: &str) -> &Path {
        let account = self.accounts.get(program);
        account.map_or_else(|| self.cluster.kubeconfig(), PathBuf::as_path)
    }

    /// Starts it and waits until it is ready and leads.
    pub async fn start(&self, launch: &Launch) -> Result<Program> {
        let program = self.start_standby(launch).await?;
        program.leading(self.soon).await?;
        Ok(program)
    }

    /// Starts it and waits until it is ready.
    pub async fn start_standby(&self, launch: &Launch) -> Result<Program> {
        let mut program = self.start_only(launch)?;
        program.ready().await?;
        Ok(program)
    }

    /// Starts it without waiting.
    pub fn start_only(&self, launch: &Launch) -> Result<Program> {
        launch.start(self.folder.path())
    }

    /// Returns the last lines that each of its programs has logged, to explain a failure.
    pub fn logs(&self) -> String {
        let files = std::fs::read_dir(self.folder.path()).into_iter().flatten().flatten();
        let files = files.filter(|file| file.path().extension().is_some_and(|end| end == "log"));
        let said = files.map(|file| {
            let text = std::fs::read_to_string(file.path()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(LOGGED)..].join("\n");
            format!("{}:\n{last}", file.file_name().display())
        });
        said.collect::<Vec<_>>().join("\n")
    }

    /// Waits until the node has lost its taint.
    pub async fn initialised(&self, name: &str) -> Result<Node> {
        nodes::wait_for(&self.client, name, "no longer tainted", self.soon, |node| {
            !nodes::is_tainted(node)
        })
        .await
    }

    /// Returns the API server's record of all clients with this prefix of the user agent, since the
    /// test began.
    pub async fn requests(&self, user_agent: &str) -> Result<Vec<Request>> {
        let since = self.cluster.requests("").await?.into_iter().skip(self.mark);
        // A busy server may write its log long after its answer.
        let is_late = |request: &Request| request.received.is_some_and(|at| at < self.since);
        Ok(since
            .filter(|request| request.user_agent.starts_with(user_agent) && !is_late(request))
            .collect())
    }

    /// Returns the writes to nodes among these requests.
    pub async fn node_writes(&self, user_agent: &str) -> Result<Vec<Request>> {
        let mut all = self.requests(user_agent).await?;
        all.retain(|request| request.is_write() && request.resource == "nodes");
        Ok(all)
    }

    /// Forgets the requests so far.
    pub async fn forget_requests(&mut self) -> Result<()> {
        self.since = clock::wall();
        self.mark = self.cluster.requests("").await?.len();
        Ok(())
    }
}

/// Sets short terms of leadership, so that tests are short. The proportions are the same as in the
/// defaults.
pub fn with_short_terms(launch: Launch) -> Launch {
    launch
        .arg("--leader-elect-lease-duration=5s")
        .arg("--leader-elect-renew-deadline=3s")
        .arg("--leader-elect-retry-period=1s")
}

/// The flags of a lifecycle-ccm with quick periods.
pub const QUICK_LIFECYCLE: [&str; 3] = [
    "--node-monitor-period=1s",
    "--node-deletion-confirmation-period=2s",
    "--node-grace-period=1s",
];

/// Sets quick periods for lifecycle-ccm.
pub fn with_quick_periods(launch: Launch) -> Launch {
    QUICK_LIFECYCLE.into_iter().fold(launch, Launch::arg)
}

/// Waits until nodes that were just registered are past the grace period of
/// [`QUICK_LIFECYCLE`]. The API server truncates the creation time to whole seconds.
pub async fn past_grace() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}
