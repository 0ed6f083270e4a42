use super::*;

/// Quirk 15 of docs/parity.md: upstream waits up to 1000 s.
#[test]
fn waits_double_from_a_second_to_a_minute() {
    let expect = [(0, 1), (1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (20, 60), (u32::MAX, 60)];
    for (failures, seconds) in expect {
        let next = Pace::Backoff { failures }.next();
        assert_eq!(next, Duration::from_secs(seconds), "{failures} failures");
    }
}

/// An event is written once and stays readable while the node waits.
#[test]
fn the_text_does_not_depend_on_the_attempt() {
    let text = |pace: Pace| pace.to_string();
    let backoff = "with exponential back-off (max 1m0s)";
    assert_eq!(text(Pace::Backoff { failures: 1 }), backoff);
    assert_eq!(text(Pace::Backoff { failures: 9 }), backoff);
    assert_eq!(text(Pace::Every(Duration::from_secs(30))), "every 30s");
    assert_eq!(text(Pace::RetryAfter(Duration::from_millis(6700))), "in about 7s (Retry-After)");
}
