//! Each query of each dashboard and each rule has an answer from the programs themselves:
//! with a real Prometheus where `QUARTET_PROMETHEUS` names the folder of one. What needs
//! none is checked everywhere.

use std::{env, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Result;
use ccm_tests::prometheus::{
    dashboards::{self, Dashboard},
    rules, story,
};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;

#[path = "dashboards/evaluated.rs"]
mod evaluated;
#[path = "dashboards/written.rs"]
mod written;

fn main() -> Result<ExitCode> {
    let arguments = Arguments::from_args();
    let all = Arc::new(dashboards::all()?);
    let mut trials: Vec<Trial> = written::CHECKS
        .iter()
        .map(|(name, check)| {
            let all = Arc::clone(&all);
            Trial::test(*name, move || told(&check(&all)))
        })
        .collect();
    let folder = env::var_os("QUARTET_PROMETHEUS").filter(|folder| !folder.is_empty());
    match folder.map(PathBuf::from) {
        None => eprintln!(
            "queries of the dashboards and rules skipped: `make test-dashboards` asks a real Prometheus"
        ),
        Some(_) if arguments.list => {}
        Some(folder) => trials.extend(with_prometheus(folder, &all)?),
    }
    Ok(libtest_mimic::run(&arguments, trials).exit_code())
}

/// Tells the story, and gives the checks of what Prometheus saw of it.
fn with_prometheus(folder: PathBuf, all: &Arc<Vec<Dashboard>>) -> Result<Vec<Trial>> {
    let runtime = Arc::new(tokio::runtime::Builder::new_multi_thread().enable_all().build()?);
    let seen = runtime.block_on(story::tell(&folder, &rules::files()?))?;
    let seen = Arc::new(seen);
    let mut trials = Vec::new();
    for at in 0..all.len() {
        let (all, seen, runtime) = (Arc::clone(all), Arc::clone(&seen), Arc::clone(&runtime));
        let Some(dashboard) = all.get(at) else { continue };
        trials.push(Trial::test(format!("queries::{}", dashboard.name), move || {
            let Some(dashboard) = all.get(at) else { return Ok(()) };
            ended(runtime.block_on(evaluated::dashboard(dashboard, &seen)))
        }));
    }
    trials.push(Trial::test("queries::rules", move || {
        ended(Runtime::block_on(&runtime, evaluated::rules(&seen)))
    }));
    Ok(trials)
}

fn ended(wrong: Result<Vec<String>>) -> Result<(), Failed> {
    told(&wrong.map_err(|error| Failed::from(format!("{error:?}")))?)
}

/// Fails with everything that is wrong at once.
fn told(wrong: &[String]) -> Result<(), Failed> {
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failed::from(format!("{} of them:\n  {}", wrong.len(), wrong.join("\n  "))))
}
