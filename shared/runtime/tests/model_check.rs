//! The election's protections, checked exhaustively within a small bound. `make
//! model-check` explores a larger world.

mod election_model;

use election_model::Election;

/// Large enough for every known way to two leaders, small enough for seconds.
const TICKS: u8 = 3;
const VERSIONS: u8 = 3;

fn guarded() -> Election {
    Election::guarded(TICKS, VERSIONS)
}

fn check_safe(name: &str, election: Election) {
    let verdict = election.check();
    assert!(
        verdict.two_leaders.is_none(),
        "{name}: two leaders by {}",
        verdict.two_leaders.unwrap_or_default()
    );
    assert!(verdict.moved, "{name}: the second candidate never leads in {} states", verdict.states);
}

fn check_unsafe(name: &str, election: Election) {
    let verdict = election.check();
    assert!(
        verdict.two_leaders.is_some(),
        "{name}: {} states and never two leaders",
        verdict.states
    );
}

#[test]
fn all_three_protections_together_are_safe() {
    check_safe("perfect clocks", guarded());
}

#[test]
fn skewed_clocks_do_not_matter() {
    check_safe("ahead", Election { skew: [0, 4], ..guarded() });
    check_safe("behind", Election { skew: [0, -5], ..guarded() });
}

#[test]
fn each_protection_is_needed() {
    let bare =
        Election { compare_and_swap: false, observation: false, deadline: false, ..guarded() };
    check_unsafe("the library alone", bare);
    check_unsafe("without compare-and-swap", Election { compare_and_swap: false, ..guarded() });
    check_unsafe("without a deadline", Election { deadline: false, ..guarded() });
    check_unsafe(
        "without observation, a clock ahead",
        Election { observation: false, skew: [0, 4], ..guarded() },
    );
}
