//! client-go's test cases, in their order.

use std::cell::Cell;

use super::*;
use crate::events::EventKind;
use ccm_objects::ObjectRef;

/// A correlator, and event names by number.
#[derive(Default)]
struct Bench {
    correlator: Correlator,
    names: Cell<u32>,
}

impl Bench {
    fn judge(&mut self, event: &Observed, seconds: u64) -> Option<Occurrence> {
        let name = || {
            self.names.set(self.names.get() + 1);
            format!("event-{}", self.names.get())
        };
        self.correlator.judge(event, Duration::from_secs(seconds), name)
    }

    /// Checks count and message of the event to be written.
    fn check(&mut self, event: &Observed, seconds: u64, expect: Option<(u32, &str)>) {
        let occurrence = self.judge(event, seconds);
        let seen = occurrence.as_ref().map(|occurrence| (occurrence.count, &*occurrence.message));
        assert_eq!(seen, expect, "after {seconds} s: {event:?}");
    }
}

fn event(name: &str, message: &str) -> Observed {
    let about = ObjectRef {
        api_version: "v1",
        kind: "Node",
        name: name.to_owned(),
        uid: name.to_owned(),
        ..ObjectRef::default()
    };
    let at = Timestamp::UNIX_EPOCH;
    let (kind, message) = (EventKind::Normal, message.to_owned());
    Observed { component: None, about, kind, reason: "Synced", message, at }
}

fn numbered(number: u64) -> Observed {
    event("a", &format!("message {number}"))
}

const COMBINED: &str = "(combined from similar events): ";

#[test]
fn the_same_event_is_created_once_and_then_counted() {
    let mut bench = Bench::default();
    bench.check(&event("a", "same"), 0, Some((1, "same")));
    bench.check(&event("a", "same"), 1, Some((2, "same")));
    assert_eq!(bench.names.get(), 1);
}

#[test]
fn the_same_event_eleven_times_is_counted_and_never_combined() {
    let mut bench = Bench::default();
    for time in 0..11 {
        bench.check(&event("a", "same"), 30 * u64::from(time), Some((time + 1, "same")));
    }
}

#[test]
fn too_many_about_one_object_are_spam_and_others_are_not() {
    let mut bench = Bench::default();
    for second in 0..25 {
        bench.check(
            &event("a", "same"),
            second,
            Some((u32::try_from(second).unwrap() + 1, "same")),
        );
    }
    bench.check(&event("a", "same"), 25, None);
    bench.check(&event("a", "same"), 26, None);
    bench.check(&event("b", "same"), 27, Some((1, "same")));
    bench.check(&event("a", "same"), 299, None);
    bench.check(&event("a", "same"), 301, Some((29, "same")));
    bench.check(&event("a", "same"), 302, None);
}

#[test]
fn a_bucket_holds_no_more_than_a_burst() {
    let mut bench = Bench::default();
    bench.check(&event("a", "same"), 0, Some((1, "same")));
    let later = 100_000;
    let written =
        (0..40).filter(|second| bench.judge(&event("a", "same"), later + second).is_some());
    assert_eq!(written.count(), 25);
}

#[test]
fn unique_events_are_all_new() {
    let mut bench = Bench::default();
    for number in 0..30 {
        bench.check(&event(&format!("node-{number}"), "same"), number, Some((1, "same")));
    }
    assert_eq!(bench.names.get(), 30);
}

#[test]
fn the_tenth_similar_event_is_combined_and_the_next_is_counted() {
    let mut bench = Bench::default();
    for number in 1..=9 {
        bench.check(&numbered(number), number, Some((1, &format!("message {number}"))));
    }
    bench.check(&numbered(10), 10, Some((1, &format!("{COMBINED}message 10"))));
    bench.check(&numbered(11), 11, Some((2, &format!("{COMBINED}message 11"))));
    bench.check(&numbered(3), 12, Some((2, "message 3")));
    assert_eq!(bench.names.get(), 10);
}

#[test]
fn only_events_of_one_object_kind_and_reason_are_similar() {
    let mut bench = Bench::default();
    for number in 1..=9 {
        bench.judge(&numbered(number), number);
    }
    let tenth = numbered(10);
    let about = |change: fn(&mut ObjectRef)| {
        let mut about = tenth.about.clone();
        change(&mut about);
        Observed { about, ..tenth.clone() }
    };
    for other in [
        about(|about| about.uid = "new".to_owned()),
        about(|about| about.name = "b".to_owned()),
        about(|about| about.namespace = Some("n".to_owned())),
        about(|about| about.kind = "Service"),
        about(|about| about.api_version = "v2"),
        Observed { kind: EventKind::Warning, ..tenth.clone() },
        Observed { reason: "Other", ..tenth.clone() },
        Observed { component: Some("another"), ..tenth.clone() },
    ] {
        bench.check(&other, 10, Some((1, "message 10")));
    }
    let later = about(|about| about.resource_version = "99".to_owned());
    bench.check(&later, 10, Some((1, &format!("{COMBINED}message 10"))));
}

#[test]
fn similar_events_far_apart_are_not_combined() {
    let mut bench = Bench::default();
    for number in 0..20 {
        bench.check(&numbered(number), number * 600, Some((1, &format!("message {number}"))));
    }
    let mut bench = Bench::default();
    for number in 1..=9 {
        bench.judge(&numbered(number), number * 599);
    }
    let rolling = format!("{COMBINED}message 10");
    bench.check(&numbered(10), 10 * 599, Some((1, &rolling)));
}

#[test]
fn a_different_reason_does_not_help_a_spammer_but_a_different_kind_counts_apart() {
    let mut bench = Bench::default();
    for second in 0..25 {
        assert!(bench.judge(&event("a", "same"), second).is_some());
    }
    bench.check(&Observed { reason: "Other", ..event("a", "same") }, 25, None);
    let warning = Observed { kind: EventKind::Warning, ..event("a", "same") };
    bench.check(&warning, 25, Some((1, "same")));
}

#[test]
fn a_series_keeps_its_name_and_its_beginning() {
    let mut bench = Bench::default();
    let first = bench.judge(&event("a", "same"), 0).unwrap();
    let at = Timestamp::from_second(100).unwrap();
    let second = bench.judge(&Observed { at, ..event("a", "same") }, 100).unwrap();
    assert_eq!((second.name, second.first), (first.name, first.first));
}

#[test]
fn what_is_not_remembered_begins_anew() {
    let mut bench = Bench::default();
    bench.judge(&event("first", "same"), 0);
    bench.judge(&event("used", "same"), 0);
    for number in 0..REMEMBERED - 1 {
        bench.judge(&event(&format!("node-{number}"), "same"), 0);
        if number % 100 == 0 {
            bench.judge(&event("used", "same"), 400 * u64::try_from(number).unwrap());
        }
    }
    bench.check(&event("first", "same"), 1, Some((1, "same")));
    let used = bench.judge(&event("used", "same"), 10_000_000).unwrap();
    assert!(used.count > 40, "what is used is not forgotten: {used:?}");
}
