//! The tests of one controller that need a cluster: the target `world` of its crate.
//!
//! A controller defines a [`Suite`], and [`main`] makes its tests: its scenarios, its rights one by
//! one, the queries of its dashboard, its page of metrics. A test of the target `house` fails for a
//! listed program without a suite.

use std::{process::ExitCode, time::Duration};

use anyhow::{Result, ensure};
use ccm_runtime::program::Identity;
use ccm_sim::program::{Launch, Program};
use libtest_mimic::{Failed, Trial};

use crate::{
    prometheus::{self, Stage},
    rights::{self, manifest::Grant},
    scenarios::{
        Env, Scenario, Step,
        observe::{nothing_written, observe},
    },
    trials::Trials,
};

/// The most scenarios of one controller on the real API server.
const MOST_REAL: usize = 12;

/// The parts of a controller's tests.
pub struct Suite {
    /// The program.
    pub program: Identity,
    /// Its scenarios.
    pub scenarios: Vec<Scenario>,
    /// Its work while its rights are taken away.
    pub work: Work,
    /// The events while Prometheus scrapes it.
    pub story: Story,
}

/// Work for which the program needs each of its rights.
#[derive(Clone, Copy)]
pub struct Work {
    /// The program with short terms and quick periods.
    pub launch: fn(&Env) -> Launch,
    /// Makes work. It is called again and again with the number of the call.
    pub step: for<'a> fn(&'a Env, u32) -> Step<'a, ()>,
    /// True while the work that needs this right is not done.
    pub is_undone: for<'a> fn(&'a Env, &'a Grant) -> Step<'a, bool>,
}

/// Events after which every query of the controller's dashboard has an answer.
#[derive(Clone, Copy)]
pub struct Story {
    /// The program with quick periods.
    pub launch: fn(&Env) -> Launch,
    /// The events.
    pub play: for<'a> fn(&'a mut Stage) -> Step<'a, ()>,
}

/// Returns the whole `main` of a controller's test target `world`.
pub fn main(suite: Suite) -> Result<ExitCode> {
    let trials = Trials::new()?;
    let Suite { program, scenarios, work, story } = suite;
    let mut all = vec![real_scenarios_are_few(&scenarios)];
    all.extend(trials.scenarios(scenarios));
    all.push(
        trials.trial("scenarios::an_observer_writes_nothing_beside_a_leader", async move |lane| {
            writes_nothing_beside_a_leader(lane.env().await?, program, work).await
        }),
    );
    all.extend(rights::trials(&trials, program, work)?);
    all.extend(prometheus::trials(&trials, program, work, story));
    trials.run(all)
}

/// Checks that an observer beside a leader leaves all work to the leader.
async fn writes_nothing_beside_a_leader(env: Env, program: Identity, work: Work) -> Result<()> {
    let leader = env.start(&(work.launch)(&env)).await?;
    let observer = observe(&env, (work.launch)(&env)).await?;
    for round in 0..3 {
        (work.step)(&env, round).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    nothing_written(&env, &[&observer]).await?;
    let requests = env.requests(&format!("{}/", program.binary)).await?;
    let done = requests.iter().filter(|request| request.is_write() && request.resource != "leases");
    ensure!(done.count() > 0, "the leader wrote nothing either: {}", leader.log());
    ensure!(leader.leads().await?, "an observer disturbs the leader");
    shows_its_record(&leader).await
}

/// Checks that its record is whole, with names and without them.
async fn shows_its_record(program: &Program) -> Result<()> {
    for page in ["/record", "/record?anonymous=true"] {
        let (status, record) = program.get(page).await?;
        let ends: Vec<&str> = record.lines().filter(|line| line.starts_with("{\"end\":")).collect();
        let is_whole = !ends.is_empty() && !ends.iter().any(|end| end.contains("\"note\""));
        ensure!(status == 200 && is_whole, "{page} answers {status}, and ends with {ends:?}");
    }
    Ok(())
}

fn real_scenarios_are_few(scenarios: &[Scenario]) -> Trial {
    let real = scenarios.iter().filter(|scenario| scenario.is_real()).count();
    Trial::test("scenarios_on_the_real_api_server_are_few", move || {
        if real > MOST_REAL {
            return Err(Failed::from(format!(
                "{real} scenarios run on the real API server, but at most {MOST_REAL} may: test the others \
                 on the simulated one, or as unit tests (docs/internal/testing.md)"
            )));
        }
        Ok(())
    })
}
