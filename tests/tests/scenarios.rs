//! Runs the scenarios, each as a test of its own: on the simulated API server, or with
//! `QUARTET_CLUSTER=real` on a real one, which all of them share, one after another.

use std::{env, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use ccm_tests::{
    cluster::{Cluster, Kind},
    scenarios::{self, Env, Scenario},
};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::{runtime::Runtime, sync::OnceCell};

/// No scenario may take longer: one that hangs is a failure with a name.
const LIMIT: Duration = Duration::from_mins(3);

/// The real cluster, started by the first scenario that needs it.
type Shared = Arc<OnceCell<Arc<Cluster>>>;

fn main() -> Result<ExitCode> {
    let kind: Kind = env::var("QUARTET_CLUSTER").unwrap_or_else(|_| "sim".to_owned()).parse()?;
    let mut arguments = Arguments::from_args();
    if kind == Kind::Simulated && arguments.test_threads.is_none() {
        // They wait more than they work, but each has programs of its own, and two cores
        // are busy with more of them.
        arguments.test_threads = Some(8);
    }
    if kind == Kind::Real {
        arguments.test_threads = Some(1);
    }
    let runtime = Arc::new(tokio::runtime::Builder::new_multi_thread().enable_all().build()?);
    let shared = Shared::default();
    let trials = scenarios::all()
        .into_iter()
        .filter(|scenario| scenario.on.contains(&kind))
        .map(|scenario| trial(scenario, kind, runtime.clone(), shared.clone()))
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    let cluster = Arc::into_inner(shared).and_then(OnceCell::into_inner).and_then(Arc::into_inner);
    if let Some(cluster) = cluster {
        runtime.block_on(cluster.stop())?;
    }
    Ok(conclusion.exit_code())
}

fn trial(scenario: Scenario, kind: Kind, runtime: Arc<Runtime>, shared: Shared) -> Trial {
    Trial::test(scenario.name, move || {
        let run = async {
            let cluster = match kind {
                Kind::Simulated => Arc::new(Cluster::start(kind).await?),
                Kind::Real => shared
                    .get_or_try_init(|| async { Cluster::start(kind).await.map(Arc::new) })
                    .await?
                    .clone(),
            };
            let env = Env::new(cluster).await?;
            scenario.run(env).await
        };
        let outcome = runtime
            .block_on(async { tokio::time::timeout(LIMIT, run).await.context("still running") });
        outcome.and_then(|result| result).map_err(|error| Failed::from(format!("{error:?}")))
    })
    .with_kind(match kind {
        Kind::Simulated => "sim",
        Kind::Real => "real",
    })
}
