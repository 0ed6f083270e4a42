use std::time::Duration;

use proptest::prelude::*;

use super::{
    approval::{KEYS, SELECTOR, SetApproval, command, is_marked_at, is_yes, to_set},
    *,
};

fn at(seconds: f64) -> At {
    At(Duration::from_secs_f64(seconds))
}

fn in_ten_minutes(limit: Limit) -> Budget {
    Budget { limit, window: Duration::from_mins(10) }
}

fn until(seconds: f64) -> Result<(), Hold> {
    Err(Hold::Budget { until: Some(at(seconds)) })
}

#[test]
fn the_budget_has_a_limit() {
    for (limit, population, expect) in [
        (Limit::Count(0), 100, 0),
        (Limit::Count(7), 3, 7),
        (Limit::Percent(0), 100, 0),
        (Limit::Percent(10), 5, 3),
        (Limit::Percent(10), 100, 10),
        (Limit::Percent(10), 101, 11),
        (Limit::Percent(100), 50, 50),
    ] {
        let usage = Brake::<()>::default().usage(at(0.0), population, in_ten_minutes(limit));
        assert_eq!(usage, Usage { used: 0, limit: expect }, "{limit:?} of {population}");
    }
}

#[test]
fn the_window_slides_and_each_change_is_counted_once() {
    let (mut brake, two) = (Brake::<()>::default(), in_ten_minutes(Limit::Count(2)));
    assert_eq!(brake.request(at(0.0), "a", 9, two), Ok(()));
    assert_eq!(brake.request(at(100.0), "b", 9, two), Ok(()));
    assert_eq!(brake.request(at(101.0), "b", 9, two), Ok(()), "paid for once");
    assert_eq!(brake.request(at(101.0), "c", 9, two), until(600.0));
    assert_eq!(brake.request(at(599.9), "c", 9, two), until(600.0));
    assert_eq!(brake.request(at(600.0), "c", 9, two), Ok(()));
    brake.release("b");
    assert_eq!(brake.request(at(600.0), "d", 9, two), Ok(()), "given back");
    let none = in_ten_minutes(Limit::Count(0));
    let never = Err(Hold::Budget { until: None });
    assert_eq!(brake.request(at(600.0), "e", 9, none), never);
}

#[test]
fn a_change_that_is_made_later_than_charged_counts_from_then_on() {
    let (mut brake, one) = (Brake::<()>::default(), in_ten_minutes(Limit::Count(1)));
    assert_eq!(brake.request(at(0.0), "a", 9, one), Ok(()));
    brake.renew(at(100.0), "a");
    brake.renew(at(200.0), "not charged");
    assert_eq!(brake.request(at(600.0), "b", 9, one), until(700.0));
    assert_eq!(brake.request(at(700.0), "b", 9, one), Ok(()));
}

#[test]
fn an_open_breaker_holds_everything_and_costs_nothing() {
    let (mut brake, one) = (Brake::default(), in_ten_minutes(Limit::Count(1)));
    assert_eq!(brake.observe(at(1.0), None), Transition::StaysClosed);
    assert_eq!(brake.observe(at(2.0), Some("empty")), Transition::Opened("empty"));
    assert_eq!(brake.request(at(2.0), "a", 9, one), Err(Hold::Breaker));
    assert_eq!(brake.observe(at(3.0), Some("half")), Transition::StaysOpen("empty", "half"));
    assert_eq!(*brake.breaker(), Breaker::Open { since: at(2.0), cause: "half" });
    assert_eq!(brake.observe(at(4.0), None), Transition::Closed);
    assert_eq!(brake.usage(at(4.0), 9, one), Usage { used: 0, limit: 1 });
    assert_eq!(brake.request(at(4.0), "a", 9, one), Ok(()));
}

#[test]
fn few_changes_do_not_open_the_breaker() {
    for (part, whole, percent, expect) in [
        (2, 2, 10, false),
        (3, 3, 10, true),
        (3, 30, 10, false),
        (4, 30, 10, true),
        (50, 100, 50, false),
        (51, 100, 50, true),
    ] {
        assert_eq!(is_mass(part, whole, percent), expect, "{part} of {whole}");
    }
}

/// A process, with the time of its wall clock at its start. Its monotonic clock begins there.
struct Process {
    started: At,
}

impl Process {
    fn after(&self, seconds: u64) -> At {
        self.started + Duration::from_secs(seconds)
    }
}

#[test]
fn a_new_leader_continues_the_stored_window() {
    let three = in_ten_minutes(Limit::Percent(10));
    let noon = At(Duration::from_secs(1_800_000_000));
    let first = Process { started: noon };
    let mut brake = Brake::<()>::default();
    for (uid, seconds) in [("a", 5_000), ("b", 5_060), ("c", 5_120)] {
        assert_eq!(brake.request(first.after(seconds), uid, 20, three), Ok(()));
    }
    let stored = serde_json::to_string(brake.window()).unwrap();
    // It has run for ten seconds when the other one has run for 5200.
    let second = Process { started: first.after(5_190) };
    let window = serde_json::from_str(&stored).unwrap();
    let mut brake = Brake::<()>::resume(second.after(10), window);
    assert_eq!(brake.usage(second.after(10), 20, three), Usage { used: 3, limit: 3 });
    let held = Err(Hold::Budget { until: Some(first.after(5_600)) });
    assert_eq!(brake.request(second.after(10), "d", 20, three), held);
    assert_eq!(brake.request(second.after(10), "b", 20, three), Ok(()), "paid for by the first");
    assert_eq!(brake.request(first.after(5_600), "d", 20, three), Ok(()), "the first has left");
    assert_eq!(
        brake.request(first.after(5_601), "e", 20, three),
        Err(Hold::Budget { until: Some(first.after(5_660)) })
    );
}

#[test]
fn entries_from_the_future_expire_after_one_window() {
    let one = in_ten_minutes(Limit::Count(1));
    let mut brake = Brake::<()>::default();
    assert_eq!(brake.request(at(9_000.0), "a", 9, one), Ok(()));
    let stored = brake.window().clone();
    let mut brake = Brake::<()>::resume(at(1_000.0), stored);
    assert_eq!(brake.request(at(1_000.0), "b", 9, one), until(1_600.0));
    assert_eq!(brake.request(at(1_600.0), "b", 9, one), Ok(()));
}

proptest! {
    /// However often leaders change, no more than the limit changes within any window.
    #[test]
    fn flapping_leaders_share_one_budget(steps in prop::collection::vec((0_u64..200, any::<bool>()), 1..200)) {
        let budget = in_ten_minutes(Limit::Count(3));
        let (mut brake, mut now, mut granted) = (Brake::<()>::default(), at(1e9), Vec::new());
        for (number, (pause, is_new_leader)) in steps.into_iter().enumerate() {
            now = now + Duration::from_secs(pause);
            if is_new_leader {
                let stored = serde_json::to_string(brake.window()).unwrap();
                brake = Brake::resume(now, serde_json::from_str(&stored).unwrap());
            }
            if brake.request(now, &number.to_string(), 9, budget).is_ok() {
                granted.push(now);
            }
            let lately = granted.iter().filter(|then| **then + budget.window > now).count();
            prop_assert!(lately <= 3);
        }
    }
}

#[test]
fn only_known_values_approve() {
    for (word, expect) in
        [("yes", true), (" True ", true), ("no", false), ("", false), ("please", false)]
    {
        assert_eq!(is_yes(word), expect, "{word:?}");
    }
}

#[test]
fn a_mark_approves_until_its_time() {
    let now: At = "2026-01-02T15:04:05Z".parse().expect("a time");
    let yes: ccm_objects::Shared = "yes".into();
    for (mark, expect) in [
        ("2026-01-02T15:04:06Z", true),
        (" 2026-01-02T16:05:00+01:00 ", true),
        ("2026-01-02T15:04:05Z", false),
        ("2026-01-02", false),
        ("yes", true),
    ] {
        assert_eq!(is_marked_at(Some(mark), None, now), expect, "{mark:?}");
    }
    assert!(is_marked_at(None, Some(&yes), now));
    assert!(!is_marked_at(Some("2026-01-02T15:04:05Z"), Some(&yes), now), "it is over");
}

#[test]
fn a_mark_that_does_not_approve_is_named() {
    let label: ccm_objects::Shared = "ja".into();
    let wrong = "KEY=yes (its present value \"ja\" does not approve)";
    assert_eq!(to_set("KEY", None, None), "KEY=yes");
    assert_eq!(to_set("KEY", Some("True"), Some(&label)), "KEY=yes", "the annotation counts");
    assert_eq!(to_set("KEY", Some("ja"), None), wrong);
    let annotate = "kubectl annotate node a --overwrite KEY=yes";
    assert_eq!(command("node a", "KEY", None, None), annotate);
    let explained = format!("the present value \"ja\" does not approve: {annotate}");
    assert_eq!(command("node a", "KEY", Some("ja"), None), explained);
    assert_eq!(to_set("KEY", None, Some(&label)), wrong);
    let long = to_set("KEY", Some(&"x".repeat(9000)), None);
    assert!(long.len() < 100, "{long}");
}

fn read(selector: Option<&str>, until: Option<&str>) -> Result<Option<SetApproval>, String> {
    let read = SetApproval::read(KEYS, |key| {
        let text = if key == SELECTOR { selector } else { until };
        text.map(str::to_owned)
    });
    read.map_err(|error| error.to_string())
}

#[test]
fn a_set_is_approved_until_it_expires() {
    let labels = |pool: &str| [("pool".into(), pool.into())].into();
    let approval = read(Some("pool=batch"), Some("1970-01-01T01:00:00Z")).unwrap().unwrap();
    assert!(approval.covers(&labels("batch")));
    assert!(!approval.covers(&labels("other")));
    assert_eq!(approval.clone().unless_over(at(3599.0)), Ok(approval.clone()));
    assert_eq!(
        approval.unless_over(at(3600.0)).unwrap_err().to_string(),
        "annotation quartet.dev/approved-until: 1970-01-01T01:00:00.000Z is over; set a later time, in UTC"
    );
    let all = read(Some(" * "), Some("1970-01-01T01:00:00Z")).unwrap().unwrap();
    assert!(all.covers(&labels("other")));
    assert_eq!(read(None, None), Ok(None));
}

#[test]
fn an_invalid_approval_approves_nothing() {
    let time = Some("1970-01-01T01:00:00Z");
    for (selector, until, expect) in [
        (None, time, "annotation quartet.dev/approved-selector is missing"),
        (Some(" "), time, "annotation quartet.dev/approved-selector is missing"),
        (Some("pool=batch"), None, "annotation quartet.dev/approved-until is missing"),
        (
            Some("pool=batch"),
            Some("tomorrow"),
            "annotation quartet.dev/approved-until: \"tomorrow\" is not a time such as 2006-01-02T15:04:05Z",
        ),
    ] {
        assert_eq!(read(selector, until).unwrap_err(), expect);
    }
    // A lone comma would approve every object.
    for selector in ["a b", ",", " , ", "pool=batch,"] {
        let error = read(Some(selector), time).unwrap_err();
        assert!(error.starts_with("annotation quartet.dev/approved-selector: "), "{error}");
    }
}

#[test]
fn a_limit_is_a_number_or_a_percentage() {
    for (text, expect) in [
        ("5", Ok(Limit::Count(5))),
        (DEFAULT_LIMIT_TEXT, Ok(DEFAULT_LIMIT)),
        ("0 %", Ok(Limit::Percent(0))),
        ("101%", Err(InvalidLimit)),
        ("-1", Err(InvalidLimit)),
        ("many", Err(InvalidLimit)),
    ] {
        assert_eq!(text.parse(), expect, "{text}");
    }
}

#[test]
fn what_has_left_the_window_is_not_handed_over() {
    let window: Window = [(at(1.0), "a".into()), (at(2.0), "b".into())].into_iter().collect();
    let after: Vec<_> = window.after(at(1.0)).collect();
    assert_eq!(after, [(at(2.0), "b")]);
}

/// A record says `~99999` as easily as `~3`.
#[test]
fn a_record_stands_for_a_bounded_number_of_changes() {
    let window: Window = (0..40).map(|_| (at(1.0), "~99999".into())).collect();
    let brake = Brake::<()>::resume(at(2.0), window);
    let budget = Budget { limit: Limit::Count(5), window: Duration::from_hours(1) };
    assert_eq!(brake.usage(at(2.0), 100, budget).used, 20_000);
}
