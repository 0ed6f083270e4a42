//! Random histories of a small fleet, judged by the machine alone: see [`ccm_tests::histories`].

use ccm_tests::histories::{Sabotage, Tally, Variant, play};

/// The number of events of the histories of one variant. Without optimisation they take longer.
const EVENTS: u64 = if cfg!(debug_assertions) { 60_000 } else { 400_000 };

#[test]
fn no_history_ends_wrongly() {
    for variant in Variant::ALL {
        let (mut total, mut seed) = (Tally::default(), 0);
        while total.events < EVENTS {
            match play(seed, variant, None) {
                Ok(tally) => total.add(&tally),
                Err(what) => panic!("{variant:?}: {what}"),
            }
            seed += 1;
        }
        println!("{variant:?}, {seed} histories: {total:?}");
        let is_kept = total.kept > 0 || variant != Variant::Living;
        assert!(total.deletions > 20 && total.held > 20 && is_kept, "{total:?}");
        assert!(total.leaders > 20 && total.undone > 0 && total.marks > 20, "{total:?}");
    }
}

/// Returns the seed at which the search for a history that needs the rule begins. For some rules
/// few histories do, so the search begins where it has found one.
const fn seldom(sabotage: Sabotage) -> u64 {
    match sabotage {
        Sabotage::Memory => 994,
        Sabotage::Store => 2393,
        Sabotage::Until => 451,
        Sabotage::Witnesses => 514,
        _ => 0,
    }
}

#[test]
fn a_missing_rule_is_noticed() {
    for variant in Variant::ALL {
        for sabotage in variant.rules() {
            let is_noticed = |seed: &u64| {
                let end = play(*seed, variant, Some(*sabotage));
                end.is_err_and(|what| what.contains(sabotage.breaks()))
            };
            let from = seldom(*sabotage);
            let caught = (from..from + 20_000).find(is_noticed);
            println!("{variant:?} without {sabotage:?}: {caught:?}");
            assert!(caught.is_some(), "no history shows that this rule is missing: {sabotage:?}");
        }
    }
}
