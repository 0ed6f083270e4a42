//! The whole model of leader election: `make model-check`. Prints what each variant came
//! to, and ends with 1 if one is not as it must be.
//!
//! Three numbers check another size instead: candidates, and ticks of a Lease and of a term.
//! A term longer than the Lease shows what a failure looks like.

#[path = "../tests/election_model/mod.rs"]
mod election_model;

use std::{env, io, io::Write as _, process::ExitCode};

use election_model::Variant;
use tokio::time::Instant;

/// Candidates, and ticks of a Lease and of a term.
const SIZES: [(usize, u8, u8); 2] = [(2, 12, 11), (3, 5, 4)];

/// The most ticks: the model's clocks are small.
const MOST_TICKS: u8 = 50;
const USAGE: &str = "no arguments, or three numbers: candidates (2 or 3), ticks of a lease and of a \
                     term (1 to 50)";

fn main() -> io::Result<ExitCode> {
    let args: Vec<String> = env::args().skip(1).collect();
    let Some(sizes) = sizes(&args) else {
        writeln!(io::stderr(), "model-check takes {USAGE}")?;
        return Ok(ExitCode::from(2));
    };
    let mut as_expected = true;
    for (candidates, lease, deadline) in sizes {
        let title =
            format!("{candidates} candidates, a lease of {lease} ticks, a term of {deadline}");
        as_expected &= check(&title, Variant::all(candidates, lease, deadline))?;
    }
    if args.is_empty() {
        as_expected &= check("what replicas do besides", Variant::duties())?;
    }
    Ok(if as_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the sizes to check; `None` for arguments that make no sense.
fn sizes(args: &[String]) -> Option<Vec<(usize, u8, u8)>> {
    let [candidates, lease, deadline] = args else {
        return args.is_empty().then(|| SIZES.to_vec());
    };
    let candidates = candidates.parse().ok().filter(|candidates| (2..=3).contains(candidates))?;
    let ticks = |arg: &String| arg.parse().ok().filter(|ticks| (1..=MOST_TICKS).contains(ticks));
    Some(vec![(candidates, ticks(lease)?, ticks(deadline)?)])
}

/// Checks these variants. Returns true if all are as they must be.
fn check(title: &str, variants: Vec<Variant>) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    writeln!(out, "{title}")?;
    writeln!(
        out,
        "seconds  {:34} {:>10} {:>6}  {:6}  expected",
        "variant", "states", "depth", "found"
    )?;
    let mut as_expected = true;
    for variant in variants {
        let start = Instant::now();
        let outcome = variant.check();
        as_expected &= outcome.is_as_expected();
        writeln!(out, "{:>7.1}  {outcome}", start.elapsed().as_secs_f64())?;
        out.flush()?;
    }
    writeln!(out)?;
    Ok(as_expected)
}
