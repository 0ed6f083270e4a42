use super::*;

#[test]
fn nodes_out_of_reach_are_acquitted() {
    let plain = || subject("a");
    for (judged, reason) in [
        (ready("a"), Reason::Ready),
        (Subject { claim: Claim::Foreign, ..plain() }, Reason::Foreign),
        (Subject { selected: false, ..plain() }, Reason::NotSelected),
        (Subject { deleting: true, ..plain() }, Reason::Deleting),
        (Subject { uid: "another".into(), ..plain() }, Reason::AnotherNode),
    ] {
        let subjects = among_ready(judged);
        let mut court = Court::new();
        let asked = court.agenda(at(0.0), &subjects, &Policy::default());
        assert_eq!(asked.look_up.is_empty(), reason != Reason::AnotherNode, "{reason:?}");
        let verdict = hear(&mut court, at(0.0), &subjects, ("a", gone()), None);
        assert_eq!(verdict, Verdict::Keep(reason));
    }
}

#[test]
fn a_gone_node_is_convicted_when_the_confirmation_period_is_over() {
    let subjects = among_ready(subject("a"));
    let mut court = Court::new();
    for seconds in [0.0, 5.0, 10.0, 19.9] {
        let now = at(seconds);
        let list = Some(lacks(now, &["a"]));
        let verdict = hear(&mut court, now, &subjects, ("a", gone()), list);
        assert_eq!(why(&verdict), ("suspect", "unconfirmed"), "{seconds}");
    }
    let list = Some(lacks(at(20.0), &["a"]));
    assert_eq!(hear(&mut court, at(20.0), &subjects, ("a", gone()), list), Verdict::Delete);
}

/// Opens a case at zero, then hears this after the confirmation period.
fn after_confirmation(judged: &Subject, answer: Testimony, list: Option<Listing>) -> Verdict {
    let subjects = among_ready(judged.clone());
    let mut court = Court::new();
    hear(&mut court, at(0.0), &subjects, ("a", gone()), None);
    hear(&mut court, at(20.0), &subjects, ("a", answer), list)
}

#[test]
fn no_answer_is_no_evidence() {
    for kind in [
        ErrorKind::Throttled,
        ErrorKind::Unauthorized,
        ErrorKind::Forbidden,
        ErrorKind::Timeout,
        ErrorKind::Unavailable,
        ErrorKind::NotFound,
        ErrorKind::Malformed,
    ] {
        let subjects = among_ready(subject("a"));
        let list = || Some(lacks(at(20.0), &["a"]));
        let verdict = hear(&mut Court::new(), at(20.0), &subjects, ("a", error(kind)), list());
        assert_eq!(verdict, Verdict::Keep(Reason::NoAnswer), "{kind:?}");
        let verdict = after_confirmation(&subject("a"), error(kind), list());
        assert_eq!(why(&verdict), ("suspect", "no_answer"), "{kind:?}");
    }
    // A name proves nothing about a node that has an ID.
    for weak in [ProofMethod::ByName, ProofMethod::BySystemUuid] {
        let list = Some(lacks(at(20.0), &["a"]));
        let verdict = after_confirmation(&subject("a"), gone_by(weak), list);
        assert_eq!(why(&verdict), ("suspect", "no_answer"), "{weak:?}");
    }
}

#[test]
fn an_answer_that_took_too_long_is_none() {
    let subjects = among_ready(subject("a"));
    let (mut court, policy) = (Court::new(), Policy::default());
    court.agenda(at(0.0), &subjects, &policy);
    let lookups = vec![LookedUp { name: "a".into(), uid: "uid-a".into(), testimony: gone() }];
    let hearing = Hearing { asked: at(0.0), answered: at(30.1), lookups, list: None };
    let rulings = court.hear(at(30.1), &subjects, hearing, &policy);
    assert_eq!(rulings[0].verdict, Verdict::Keep(Reason::NoAnswer));
}

#[test]
fn a_case_ends_when_the_instance_exists_or_is_not_ours() {
    for (testimony, reason) in
        [(running(), Reason::Exists), (Testimony::NotOurs("x".to_owned()), Reason::NotOurs)]
    {
        let subjects = among_ready(subject("a"));
        let mut court = Court::new();
        hear(&mut court, at(0.0), &subjects, ("a", gone()), None);
        let verdict = hear(&mut court, at(15.0), &subjects, ("a", testimony), None);
        assert_eq!(verdict, Verdict::Keep(reason));
        let list = Some(lacks(at(25.0), &["a"]));
        let verdict = hear(&mut court, at(25.0), &subjects, ("a", gone()), list);
        assert_eq!(why(&verdict), ("suspect", "unconfirmed"), "the case began anew");
    }
}

#[test]
fn the_list_must_have_been_read_and_lack_the_node() {
    let failed = Listing::Failed(CloudError::new(ErrorKind::Timeout, "late"));
    let slow = match lacks(at(20.0), &["a"]) {
        Listing::Read { asked, instances, malformed, missing, .. } => {
            Listing::Read { asked, answered: at(50.1), instances, malformed, missing }
        }
        failed @ Listing::Failed(_) => failed,
    };
    for (list, expect) in [
        (None, "not_listed"),
        (Some(failed), "not_listed"),
        (Some(slow), "not_listed"),
        (Some(lacks(at(20.0), &["ready-1"])), "listed"),
    ] {
        let verdict = after_confirmation(&subject("a"), gone(), list);
        assert_eq!(why(&verdict), ("suspect", expect));
    }
}

#[test]
fn the_word_of_the_cloud_does_not_count_before_the_grace_period() {
    let age = |seconds| Subject { age: Duration::from_secs_f64(seconds), ..subject("a") };
    let mut court = Court::new();
    for (seconds, expect) in [(100.0, "newborn"), (119.0, "newborn"), (120.0, "unconfirmed")] {
        let subjects = among_ready(age(seconds));
        let verdict = hear(&mut court, at(seconds), &subjects, ("a", gone()), None);
        assert_eq!(why(&verdict), ("suspect", expect), "{seconds}");
    }
    let subjects = among_ready(age(139.0));
    let list = Some(lacks(at(139.0), &["a"]));
    let verdict = hear(&mut court, at(139.0), &subjects, ("a", gone()), list);
    assert_eq!(why(&verdict), ("suspect", "unconfirmed"), "earlier answers do not count");
}

#[test]
fn protection_ghosts_and_approval() {
    let ghost = Subject { has_id: false, claim: Claim::Unclaimed, ..subject("a") };
    let by_name = gone_by(ProofMethod::ByName);
    for (judged, testimony, expect) in [
        (Subject { protected: true, ..subject("a") }, gone(), Verdict::Keep(Reason::Protected)),
        (
            Subject { protected: true, approved: true, ..subject("a") },
            gone(),
            Verdict::Keep(Reason::Protected),
        ),
        (ghost.clone(), by_name.clone(), Verdict::Keep(Reason::Ghost)),
    ] {
        let list = Some(lacks(at(20.0), &["a"]));
        assert_eq!(after_confirmation(&judged, testimony, list), expect);
    }
    let subjects = among_ready(Subject { uninitialised: true, ..ghost });
    let mut court = Court::new();
    hear(&mut court, at(0.0), &subjects, ("a", by_name.clone()), None);
    let list = Some(lacks(at(20.0), &["a"]));
    assert_eq!(hear(&mut court, at(20.0), &subjects, ("a", by_name), list), Verdict::Delete);
}

#[test]
fn approval_passes_the_breaker_but_not_the_proof() {
    let all: Vec<String> =
        (0..10).map(|number| format!("ready-{number}")).chain(["a".to_owned()]).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    for (approved, expect) in [(false, Verdict::BreakerOpen), (true, Verdict::Delete)] {
        let judged = Subject { approved, ..subject("a") };
        let first =
            hear(&mut Court::new(), at(0.0), &among_ready(judged.clone()), ("a", gone()), None);
        assert_eq!(why(&first), ("suspect", "unconfirmed"));
        assert_eq!(after_confirmation(&judged, gone(), Some(lacks(at(20.0), &all))), expect);
    }
}

#[test]
fn the_oldest_case_is_the_one_that_was_opened_first_and_is_still_open() {
    let subjects = among_ready(subject("a")).into_iter().chain([subject("b")]).collect::<Vec<_>>();
    let mut court = Court::new();
    hear(&mut court, at(5.0), &subjects, ("a", running()), None);
    assert_eq!(court.oldest_case(at(9.0)), None, "watched, but nothing speaks against it");
    hear(&mut court, at(10.0), &subjects, ("a", gone()), None);
    hear(&mut court, at(40.0), &subjects, ("b", gone()), None);
    assert_eq!(court.oldest_case(at(100.0)), Some(Duration::from_secs(90)));
    hear(&mut court, at(101.0), &subjects, ("a", running()), None);
    assert_eq!(court.oldest_case(at(101.0)), Some(Duration::from_secs(61)), "one is closed");
    let all_ready = among_ready(ready("a"));
    court.agenda(at(102.0), &all_ready, &Policy::default());
    assert_eq!(court.oldest_case(at(102.0)), None);
}

#[test]
fn another_node_of_the_name_begins_without_a_past() {
    let mut court = Court::new();
    hear(&mut court, at(0.0), &among_ready(subject("a")), ("a", gone()), None);
    let again = Subject { uid: "uid-2".into(), ..subject("a") };
    let ended = court.agenda(at(19.0), &among_ready(again), &Policy::default()).ended;
    assert_eq!(ended[0].verdict, Verdict::Keep(Reason::AnotherNode));
    assert_eq!(court.counts(), Counts { watched: 1, suspected: 0 });
}

#[test]
fn what_was_heard_while_the_breaker_was_open_is_no_evidence_afterwards() {
    let subjects = among_ready(subject("a"));
    let all: Vec<&str> = subjects.iter().map(|subject| &*subject.name).collect();
    let mut court = Court::new();
    hear(&mut court, at(0.0), &subjects, ("a", gone()), None);
    let verdict = hear(&mut court, at(20.0), &subjects, ("a", gone()), Some(lacks(at(20.0), &all)));
    assert_eq!(verdict, Verdict::BreakerOpen);
    let closing = Some(lacks(at(25.0), &["a"]));
    let verdict = hear(&mut court, at(25.0), &subjects, ("a", gone()), closing);
    assert_eq!(why(&verdict), ("suspect", "unconfirmed"));
    let list = Some(lacks(at(45.0), &["a"]));
    assert_eq!(hear(&mut court, at(45.0), &subjects, ("a", gone()), list), Verdict::Delete);
}

#[test]
fn one_answer_never_convicts_even_without_a_confirmation_period() {
    let policy = Policy { confirmation_period: Duration::ZERO, ..Policy::default() };
    let subjects = among_ready(subject("a"));
    let mut court = Court::new();
    for (now, expect) in [(10.0, "suspect"), (10.1, "delete")] {
        court.agenda(at(now), &subjects, &policy);
        let lookup = LookedUp { name: "a".into(), uid: "uid-a".into(), testimony: gone() };
        let hearing = Hearing {
            asked: at(now),
            answered: at(now),
            lookups: vec![lookup],
            list: Some(lacks(at(now), &["a"])),
        };
        let rulings = court.hear(at(now), &subjects, hearing, &policy);
        assert_eq!(rulings[0].verdict.as_str(), expect, "at {now}");
    }
}

#[test]
fn a_list_from_before_the_case_confirms_nothing() {
    let subjects = among_ready(subject("a"));
    let mut court = Court::new();
    hear(&mut court, at(10.0), &subjects, ("a", gone()), None);
    let old = Some(lacks(at(9.0), &["a"]));
    let verdict = hear(&mut court, at(31.0), &subjects, ("a", gone()), old);
    assert_eq!(why(&verdict), ("suspect", "not_listed"));
}
