//! Tests on clusters, of the kind that `QUARTET_CLUSTER` names.

use std::{env, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;

use crate::{
    cluster::Kind,
    lanes::{self, Lane, Lanes},
    policies,
    scenarios::Scenario,
};

/// Few tests may take longer. A test that hangs is a failure with a name.
const LIMIT: Duration = Duration::from_mins(3);

/// Returns the kind of cluster that the environment asks for.
pub fn kind() -> Result<Kind> {
    env::var("QUARTET_CLUSTER").unwrap_or_else(|_| "sim".to_owned()).parse()
}

/// The shared state of tests on clusters.
#[derive(Clone)]
pub struct Trials {
    runtime: Arc<Runtime>,
    lanes: Arc<Lanes>,
    /// The kind of the clusters.
    pub kind: Kind,
}

impl Trials {
    /// Creates tests for clusters of the kind that the environment asks for.
    pub fn new() -> Result<Self> {
        let kind = kind()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        Ok(Self { runtime: Arc::new(runtime), lanes: Arc::new(Lanes::new(kind)), kind })
    }

    /// Returns a test on one of the clusters.
    pub fn trial<F>(&self, name: impl Into<String>, test: F) -> Trial
    where
        F: AsyncFnOnce(&Lane) -> Result<()> + Send + 'static,
    {
        self.trial_within(LIMIT + policies::patience(), name, test)
    }

    /// Returns a test on one of the clusters that may take longer than others.
    pub fn trial_within<F>(&self, limit: Duration, name: impl Into<String>, test: F) -> Trial
    where
        F: AsyncFnOnce(&Lane) -> Result<()> + Send + 'static,
    {
        let lanes = self.lanes.clone();
        self.alone(name, async move || {
            let run = async |lane: &Lane| {
                tokio::time::timeout(limit, test(lane)).await.context("still running")?
            };
            lanes.run(run).await
        })
        .with_kind(match self.kind {
            Kind::Simulated => "sim",
            Kind::Real => "real",
        })
    }

    /// Returns a test that brings its own cluster, or does not need one.
    pub fn alone<F>(&self, name: impl Into<String>, test: F) -> Trial
    where
        F: AsyncFnOnce() -> Result<()> + Send + 'static,
    {
        let runtime = self.runtime.clone();
        Trial::test(name, move || {
            runtime.block_on(test()).map_err(|error| Failed::from(format!("{error:?}")))
        })
    }

    /// Returns the scenarios that run on this kind of cluster.
    pub fn scenarios(&self, all: Vec<Scenario>) -> Vec<Trial> {
        let chosen = all.into_iter().filter(|scenario| scenario.on.contains(&self.kind));
        chosen
            .map(|scenario| {
                let name = format!("scenarios::{}", scenario.name);
                self.trial(name, async move |lane| {
                    let before = lane.cluster().requests("").await?.len();
                    (scenario.run)(lane.env().await?).await?;
                    nothing_refused(lane, before).await
                })
            })
            .collect()
    }

    /// Returns the clusters.
    pub fn lanes(&self) -> Arc<Lanes> {
        self.lanes.clone()
    }

    /// Runs the tests and ends the clusters.
    pub fn run(self, trials: Vec<Trial>) -> Result<ExitCode> {
        // They wait more than they work, but each has its own programs, and more of them would
        // overload two cores.
        let threads = if self.kind == Kind::Real { lanes::REAL } else { 8 };
        self.run_at_once(trials, threads)
    }

    /// Runs tests that share more than a cluster one by one, and ends the clusters.
    pub fn run_one_by_one(self, trials: Vec<Trial>) -> Result<ExitCode> {
        self.run_at_once(trials, 1)
    }

    fn run_at_once(self, trials: Vec<Trial>, threads: usize) -> Result<ExitCode> {
        let mut arguments = Arguments::from_args();
        arguments.test_threads.get_or_insert(threads);
        let conclusion = libtest_mimic::run(&arguments, trials);
        if let Some(lanes) = Arc::into_inner(self.lanes) {
            self.runtime.block_on(lanes.stop())?;
        }
        Ok(conclusion.exit_code())
    }
}

/// Checks that the API server refuses no write of a program with its roles and its policy. An API
/// server that has just been restarted refuses reads until it knows the roles.
async fn nothing_refused(lane: &Lane, before: usize) -> Result<()> {
    if lane.cluster().real().is_none() {
        return Ok(());
    }
    let mut refused = lane.cluster().requests("").await?.split_off(before);
    let is_write = |verb: &str| ["create", "update", "patch", "delete"].contains(&verb);
    refused.retain(|it| it.code == 403 && it.user.starts_with("system:serviceaccount:"));
    refused.retain(|it| is_write(&it.verb));
    ensure!(refused.is_empty(), "refused: {refused:#?}");
    Ok(())
}
