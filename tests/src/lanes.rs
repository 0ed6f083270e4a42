//! Clusters for tests that run at the same time.
//!
//! A simulated cluster is cheap, so each test has its own. Real API servers share one etcd, each
//! with its own prefix, and each serves one test after another. Each shipped program runs with the
//! role of its manifests there, and the policy of `manifests/guard` is in force.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use ccm_runtime::programs;
use parking_lot::Mutex;
use tokio::sync::{OnceCell, Semaphore};

use crate::{
    cluster::{
        Cluster, Kind,
        real::{Etcd, Options, RealCluster},
    },
    fixture::Fixture,
    rights::{account::Account, guard},
    scenarios::{Env, SOON},
};

/// Number of API servers at the same time. Tests mostly wait, but each API server also has
/// background work.
pub const REAL: usize = 4;

/// A cluster that serves one test at a time.
pub struct Lane {
    cluster: Arc<Cluster>,
    accounts: Vec<Account>,
    folder: tempfile::TempDir,
}

impl Lane {
    async fn simulated() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let cluster = Arc::new(Cluster::start(Kind::Simulated).await?);
        Ok(Self { cluster, accounts: Vec::new(), folder })
    }

    async fn real(etcd: Arc<Etcd>) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("quartet-accounts-").tempdir()?;
        let real = RealCluster::start_on(etcd, &Options::default()).await?;
        guard::install(&real).await?;
        let mut lane =
            Self { cluster: Arc::new(Cluster::from(real)), accounts: Vec::new(), folder };
        for program in programs::shipped() {
            let account =
                Account::create(lane.cluster.clone(), program.binary, lane.folder.path()).await?;
            lane.accounts.push(account);
        }
        Ok(lane)
    }

    /// Returns an empty cluster with an empty cloud.
    pub async fn env(&self) -> Result<Env> {
        Env::of(self.fixture(SOON).await?).await
    }

    /// Returns an empty cluster. `soon` limits actions that take moments with the test's cloud.
    pub async fn fixture(&self, soon: Duration) -> Result<Fixture> {
        let accounts = self.accounts.iter();
        let accounts =
            accounts.map(|account| (account.program(), account.kubeconfig().to_path_buf()));
        Fixture::new(self.cluster.clone(), accounts.collect(), soon).await
    }

    /// Returns the cluster.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Returns the program's account.
    pub fn account(&self, program: &str) -> Result<&Account> {
        let found = self.accounts.iter().find(|account| account.program() == program);
        found.with_context(|| format!("{program} has no account here"))
    }
}

/// The clusters of one run.
pub struct Lanes {
    kind: Kind,
    etcd: OnceCell<Arc<Etcd>>,
    free: Mutex<Vec<Lane>>,
    slots: Semaphore,
}

impl Lanes {
    /// Creates clusters of this kind; they start on demand.
    pub fn new(kind: Kind) -> Self {
        let slots = Semaphore::new(if kind == Kind::Real { REAL } else { Semaphore::MAX_PERMITS });
        Self { kind, etcd: OnceCell::new(), free: Mutex::default(), slots }
    }

    /// Runs a test on a free cluster, or on a new one.
    pub async fn run<T>(&self, test: impl AsyncFnOnce(&Lane) -> Result<T>) -> Result<T> {
        if self.kind == Kind::Simulated {
            return test(&Lane::simulated().await?).await;
        }
        let _slot = self.slots.acquire().await?;
        let free = self.free.lock().pop();
        let lane = match free {
            Some(lane) => lane,
            None => {
                let etcd =
                    self.etcd.get_or_try_init(|| async { Etcd::start().await.map(Arc::new) });
                Lane::real(Arc::clone(etcd.await?)).await?
            }
        };
        let outcome = test(&lane).await;
        self.free.lock().push(lane);
        outcome
    }

    /// Ends all clusters.
    pub async fn stop(self) -> Result<()> {
        for Lane { cluster, accounts, .. } in self.free.into_inner() {
            drop(accounts);
            if let Some(cluster) = Arc::into_inner(cluster) {
                cluster.stop().await?;
            }
        }
        match self.etcd.into_inner().and_then(Arc::into_inner) {
            Some(etcd) => etcd.stop().await,
            None => Ok(()),
        }
    }
}
