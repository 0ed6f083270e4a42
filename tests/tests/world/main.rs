//! Tests that need a cluster and do not belong to a single controller: on the simulated API server,
//! or with `QUARTET_CLUSTER=real` on real ones. The tests of a single controller are in its crate.

use std::process::ExitCode;

use ccm_tests::{cluster::Kind, trials::Trials};

mod config_file;
mod crowd;
mod go_provider;
mod kubectl;
mod kubelets;
mod leases;
mod live_rates;
mod manifests;
mod mount;
mod own_node;
mod two_kinds;

fn main() -> anyhow::Result<ExitCode> {
    let trials = Trials::new()?;
    let mut all = trials.scenarios(ccm_tests::scenarios! {
        BOTH:
            live_rates::one_controllers_rates_change_while_it_runs;
        SIMULATED:
            config_file::a_lost_file_or_setting_lifts_no_protection,
            crowd::slow_connections_do_not_keep_probes_out,
            leases::are_not_shared_by_two_programs,
            leases::of_one_program_have_one_leader,
            own_node::a_hold_up_of_the_programs_node_is_shown;
        REAL:
            go_provider::a_cloud_without_a_list_initialises_follows_and_deletes,
            leases::are_served_at_a_level_of_their_own;
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
