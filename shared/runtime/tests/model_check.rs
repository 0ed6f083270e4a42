//! The election, checked exhaustively with two candidates. `make model-check` does it
//! with three, and in finer steps of time.

mod election_model;

use election_model::Variant;

/// Each protection is needed, and together they are enough.
#[test]
fn each_variant_is_as_safe_as_it_must_be() {
    let wrong: Vec<_> = Variant::all(2, 3, 2)
        .iter()
        .map(Variant::check)
        .filter(|outcome| !outcome.is_as_expected())
        .map(|outcome| outcome.to_string())
        .collect();
    assert!(wrong.is_empty(), "variant, states, depth, found, expected:\n{}", wrong.join("\n"));
}
