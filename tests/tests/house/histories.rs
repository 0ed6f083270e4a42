//! The deletion court over random histories. A failure names its seed.

use ccm_tests::histories::{Sabotage, Tally, play};

#[test]
fn no_history_ends_wrongly() {
    let mut total = Tally::default();
    for seed in 0..2000 {
        match play(seed, None) {
            Ok(tally) => total.add(&tally),
            Err(what) => panic!("{what}"),
        }
    }
    println!("{total:?}");
    assert!(total.deletions > 100 && total.breaker > 100 && total.budget > 100, "{total:?}");
}

#[test]
fn a_missing_rule_is_noticed() {
    for sabotage in [Sabotage::Confirmation, Sabotage::Grace, Sabotage::Breaker, Sabotage::Budget] {
        let caught = (0..20_000).find(|seed| play(*seed, Some(sabotage)).is_err());
        println!("{sabotage:?}: {caught:?}");
        assert!(caught.is_some(), "nothing notices that this is missing: {sabotage:?}");
    }
}
