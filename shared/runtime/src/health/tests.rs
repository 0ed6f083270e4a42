use super::{Health, Scope, Verdict};

#[test]
fn conditions_say_what_was_set() {
    let health = Health::default();
    assert!(health.is_ready(), "without checks");
    let condition = health.condition("inventory", Scope::Readiness, "no list yet");
    assert_eq!(condition.verdict(), Verdict::Failed("no list yet".to_owned()));
    assert!(!health.is_ready());
    condition.clone().pass("50 machines");
    assert_eq!(health.findings()[0].verdict, Verdict::Passed("50 machines".to_owned()));
    assert!(health.is_ready());
    condition.fail("list failed");
    assert!(!health.is_ready());
}

#[test]
fn information_never_makes_unready() {
    let health = Health::default();
    health.condition("config", Scope::Information, "bad");
    assert!(health.is_ready());
    health.condition("alive", Scope::Liveness, "bad");
    assert!(!health.is_ready());
}

#[test]
fn a_check_of_the_same_name_replaces_in_place() {
    let health = Health::default();
    for (name, text) in [("a", "1"), ("b", "2"), ("a", "3")] {
        health.add(name, Scope::Readiness, move || Verdict::Passed(text.to_owned()));
    }
    let seen: Vec<_> =
        health.findings().into_iter().map(|it| (it.name, it.verdict.detail().to_owned())).collect();
    assert_eq!(seen, [("a".to_owned(), "3".to_owned()), ("b".to_owned(), "2".to_owned())]);
}

#[test]
fn a_check_may_look_at_the_others() {
    let health = Health::default();
    let all = health.clone();
    let asked = std::sync::atomic::AtomicBool::new(false);
    health.add("count", Scope::Information, move || {
        let first = !asked.swap(true, std::sync::atomic::Ordering::Relaxed);
        let count = if first { all.findings().len() } else { 0 };
        Verdict::Passed(count.to_string())
    });
    assert_eq!(health.findings()[0].verdict.detail(), "1");
}
