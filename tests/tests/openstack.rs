//! Runs the scenarios with real OpenStack services, one after another, where
//! `QUARTET_OPENSTACK` names the flavour of services to use.

use std::{env, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use ccm_tests::openstack::{
    rig::{Cloud, Rig},
    scenarios::{self, Scenario},
    services::Flavour,
};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::{runtime::Runtime, sync::OnceCell};

/// No scenario may take longer: one that hangs is a failure with a name.
const LIMIT: Duration = Duration::from_mins(3);

/// The cloud, started by the first scenario that runs, or why it cannot be.
type Shared = Arc<OnceCell<Result<Arc<Cloud>, String>>>;

fn main() -> Result<ExitCode> {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let Some(flavour) = env::var("QUARTET_OPENSTACK").ok().filter(|name| !name.is_empty()) else {
        eprintln!(
            "openstack scenarios skipped: `make test-openstack` runs them (as root on Debian 12)"
        );
        return Ok(libtest_mimic::run(&arguments, Vec::new()).exit_code());
    };
    let flavour: Flavour = flavour.parse()?;
    let runtime = Arc::new(tokio::runtime::Builder::new_multi_thread().enable_all().build()?);
    let shared = Shared::default();
    let trials = scenarios::all()
        .into_iter()
        .map(|scenario| trial(scenario, flavour, runtime.clone(), shared.clone()))
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let Some(Ok(cloud)) = shared.get() {
        eprintln!("memory of the services: {} MB", cloud.services.memory()? / 1_000_000);
    }
    Ok(conclusion.exit_code())
}

fn trial(scenario: Scenario, flavour: Flavour, runtime: Arc<Runtime>, shared: Shared) -> Trial {
    Trial::test(scenario.name, move || {
        let run = async {
            // The services may have to be installed first, which takes its own time.
            let cloud = shared
                .get_or_init(|| async {
                    let cloud = Cloud::start(flavour).await.map(Arc::new);
                    cloud.map_err(|error| format!("the services did not start: {error:#}"))
                })
                .await
                .clone()
                .map_err(anyhow::Error::msg)?;
            let start = tokio::time::Instant::now();
            let run = async { scenario.run(Rig::new(cloud).await?).await };
            let outcome = tokio::time::timeout(LIMIT, run).await.context("still running")?;
            eprint!("{:.1} s ", start.elapsed().as_secs_f64());
            outcome
        };
        runtime.block_on(run).map_err(|error| Failed::from(format!("{error:?}")))
    })
}
