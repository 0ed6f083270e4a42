//! The seeds of random histories, and the search for seeds.
//!
//! `QUARTET_HISTORY=N` replays the history of that seed, `QUARTET_HISTORIES=n` plays n of each kind, and both
//! together play n from seed N on.

use std::{
    fmt::Debug,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: {text:?} is not a number")))
}

/// Returns true if one history is replayed.
pub fn is_replay() -> bool {
    let wanted = seeds(0);
    wanted.end - wanted.start == 1
}

/// Returns the seeds that the environment asks for, or else as many as the caller says.
pub fn seeds(histories: u64) -> Range<u64> {
    let (first, count) = (number("QUARTET_HISTORY"), number("QUARTET_HISTORIES"));
    let unnamed = if first.is_some() { 1 } else { histories };
    let first = first.unwrap_or(0);
    first..first + count.unwrap_or(unnamed)
}

/// Plays histories of one kind. `play` panics if one breaks a rule. Otherwise it returns the number
/// of its events.
pub fn play_all(kind: impl Debug, histories: u64, play: impl Fn(u64) -> usize) {
    let mut events = 0;
    for seed in seeds(histories) {
        // This is shown if the history fails.
        eprintln!("{kind:?}, history {seed}");
        events += play(seed);
    }
    eprintln!("{kind:?}: {events} events");
}

/// Looks for a history of each variant that breaks the rule of the variant. `first` is the first
/// seed of a search. `play` returns how the rule is broken.
pub fn search_each<W: Copy + Debug, K: Copy>(
    variants: &[(W, K, &'static str)],
    searched: u64,
    first: impl Fn(W) -> u64,
    play: impl Fn(W, K, &'static str, u64) -> Option<String>,
) {
    let mut missing = Vec::new();
    for &(without, kind, rule) in variants {
        let first = first(without);
        let mut all = first..first + searched;
        let found = all.find_map(|seed| Some((seed, play(without, kind, rule, seed)?)));
        match &found {
            Some((seed, said)) => eprintln!("{without:?}, history {seed}: {said:.300}"),
            None => eprintln!("{without:?} does not break {rule}"),
        }
        missing.extend(found.is_none().then_some((without, rule)));
    }
    assert!(missing.is_empty(), "no history shows that this rule is missing: {missing:?}");
}

/// Returns how a history that panics breaks this rule: its message begins with the name of the
/// rule.
pub fn breaks(rule: &str, play: impl FnOnce() -> usize) -> Option<String> {
    let end = catch_unwind(AssertUnwindSafe(play));
    let said = end.err()?.downcast_ref::<String>().cloned().unwrap_or_default();
    let name = format!("{rule}: ");
    // `assert_eq!` puts its own words first.
    let is_broken = said.starts_with(&name) || said.contains(&format!(" {name}"));
    is_broken.then_some(said)
}
