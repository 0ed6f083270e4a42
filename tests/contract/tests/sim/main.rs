//! The provider contract on the simulated cloud: called in this process, and served over the
//! external protocol on each of its transports.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panic")]

mod side;
mod stage;

use std::{process::ExitCode, sync::Arc};

use ccm_contract::Stage;
use stage::{SimStage, Way};

fn main() -> ExitCode {
    let ways = [Way::Direct, Way::Unix, Way::Tcp, Way::MutualTls];
    let stages = ways.map(|way| Arc::new(SimStage(way)) as Arc<dyn Stage>);
    ccm_contract::main(&stages)
}
