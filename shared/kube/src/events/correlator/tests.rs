//! client-go's scenarios, in the order of its own tests.

use super::*;

fn event(name: &str, message: &str) -> Observed {
    let about = ObjectRef { api_version: "v1", kind: "Node", name: name.to_owned(), uid: name.to_owned(), ..ObjectRef::default() };
    Observed { about: Arc::new(about), kind: EventKind::Normal, reason: "Synced", message: message.to_owned() }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Judges and, as the writer does, reports a created event under a name.
fn write(correlator: &mut Correlator, event: &Observed, now: Duration) -> Verdict {
    let verdict = correlator.judge(event, now);
    if let Verdict::Create { key, .. } = &verdict {
        correlator.created(key.clone(), "written".to_owned());
    }
    verdict
}

fn count(verdict: &Verdict) -> u32 {
    match verdict {
        Verdict::Create { .. } => 1,
        Verdict::Count { count, .. } => *count,
        Verdict::Spam => 0,
    }
}

fn message(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Create { message, .. } | Verdict::Count { message, .. } => message,
        Verdict::Spam => "",
    }
}

#[test]
fn the_same_event_is_created_once_and_then_counted() {
    let mut correlator = Correlator::default();
    for time in 0..11u32 {
        let verdict = write(&mut correlator, &event("a", "same"), at(30 * u64::from(time)));
        assert_eq!(count(&verdict), time + 1, "identical events are never combined");
        assert_eq!(message(&verdict), "same");
    }
}

#[test]
fn too_many_about_one_object_are_spam_and_others_are_not() {
    let mut correlator = Correlator::default();
    let verdicts: Vec<_> = (0..27).map(|second| write(&mut correlator, &event("a", "same"), at(second))).collect();
    assert_eq!(verdicts.iter().filter(|verdict| **verdict == Verdict::Spam).count(), 2);
    assert_eq!(count(&write(&mut correlator, &event("b", "same"), at(27))), 1);
    assert_eq!(write(&mut correlator, &event("a", "same"), at(100)), Verdict::Spam);
    assert_ne!(write(&mut correlator, &event("a", "same"), at(27 + 300)), Verdict::Spam, "refilled");
}

#[test]
fn unique_events_about_many_objects_are_all_new() {
    let mut correlator = Correlator::default();
    for number in 0..30 {
        let verdict = write(&mut correlator, &event(&format!("node-{number}"), "same"), at(number));
        assert!(matches!(verdict, Verdict::Create { .. }));
    }
}

#[test]
fn the_tenth_similar_event_is_combined_and_the_next_is_counted() {
    let mut correlator = Correlator::default();
    for number in 1..=9 {
        let verdict = write(&mut correlator, &event("a", &format!("message {number}")), at(number));
        assert_eq!(message(&verdict), format!("message {number}"));
    }
    let tenth = write(&mut correlator, &event("a", "message 10"), at(10));
    assert_eq!((message(&tenth), count(&tenth)), ("(combined from similar events): message 10", 1));
    let eleventh = write(&mut correlator, &event("a", "message 11"), at(11));
    assert_eq!((message(&eleventh), count(&eleventh)), ("(combined from similar events): message 11", 2));
}

#[test]
fn similar_events_far_apart_are_not_combined() {
    let mut correlator = Correlator::default();
    for number in 0..20 {
        let verdict = write(&mut correlator, &event("a", &format!("message {number}")), at(number * 600));
        assert_eq!(message(&verdict), format!("message {number}"));
    }
}

#[test]
fn an_event_that_the_server_has_lost_is_created_anew() {
    let mut correlator = Correlator::default();
    write(&mut correlator, &event("a", "same"), at(0));
    let Verdict::Count { key, .. } = correlator.judge(&event("a", "same"), at(1)) else { panic!("counted") };
    correlator.vanished(&key);
    assert!(matches!(correlator.judge(&event("a", "same"), at(2)), Verdict::Create { .. }));
}

#[test]
fn memory_is_bounded() {
    let mut correlator = Correlator::default();
    for number in 0..3 * REMEMBERED {
        write(&mut correlator, &event(&format!("node-{number}"), "same"), at(0));
    }
    assert!(correlator.written.entries.len() <= REMEMBERED);
    assert!(correlator.buckets.entries.len() <= REMEMBERED + 1);
    assert_eq!(correlator.buckets.entries.len(), correlator.buckets.order.len());
}
