//! The election, checked exhaustively with two candidates. `make model-check` does it
//! with three, and in finer steps of time.

mod election_model;

use election_model::Variant;

/// Each protection is needed, and together they are enough.
#[test]
fn each_variant_is_as_safe_as_it_must_be() {
    check(&Variant::all(2, 3, 2));
}

#[test]
fn deletions_writes_and_watches_are_as_safe_as_they_must_be() {
    check(&Variant::duties());
}

fn check(variants: &[Variant]) {
    let wrong: Vec<_> = variants
        .iter()
        .map(Variant::check)
        .filter(|outcome| !outcome.is_as_expected())
        .map(|outcome| outcome.to_string())
        .collect();
    assert!(wrong.is_empty(), "variant, states, depth, found, expected:\n{}", wrong.join("\n"));
}
