//! The tests of one controller that need a cluster: the target `world` of its crate.
//!
//! A controller brings a [`Suite`], and [`main`] makes the tests of it: its scenarios, its
//! rights one by one, the queries of its dashboard, its page of metrics. A test of the house
//! fails for a listed program without one.

use std::process::ExitCode;

use anyhow::Result;
use ccm_runtime::{program::Identity, programs};
use ccm_sim::program::Launch;
use libtest_mimic::{Failed, Trial};

use crate::{
    prometheus::{self, Stage},
    rights::{self, manifest::Grant},
    scenarios::{Env, Scenario, Step},
    trials::Trials,
};

/// The most scenarios of one controller on the real API server.
const MOST_REAL: usize = 12;

/// Controllers that have more of them, because they are older than the rule: their numbers,
/// which may only become smaller.
const MORE_REAL: [(&str, usize); 2] = [("node-ccm", 24), ("lifecycle-ccm", 23)];

/// What a controller's tests consist of.
pub struct Suite {
    /// Whose.
    pub program: Identity,
    /// Its scenarios.
    pub scenarios: Vec<Scenario>,
    /// What it works on while its rights are taken away.
    pub work: Work,
    /// What happens while Prometheus scrapes it.
    pub story: Story,
}

/// Work for which the program needs each of its rights.
#[derive(Clone, Copy)]
pub struct Work {
    /// The program with short terms and quick periods.
    pub launch: fn(&Env) -> Launch,
    /// Makes work; called again and again with the number of the call.
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

/// The whole `main` of a controller's test target `world`.
pub fn main(suite: Suite) -> Result<ExitCode> {
    let trials = Trials::new()?;
    let Suite { program, scenarios, work, story } = suite;
    let mut all = vec![real_scenarios_are_few(program, &scenarios)];
    all.extend(trials.scenarios(scenarios));
    if programs::shipped().any(|shipped| shipped == program) {
        all.extend(rights::trials(&trials, program, work)?);
    }
    all.extend(prometheus::trials(&trials, program, work, story));
    trials.run(all)
}

fn real_scenarios_are_few(program: Identity, scenarios: &[Scenario]) -> Trial {
    let real = scenarios.iter().filter(|scenario| scenario.is_real()).count();
    let older = MORE_REAL.into_iter().find(|(name, _)| *name == program.binary);
    Trial::test("scenarios_on_the_real_api_server_are_few", move || {
        let most = older.map_or(MOST_REAL, |(_, number)| number);
        if real > most {
            return Err(Failed::from(format!(
                "{real} scenarios run on the real API server, at most {most} may: test the others \
                 on the simulated one, or as unit tests (docs/testing.md)"
            )));
        }
        match older {
            Some(_) if real < most => {
                Err(Failed::from(format!("now {real}: lower the number in MORE_REAL")))
            }
            _ => Ok(()),
        }
    })
}
