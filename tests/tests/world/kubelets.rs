//! Real kubelets and the real node lifecycle controller beside both programs: checks what the
//! documentation says about events of machines. Each test prints the times of the events.

use std::time::Duration;

use anyhow::Result;
use ccm_tests::{cluster::Kind, trials::Trials};
use libtest_mimic::Trial;

mod fates;
mod outage;
mod owners;
mod rig;
mod short;

use rig::{Pace, Rig};

/// Silence, grace and confirmation take minutes.
const LIMIT: Duration = Duration::from_mins(8);

/// Returns the tests. They run on real API servers, by their own target in the Makefile.
pub fn trials(trials: &Trials) -> Vec<Trial> {
    if trials.kind == Kind::Simulated {
        eprintln!("kubelets: skipped; `make test-kubelets` runs them");
        return Vec::new();
    }
    vec![
        trial(trials, "five_machines_and_their_fates", Pace::Default, fates::five_machines),
        trial(trials, "api_server_away_for_two_minutes", Pace::Default, outage::two_minutes),
        trial(trials, "two_owners_of_the_addresses", Pace::Default, owners::of_the_addresses),
        trial(trials, "short::join_restart_death", Pace::Quick, short::join_restart_death),
    ]
}

fn trial<F>(trials: &Trials, name: &'static str, pace: Pace, test: F) -> Trial
where
    F: AsyncFnOnce(&mut Rig) -> Result<()> + Send + 'static,
{
    trials.trial_within(LIMIT, format!("kubelets::{name}"), async move |lane| {
        Rig::start(lane, name, pace).await?.run(test).await
    })
}
