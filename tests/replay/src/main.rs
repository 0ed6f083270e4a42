//! `make replay FILE=...`: feeds a record of the page `/record` to the machines of this version, and prints each
//! effect that differs and each line that it cannot read.
//!
//! Its exit codes: 0 no difference, 1 differences, 2 a record that cannot be read. `make` turns both into 2.

#![expect(clippy::print_stdout, reason = "it is a program for the terminal")]

use std::{env, io, path::PathBuf, process::ExitCode};

use ccm_controller::record::replay::{Replay, UNREADABLE, run};

/// The machines of the programs by the names in the headers of their records.
const MACHINES: [&[(&str, Replay)]; 4] =
    [node_ccm::RECORDED, service_ccm::RECORDED, route_ccm::RECORDED, lifecycle_ccm::RECORDED];

fn main() -> ExitCode {
    let Some(path) = env::args_os().nth(1).map(PathBuf::from) else {
        println!("make replay FILE=...");
        return ExitCode::from(UNREADABLE);
    };
    ExitCode::from(run(&MACHINES.concat(), &path, &mut io::stdout()).unwrap_or_else(|error| {
        println!("{}: {error}", path.display());
        UNREADABLE
    }))
}

#[cfg(test)]
mod tests;
