use super::*;

/// Quirk 15 of docs/parity.md: upstream waits up to 1000 s.
#[test]
fn waits_double_from_a_second_to_a_minute() {
    let expect = [(0, 1), (1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (20, 60), (u32::MAX, 60)];
    for (failures, seconds) in expect {
        let next = Pace::Growing { failures }.next();
        assert_eq!(next, Duration::from_secs(seconds), "{failures} failures");
    }
}

/// An event is written once and stays readable while the node waits.
#[test]
fn what_is_told_stays_true_while_the_waits_grow() {
    let tell = |pace: Pace| pace.to_string();
    let growing = "at growing intervals, at most every 1m0s";
    assert_eq!(tell(Pace::Growing { failures: 1 }), growing);
    assert_eq!(tell(Pace::Growing { failures: 9 }), growing);
    assert_eq!(tell(Pace::Every(Duration::from_secs(30))), "every 30s");
    assert_eq!(tell(Pace::Asked(Duration::from_millis(6700))), "in about 7s, as it asks");
}
