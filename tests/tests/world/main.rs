//! Tests that need a cluster and belong to no single controller: on the simulated API server,
//! or with `QUARTET_CLUSTER=real` on real ones. Those of one controller are in its crate.

use std::process::ExitCode;

use ccm_tests::{cluster::Kind, trials::Trials};

mod kubectl;
mod kubelets;
mod live_rates;
mod manifests;
mod two_kinds;

fn main() -> anyhow::Result<ExitCode> {
    let trials = Trials::new()?;
    let mut all = trials.scenarios(ccm_tests::scenarios! {
        BOTH:
            live_rates::one_controllers_rates_change_while_it_runs;
    });
    all.extend(kubectl::trials(&trials)?);
    all.extend(two_kinds::trial(&trials));
    all.extend(kubelets::trials(&trials));
    let manifests = match trials.kind {
        Kind::Real => Some(manifests::Manifests::new()?),
        Kind::Simulated => None,
    };
    match &manifests {
        Some(manifests) => all.extend(manifests.trials()),
        None => eprintln!("manifests: skipped; `make test-manifests` applies them"),
    }
    let code = trials.run(all)?;
    manifests.map_or(Ok(()), manifests::Manifests::stop)?;
    Ok(code)
}
