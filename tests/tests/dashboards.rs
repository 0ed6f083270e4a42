//! Each query of each dashboard and each rule has an answer from the programs themselves:
//! with a real Prometheus where `QUARTET_PROMETHEUS` names the folder of one. What needs
//! none is checked everywhere.

use std::{env, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Result;
use ccm_tests::prometheus::{
    dashboards::{self, Dashboard},
    rules,
    story::{self, Told},
};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;

#[path = "dashboards/evaluated.rs"]
mod evaluated;
#[path = "dashboards/written.rs"]
mod written;

/// All dashboards.
type Boards = Vec<Arc<Dashboard>>;

fn main() -> Result<ExitCode> {
    let arguments = Arguments::from_args();
    let all: Boards = dashboards::all()?.into_iter().map(Arc::new).collect();
    let mut trials: Vec<Trial> = written::CHECKS
        .iter()
        .map(|(name, check)| {
            let all = all.clone();
            Trial::test(*name, move || told(&check(&all)))
        })
        .collect();
    let folder = env::var_os("QUARTET_PROMETHEUS").filter(|folder| !folder.is_empty());
    let mut seen = None;
    match folder.map(PathBuf::from) {
        None => eprintln!(
            "queries of the dashboards and rules skipped: `make test-dashboards` asks a real Prometheus"
        ),
        Some(_) if arguments.list => {}
        Some(folder) => {
            let runtime = Arc::new(Runtime::new()?);
            let told = Arc::new(runtime.block_on(story::tell(&folder, &rules::files()?))?);
            trials.extend(asked(&runtime, &told, &all));
            seen = Some(told);
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let (Some(seen), Some(_)) = (seen, env::var_os("QUARTET_DASHBOARDS_STAY")) {
        stay(&seen)?;
    }
    Ok(conclusion.exit_code())
}

/// Leaves Prometheus and the programs running for inspection.
fn stay(seen: &Told) -> Result<()> {
    let (address, span) = (seen.server.address(), seen.span);
    eprintln!(
        "Prometheus: http://{address}, story from {} to {}; Enter ends it",
        span.start, span.end
    );
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// The checks of what Prometheus saw of the story.
fn asked(runtime: &Arc<Runtime>, seen: &Arc<Told>, all: &Boards) -> Vec<Trial> {
    let of_boards = all.iter().map(|board| {
        let (board, seen, runtime) = (Arc::clone(board), Arc::clone(seen), Arc::clone(runtime));
        Trial::test(format!("queries::{}", board.name), move || {
            ended(runtime.block_on(evaluated::dashboard(&board, &seen)))
        })
    });
    let (seen, runtime) = (Arc::clone(seen), Arc::clone(runtime));
    let of_rules =
        Trial::test("queries::rules", move || ended(runtime.block_on(evaluated::rules(&seen))));
    of_boards.chain(std::iter::once(of_rules)).collect()
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
