//! Runs the scenarios with real OpenStack services, one after another, where
//! `QUARTET_OPENSTACK` names the flavour of services to use, and `QUARTET_CLUSTER` the
//! kind of API server.

use std::{env, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use ccm_tests::{
    cluster::{Cluster, Kind},
    openstack::{
        rig::{Cloud, Rig},
        scenarios::{self, Scenario},
        services::Flavour,
    },
};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::{runtime::Runtime, sync::OnceCell};

/// No scenario may take longer: one that hangs is a failure with a name.
const LIMIT: Duration = Duration::from_mins(6);

/// The cloud and the cluster, started by the first scenario that runs, or why they
/// cannot be.
type Shared = Arc<OnceCell<Result<World, String>>>;

#[derive(Clone)]
struct World {
    cloud: Arc<Cloud>,
    cluster: Arc<Cluster>,
}

impl World {
    async fn start(flavour: Flavour, kind: Kind) -> Result<Self> {
        let cluster = Arc::new(Cluster::start(kind).await.context("the API server")?);
        let cloud = Arc::new(Cloud::start(flavour, 0).await.context("the services of OpenStack")?);
        Ok(Self { cloud, cluster })
    }
}

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
    let kind: Kind = env::var("QUARTET_CLUSTER").unwrap_or_else(|_| "sim".to_owned()).parse()?;
    let runtime = Arc::new(tokio::runtime::Builder::new_multi_thread().enable_all().build()?);
    let shared = Shared::default();
    let trials = scenarios::all()
        .into_iter()
        .map(|scenario| trial(scenario, (flavour, kind), runtime.clone(), shared.clone()))
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let Some(Ok(world)) = Arc::into_inner(shared).and_then(OnceCell::into_inner) {
        match world.cloud.services.memory() {
            Ok(bytes) => eprintln!("memory of the services: {} MB", bytes / 1_000_000),
            Err(error) => eprintln!("memory of the services: {error:#}"),
        }
        if let Some(cluster) = Arc::into_inner(world.cluster) {
            runtime.block_on(cluster.stop())?;
        }
    }
    Ok(conclusion.exit_code())
}

fn trial(
    scenario: Scenario,
    (flavour, kind): (Flavour, Kind),
    runtime: Arc<Runtime>,
    shared: Shared,
) -> Trial {
    Trial::test(scenario.name, move || {
        let run = async {
            // The services may have to be installed first, which takes its own time.
            let world = shared
                .get_or_init(|| async {
                    let world = World::start(flavour, kind).await;
                    world.map_err(|error| format!("did not start: {error:#}"))
                })
                .await
                .clone()
                .map_err(anyhow::Error::msg)?;
            let start = tokio::time::Instant::now();
            let run = async { scenario.run(Rig::new(world.cloud, world.cluster).await?).await };
            let outcome = tokio::time::timeout(LIMIT, run).await.context("still running")?;
            eprint!("{:.1} s ", start.elapsed().as_secs_f64());
            outcome
        };
        runtime.block_on(run).map_err(|error| Failed::from(format!("{error:?}")))
    })
}
