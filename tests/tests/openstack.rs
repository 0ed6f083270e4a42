//! Runs the scenarios with real OpenStack services, one after another, where
//! `QUARTET_OPENSTACK` names the flavour of services to use, and `QUARTET_CLUSTER` the
//! kind of API server.

use std::{env, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use ccm_tests::{
    openstack::{
        rig::{Cloud, INITIALISED, Rig},
        scenarios::{self, Scenario},
        services::Flavour,
    },
    trials::Trials,
};
use libtest_mimic::{Arguments, Trial};
use tokio::sync::OnceCell;

/// No scenario may take longer. A scenario that hangs is a failure with a name.
const LIMIT: Duration = Duration::from_mins(8);

/// The cloud, which the first scenario starts, or the reason why it cannot be started.
type Shared = Arc<OnceCell<Result<Arc<Cloud>, String>>>;

fn main() -> Result<ExitCode> {
    let Some(flavour) = env::var("QUARTET_OPENSTACK").ok().filter(|name| !name.is_empty()) else {
        eprintln!(
            "openstack scenarios skipped: `make test-openstack` runs them (as root on Debian 12)"
        );
        return Ok(libtest_mimic::run(&Arguments::from_args(), Vec::new()).exit_code());
    };
    let flavour: Flavour = flavour.parse()?;
    let trials = Trials::new()?;
    let shared = Shared::default();
    let all = scenarios::all().into_iter();
    let all = all.map(|scenario| trial(&trials, scenario, flavour, shared.clone())).collect();
    let code = trials.run_one_by_one(all)?;
    if let Some(Ok(cloud)) = Arc::into_inner(shared).and_then(OnceCell::into_inner) {
        match cloud.services.memory() {
            Ok(bytes) => eprintln!("memory of the services: {} MB", bytes / 1_000_000),
            Err(error) => eprintln!("memory of the services: {error:#}"),
        }
    }
    Ok(code)
}

fn trial(trials: &Trials, scenario: Scenario, flavour: Flavour, shared: Shared) -> Trial {
    let lanes = trials.lanes();
    trials.alone(scenario.name, async move || {
        // The services may have to be installed first, which takes its own time.
        let start = async || Cloud::start(flavour, 0).await.map(Arc::new);
        let cloud =
            shared.get_or_init(async || start().await.map_err(|error| format!("{error:?}")));
        let cloud = cloud.await.clone().map_err(anyhow::Error::msg)?;
        let start = tokio::time::Instant::now();
        let run = lanes.run(async |lane| {
            scenario.run(Rig::new(cloud, lane.fixture(INITIALISED).await?).await?).await
        });
        let outcome = tokio::time::timeout(LIMIT, run).await.context("still running")?;
        eprint!("{:.1} s ", start.elapsed().as_secs_f64());
        outcome
    })
}
