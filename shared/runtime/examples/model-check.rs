//! The whole model of leader election: `make model-check`. Takes minutes and several
//! gigabytes, and ends with 1 if a variant is not as it must be.

#[path = "../tests/election_model/mod.rs"]
mod election_model;

use std::{io::Write as _, process::ExitCode};

use election_model::Election;

fn main() -> ExitCode {
    let guarded = Election::guarded(7, 5);
    let bare = Election { compare_and_swap: false, observation: false, deadline: false, ..guarded };
    let variants = [
        ("the library alone", false, bare),
        ("compare-and-swap only", false, Election { compare_and_swap: true, ..bare }),
        ("no deadline", false, Election { deadline: false, ..guarded }),
        ("no compare-and-swap", false, Election { compare_and_swap: false, ..guarded }),
        (
            "no observation, second clock 4 ahead",
            false,
            Election { observation: false, skew: [0, 4], ..guarded },
        ),
        ("all three", true, guarded),
        ("all three, second clock 4 ahead", true, Election { skew: [0, 4], ..guarded }),
        ("all three, second clock 5 behind", true, Election { skew: [0, -5], ..guarded }),
    ];
    let mut as_expected = true;
    let mut out = std::io::stdout().lock();
    for (name, safe, election) in variants {
        let verdict = election.check();
        let found = verdict.two_leaders.as_deref();
        as_expected &= found.is_none() == safe && (!safe || verdict.moved);
        let outcome =
            found.map_or("never two leaders".to_owned(), |path| format!("TWO LEADERS by {path}"));
        // A closed pipe changes nothing about the verdict.
        writeln!(out, "{name:40} {:>10} states  {outcome}", verdict.states).ok();
    }
    if as_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
