//! What a scenario is, and the fixture that each one gets. A scenario runs on any cluster.

use std::{
    collections::BTreeMap,
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use ccm_sim::{
    cloud::{SimCloud, SimInstance},
    program::{Launch, Program},
    served::ServedCloud,
};
use k8s_openapi::api::{
    coordination::v1::{Lease, LeaseSpec},
    core::v1::Node,
};
use kube::{Api, Client};

use crate::{
    cluster::{self, Cluster, Kind, Request},
    nodes,
};

pub mod observe;

/// How long a scenario waits for what should take moments.
pub const SOON: Duration = Duration::from_secs(15);

/// The user agent that all clients of node-ccm start with.
pub const NODE_AGENT: &str = "node-ccm/";

/// The user agent that all clients of lifecycle-ccm start with.
pub const LIFECYCLE_AGENT: &str = "lifecycle-ccm/";

/// The fixture of a scenario: a cluster without nodes and a cloud without instances.
pub struct Env {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// A client with all rights.
    pub client: Client,
    /// The cloud.
    pub served: ServedCloud,
    accounts: Accounts,
    folder: tempfile::TempDir,
    mark: usize,
}

/// The kubeconfigs of programs with accounts of their own, by the program's name.
pub type Accounts = BTreeMap<&'static str, PathBuf>;

impl Env {
    /// Empties the cluster and starts a cloud. Programs use the admin's account.
    pub async fn new(cluster: Arc<Cluster>) -> Result<Self> {
        Self::with_accounts(cluster, Accounts::new()).await
    }

    /// The same; these programs use their own accounts.
    pub async fn with_accounts(cluster: Arc<Cluster>, accounts: Accounts) -> Result<Self> {
        let client = cluster.client().await?;
        cluster::clear(&client).await?;
        let folder = tempfile::Builder::new().prefix("quartet-scenario-").tempdir()?;
        let served = ServedCloud::start(folder.path()).await?;
        let mark = cluster.requests("").await?.len();
        Ok(Self { cluster, client, served, accounts, folder, mark })
    }

    /// The cloud, to fill and to break.
    pub fn cloud(&self) -> &SimCloud {
        self.served.cloud()
    }

    /// How many calls the cloud has had, those for its health left out.
    pub fn cloud_calls(&self) -> u64 {
        let calls = self.cloud().calls();
        calls.lookup + calls.list
    }

    /// A node-ccm for this cluster and cloud, with quick periods.
    pub fn node_ccm(&self) -> Launch {
        self.launch("node-ccm")
    }

    /// A lifecycle-ccm for this cluster and cloud.
    pub fn lifecycle_ccm(&self) -> Launch {
        self.launch("lifecycle-ccm")
    }

    /// The program of this name for this cluster and cloud, with its own rights where the
    /// cluster knows them.
    pub fn launch(&self, program: &str) -> Launch {
        Launch::controller(program, self.kubeconfig(program), "external", self.served.config())
    }

    fn kubeconfig(&self, program: &str) -> &Path {
        self.accounts.get(program).map_or_else(|| self.cluster.kubeconfig(), PathBuf::as_path)
    }

    /// Starts it and waits until it is ready and leads.
    pub async fn start(&self, launch: &Launch) -> Result<Program> {
        let mut program = launch.start(self.folder.path())?;
        program.ready().await?;
        program.leading(SOON).await?;
        Ok(program)
    }

    /// Starts it and waits until it is ready.
    pub async fn start_standby(&self, launch: &Launch) -> Result<Program> {
        let mut program = launch.start(self.folder.path())?;
        program.ready().await?;
        Ok(program)
    }

    /// Starts it and waits for nothing.
    pub fn start_only(&self, launch: &Launch) -> Result<Program> {
        launch.start(self.folder.path())
    }

    /// A path for a file of this scenario.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Registers a node and creates its instance.
    pub async fn add_node(&self, name: &str) -> Result<SimInstance> {
        let instance = nodes::instance(name);
        self.cloud().add(instance.clone());
        nodes::register(&self.client, &nodes::fresh(name)).await?;
        Ok(instance)
    }

    /// Registers nodes that are initialised and Ready, and creates their instances.
    pub async fn add_initialised(&self, names: &[&str]) -> Result<()> {
        for name in names {
            self.cloud().add(nodes::instance(name));
            nodes::register(&self.client, &nodes::initialised(name)).await?;
        }
        Ok(())
    }

    /// Deletes the instance of the node of this name, whose kubelet then stops reporting.
    pub async fn lose(&self, name: &str) -> Result<()> {
        self.cloud().remove(&nodes::instance(name).id).context("it has an instance")?;
        nodes::set_ready(&self.client, name, "Unknown").await
    }

    /// Waits until the node has lost its taint.
    pub async fn initialised(&self, name: &str) -> Result<Node> {
        nodes::wait_for(&self.client, name, "no longer tainted", SOON, |node| {
            !nodes::is_tainted(node)
        })
        .await
    }

    /// The API server's record of all clients with this prefix of the user agent, since the
    /// scenario began.
    pub async fn requests(&self, user_agent: &str) -> Result<Vec<Request>> {
        let all = self.cluster.requests("").await?;
        Ok(all
            .into_iter()
            .skip(self.mark)
            .filter(|request| request.user_agent.starts_with(user_agent))
            .collect())
    }

    /// Those of them that are writes to nodes.
    pub async fn node_writes(&self, user_agent: &str) -> Result<Vec<Request>> {
        let all = self.requests(user_agent).await?;
        Ok(all
            .into_iter()
            .filter(|request| request.is_write() && request.resource == "nodes")
            .collect())
    }

    /// Forgets what was recorded so far.
    pub async fn forget_requests(&mut self) -> Result<()> {
        self.mark = self.cluster.requests("").await?.len();
        Ok(())
    }
}

/// Short terms of leadership, so that tests are short; the proportions are the defaults'.
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

/// lifecycle-ccm with quick periods.
pub fn quick_lifecycle(env: &Env) -> Launch {
    QUICK_LIFECYCLE.into_iter().fold(env.lifecycle_ccm(), Launch::arg)
}

/// Waits until nodes that were just registered are past the grace period of
/// [`quick_lifecycle`]. The API server truncates the creation time to whole seconds.
pub async fn past_grace() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}

/// The spec of this program's Lease.
pub async fn lease(env: &Env, program: &str) -> Result<LeaseSpec> {
    let api = Api::<Lease>::namespaced(env.client.clone(), "kube-system");
    api.get(program).await?.spec.context("a Lease has a spec")
}

/// A scenario: its name, the clusters it makes sense on, and what it does.
pub struct Scenario {
    /// The test's name.
    pub name: &'static str,
    /// The clusters it runs on.
    pub on: &'static [Kind],
    /// The scenario's function.
    pub run: fn(Env) -> Running,
}

/// A step of a test, with its result.
pub type Step<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A scenario that runs.
pub type Running = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// On either cluster.
pub const BOTH: &[Kind] = &[Kind::Simulated, Kind::Real];
/// On the simulated API server alone.
pub const SIMULATED: &[Kind] = &[Kind::Simulated];
/// On the real API server alone.
pub const REAL: &[Kind] = &[Kind::Real];

impl Scenario {
    /// True if it runs on the real API server.
    pub fn is_real(&self) -> bool {
        self.on.contains(&Kind::Real)
    }
}

/// Scenarios by the clusters they run on. Names each function once: the test is called as
/// the function is.
#[macro_export]
macro_rules! scenarios {
    ($($on:ident: $($module:ident::$name:ident),+ $(,)?;)+) => {
        vec![$($($crate::scenarios::Scenario {
            name: concat!(stringify!($module), "::", stringify!($name)),
            on: $crate::scenarios::$on,
            run: |env| Box::pin($module::$name(env)),
        }),+),+]
    };
}
