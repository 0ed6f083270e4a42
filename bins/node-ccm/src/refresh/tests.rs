use ccm_cloud::ErrorKind;

use super::*;

/// Quirk 8: programs that were started together do not list together for ever.
#[test]
fn periods_are_spread_by_a_tenth() {
    let period = Duration::from_mins(5);
    for (unit, seconds) in [(0.0, 270), (0.5, 300), (1.0, 330)] {
        let got = spread(period, unit).as_secs_f64();
        assert!((got - f64::from(seconds)).abs() < 0.001, "{unit}: {got}");
    }
}

#[test]
fn the_wait_after_a_failure_is_the_clouds_or_doubles() {
    let error = |kind| CloudError::new(kind, "the cloud's own words");
    let asks = |seconds| error(ErrorKind::Throttled).with_retry_after(Duration::from_secs(seconds));
    for (what, error, failures, seconds) in [
        ("first", error(ErrorKind::Unavailable), 1, 5),
        ("second", error(ErrorKind::Unavailable), 2, 10),
        ("fourth", error(ErrorKind::Unavailable), 4, 40),
        ("fifth", error(ErrorKind::Unavailable), 5, 60),
        ("many", error(ErrorKind::Unavailable), u32::MAX, 60),
        ("only a person can mend it", error(ErrorKind::Invalid), 1, 60),
        ("as the cloud asks", asks(90), 1, 90),
        ("but not at once", asks(1), 1, 5),
    ] {
        assert_eq!(after_failure(&error, failures), Duration::from_secs(seconds), "{what}");
    }
}
