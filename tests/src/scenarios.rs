//! Scenarios, and the fixture that each one gets. A scenario runs on any cluster.

use std::{
    future::Future,
    ops::{Deref, DerefMut},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use ccm_sim::{
    cloud::{SimCloud, SimInstance},
    program::Launch,
    served::ServedCloud,
};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;

pub use crate::fixture::{QUICK_LIFECYCLE, past_grace, with_short_terms};
use crate::{
    cluster::{Cluster, Kind},
    fixture::{Accounts, Fixture, with_quick_periods},
    nodes,
};

pub mod observe;
pub mod takeover;

/// How long a scenario waits for something that should take moments.
pub const SOON: Duration = Duration::from_secs(15);

/// The user agent that all clients of node-ccm start with.
pub const NODE_AGENT: &str = "node-ccm/";

/// The user agent that all clients of lifecycle-ccm start with.
pub const LIFECYCLE_AGENT: &str = "lifecycle-ccm/";

/// The fixture of a scenario: a cluster without nodes and a simulated cloud without instances.
pub struct Env {
    fixture: Fixture,
    /// The cloud.
    pub served: ServedCloud,
}

impl Deref for Env {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

impl DerefMut for Env {
    fn deref_mut(&mut self) -> &mut Fixture {
        &mut self.fixture
    }
}

impl Env {
    /// Empties the cluster and starts a cloud. Programs use the admin's account.
    pub async fn new(cluster: Arc<Cluster>) -> Result<Self> {
        Self::of(Fixture::new(cluster, Accounts::new(), SOON).await?).await
    }

    /// Starts a cloud beside this cluster.
    pub async fn of(fixture: Fixture) -> Result<Self> {
        let folder = fixture.path("cloud");
        std::fs::create_dir(&folder)?;
        Ok(Self { served: ServedCloud::start(&folder).await?, fixture })
    }

    /// Returns the cloud, to fill and to break.
    pub fn cloud(&self) -> &SimCloud {
        self.served.cloud()
    }

    /// Returns how many calls the cloud has received, except those for its health.
    pub fn cloud_calls(&self) -> u64 {
        let calls = self.cloud().calls();
        calls.lookup + calls.list
    }

    /// Returns a node-ccm for this cluster and cloud.
    pub fn node_ccm(&self) -> Launch {
        self.launch("node-ccm")
    }

    /// Returns a lifecycle-ccm for this cluster and cloud.
    pub fn lifecycle_ccm(&self) -> Launch {
        self.launch("lifecycle-ccm")
    }

    /// Returns the program of this name for this cluster and cloud.
    pub fn launch(&self, program: &str) -> Launch {
        self.controller(program, "external", self.served.config())
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
}

/// Returns lifecycle-ccm with quick periods.
pub fn quick_lifecycle(env: &Env) -> Launch {
    with_quick_periods(env.lifecycle_ccm())
}

/// Returns the spec of this program's Lease.
pub async fn lease(env: &Env, program: &str) -> Result<LeaseSpec> {
    let api = Api::<Lease>::namespaced(env.client.clone(), "kube-system");
    api.get(program).await?.spec.context("a Lease has a spec")
}

/// A scenario: its name, the kinds of clusters that it can run on, and its function.
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

/// On both kinds of clusters.
pub const BOTH: &[Kind] = &[Kind::Simulated, Kind::Real];
/// Only on the simulated API server.
pub const SIMULATED: &[Kind] = &[Kind::Simulated];
/// Only on the real API server.
pub const REAL: &[Kind] = &[Kind::Real];

impl Scenario {
    /// Returns true if it runs on the real API server.
    pub fn is_real(&self) -> bool {
        self.on.contains(&Kind::Real)
    }
}

/// Scenarios by the clusters they run on. Names each function once, and the test has the name of
/// the function.
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
