//! The deletion court over random histories. A failure names its seed.

use ccm_tests::histories::{Tally, Variant, play};

#[test]
fn no_history_ends_wrongly() {
    for variant in Variant::ALL {
        let mut total = Tally::default();
        for seed in 0..2000 {
            match play(seed, variant, None) {
                Ok(tally) => total.add(&tally),
                Err(what) => panic!("{variant:?}: {what}"),
            }
        }
        println!("{variant:?}: {total:?}");
        assert!(total.deletions > 100 && total.budget > 10, "{variant:?}: {total:?}");
        assert!(total.killed > 50 && total.undone > 50 && total.uncertain > 50, "{total:?}");
        assert!(total.breaker > 100 && total.marked > 10 && total.alive > 10, "{total:?}");
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
            let caught = (0..20_000).find(is_noticed);
            println!("{variant:?} without {sabotage:?}: {caught:?}");
            assert!(caught.is_some(), "nothing notices that this is missing: {sabotage:?}");
        }
    }
}
