//! The provider contract on the OpenStack provider, with Nova, Neutron and Octavia in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panic")]

mod balancers;
mod machines;
mod routers;
mod stage;

use std::{process::ExitCode, sync::Arc};

fn main() -> ExitCode {
    ccm_contract::main(&[Arc::new(stage::OpenStack)])
}
