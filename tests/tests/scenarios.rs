//! The scenarios of node-ccm and lifecycle-ccm, on the simulated API server, or with
//! `QUARTET_CLUSTER=real` on real ones.

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    ccm_tests::trials::scenarios(ccm_tests::scenarios::all())
}
