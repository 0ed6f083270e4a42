//! The whole model of leader election: `make model-check`. Prints what each variant came
//! to, and ends with 1 if one is not as it must be.
//!
//! Three numbers check another size: candidates, and ticks of a Lease and of a term.

#[path = "../tests/election_model/mod.rs"]
mod election_model;

use std::{env, io, io::Write as _, process::ExitCode};

use election_model::Variant;
use tokio::time::Instant;

/// Candidates, and ticks of a Lease and of a term.
const SIZES: [(usize, u8, u8); 2] = [(2, 6, 5), (3, 2, 1)];

fn main() -> io::Result<ExitCode> {
    let args: Vec<u8> = env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let sizes = match args[..] {
        [candidates, lease, deadline] => vec![(candidates.into(), lease, deadline)],
        _ => SIZES.to_vec(),
    };
    let mut as_expected = true;
    for (candidates, lease, deadline) in sizes {
        as_expected &= check(candidates, lease, deadline)?;
    }
    Ok(if as_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks all variants of a size; whether all are as they must be.
fn check(candidates: usize, lease: u8, deadline: u8) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    writeln!(out, "{candidates} candidates, a lease of {lease} ticks, a term of {deadline}")?;
    writeln!(
        out,
        "seconds  {:34} {:>10} {:>6}  {:6}  expected",
        "variant", "states", "depth", "found"
    )?;
    let mut as_expected = true;
    for variant in Variant::all(candidates, lease, deadline) {
        let start = Instant::now();
        let outcome = variant.check();
        as_expected &= outcome.is_as_expected();
        writeln!(out, "{:>7.1}  {outcome}", start.elapsed().as_secs_f64())?;
        out.flush()?;
    }
    writeln!(out)?;
    Ok(as_expected)
}
