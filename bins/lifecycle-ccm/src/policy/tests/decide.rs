use super::*;

#[test]
fn nodes_out_of_scope_are_kept() {
    let plain = || view("a");
    for (node, reason) in [
        (ready("a"), Reason::Ready),
        (NodeView { claim: Claim::Foreign, ..plain() }, Reason::Foreign),
        (NodeView { selected: false, ..plain() }, Reason::NotSelected),
        (NodeView { deleting: true, ..plain() }, Reason::Deleting),
        (NodeView { uid: "another".into(), ..plain() }, Reason::AnotherNode),
    ] {
        let views = among_ready(node);
        let mut decider = Decider::new();
        let asked = decider.agenda(at(0.0), &views, &Policy::default());
        assert_eq!(asked.look_up.is_empty(), reason != Reason::AnotherNode, "{reason:?}");
        let verdict = decide(&mut decider, at(0.0), &views, ("a", gone()), None);
        assert_eq!(verdict, Verdict::Keep(reason));
    }
}

#[test]
fn a_gone_node_is_deleted_after_the_confirmation_period() {
    let views = among_ready(view("a"));
    let mut decider = Decider::new();
    for seconds in [0.0, 5.0, 10.0, 19.9] {
        let now = at(seconds);
        let list = Some(lacks(now, &["a"]));
        let verdict = decide(&mut decider, now, &views, ("a", gone()), list);
        assert_eq!(why(&verdict), ("suspect", "unconfirmed"), "{seconds}");
    }
    let list = Some(lacks(at(20.0), &["a"]));
    assert_eq!(decide(&mut decider, at(20.0), &views, ("a", gone()), list), Verdict::Delete);
}

/// Opens a case at zero, then gives this answer after the confirmation period.
fn after_confirmation(node: &NodeView, answer: LookupResult, list: Option<Listing>) -> Verdict {
    let views = among_ready(node.clone());
    let mut decider = Decider::new();
    decide(&mut decider, at(0.0), &views, ("a", gone()), None);
    decide(&mut decider, at(20.0), &views, ("a", answer), list)
}

#[test]
fn errors_and_weak_proofs_are_no_evidence() {
    for kind in [
        ErrorKind::Throttled,
        ErrorKind::Unauthorized,
        ErrorKind::Forbidden,
        ErrorKind::Timeout,
        ErrorKind::Unavailable,
        ErrorKind::NotFound,
        ErrorKind::Malformed,
    ] {
        let views = among_ready(view("a"));
        let list = || Some(lacks(at(20.0), &["a"]));
        let verdict = decide(&mut Decider::new(), at(20.0), &views, ("a", error(kind)), list());
        assert_eq!(verdict, Verdict::Keep(Reason::NoAnswer), "{kind:?}");
        let verdict = after_confirmation(&view("a"), error(kind), list());
        assert_eq!(why(&verdict), ("suspect", "no_answer"), "{kind:?}");
    }
    // A lookup by name proves nothing about a node that has an ID.
    for weak in [ProofMethod::ByName, ProofMethod::BySystemUuid, ProofMethod::ByOwner] {
        let list = Some(lacks(at(20.0), &["a"]));
        let verdict = after_confirmation(&view("a"), gone_by(weak), list);
        assert_eq!(why(&verdict), ("suspect", "no_answer"), "{weak:?}");
    }
}

#[test]
fn a_late_answer_is_no_evidence() {
    let views = among_ready(view("a"));
    let (mut decider, policy) = (Decider::new(), Policy::default());
    decider.agenda(at(0.0), &views, &policy);
    let lookups = vec![looked_up("a", 30.1, gone())];
    let answers = Answers { asked: at(0.0), lookups, witnesses: Vec::new(), list: None };
    let decisions = decider.decide(at(30.1), &views, answers, &policy);
    assert_eq!(decisions[0].verdict, Verdict::Keep(Reason::NoAnswer));
}

fn looked_up(name: &str, answered: f64, result: LookupResult) -> LookedUp {
    let uid = format!("uid-{name}").into();
    let heartbeat = Some(Heartbeat::default());
    LookedUp { name: name.into(), uid, answered: at(answered), result, heartbeat }
}

#[test]
fn a_late_answer_voids_no_other_answer() {
    let views = [among_ready(view("a")), vec![view("b")]].concat();
    let (mut decider, policy) = (Decider::new(), Policy::default());
    decider.agenda(at(0.0), &views, &policy);
    let lookups =
        vec![looked_up("a", 0.1, gone()), looked_up("b", 30.1, error(ErrorKind::Timeout))];
    let answers = Answers { asked: at(0.0), lookups, witnesses: Vec::new(), list: None };
    let decisions = decider.decide(at(30.1), &views, answers, &policy);
    assert_eq!(why(&decisions[0].verdict), ("suspect", "unconfirmed"));
    assert_eq!(decisions[1].verdict, Verdict::Keep(Reason::NoAnswer));
}

#[test]
fn a_case_ends_when_the_instance_exists_or_is_not_ours() {
    for (result, reason) in
        [(running(), Reason::Exists), (Ok(Lookup::NotOurs("x".to_owned())), Reason::NotOurs)]
    {
        let views = among_ready(view("a"));
        let mut decider = Decider::new();
        decide(&mut decider, at(0.0), &views, ("a", gone()), None);
        let verdict = decide(&mut decider, at(15.0), &views, ("a", result), None);
        assert_eq!(verdict, Verdict::Keep(reason));
        let list = Some(lacks(at(25.0), &["a"]));
        let verdict = decide(&mut decider, at(25.0), &views, ("a", gone()), list);
        assert_eq!(why(&verdict), ("suspect", "unconfirmed"), "the case starts over");
    }
}

#[test]
fn the_list_must_be_complete_and_lack_the_node() {
    let failed = Listing::Failed(CloudError::new(ErrorKind::Timeout, "late"));
    let slow = match lacks(at(20.0), &["a"]) {
        Listing::Read { asked, instances, malformed, missing, .. } => {
            Listing::Read { asked, answered: at(50.1), instances, malformed, missing }
        }
        other => other,
    };
    for (list, expect) in [
        (None, "not_listed"),
        (Some(failed), "not_listed"),
        (Some(slow), "not_listed"),
        (Some(lacks(at(20.0), &["ready-1"])), "listed"),
    ] {
        let verdict = after_confirmation(&view("a"), gone(), list);
        assert_eq!(why(&verdict), ("suspect", expect));
    }
}

#[test]
fn answers_within_the_grace_period_do_not_count() {
    let age = |seconds| NodeView { age: Duration::from_secs_f64(seconds), ..view("a") };
    let mut decider = Decider::new();
    for (seconds, expect) in [(100.0, "newborn"), (119.0, "newborn"), (120.0, "unconfirmed")] {
        let views = among_ready(age(seconds));
        let verdict = decide(&mut decider, at(seconds), &views, ("a", gone()), None);
        assert_eq!(why(&verdict), ("suspect", expect), "{seconds}");
    }
    let views = among_ready(age(139.0));
    let list = Some(lacks(at(139.0), &["a"]));
    let verdict = decide(&mut decider, at(139.0), &views, ("a", gone()), list);
    assert_eq!(why(&verdict), ("suspect", "unconfirmed"), "earlier answers do not count");
}

#[test]
fn protection_ghosts_and_approval() {
    let ghost = NodeView { has_id: false, claim: Claim::Unclaimed, ..view("a") };
    let by_name = gone_by(ProofMethod::ByName);
    for (node, result, expect) in [
        (NodeView { protected: true, ..view("a") }, gone(), Verdict::Keep(Reason::Protected)),
        (
            NodeView { protected: true, approved: true, ..view("a") },
            gone(),
            Verdict::Keep(Reason::Protected),
        ),
        (ghost.clone(), by_name.clone(), Verdict::Keep(Reason::Ghost)),
    ] {
        let list = Some(lacks(at(20.0), &["a"]));
        assert_eq!(after_confirmation(&node, result, list), expect);
    }
    let views = among_ready(NodeView { uninitialised: true, ..ghost });
    let verdict = decide(
        &mut Decider::new(),
        at(0.0),
        &views,
        ("a", gone_by(ProofMethod::ProvidersWord)),
        None,
    );
    assert_eq!(verdict, Verdict::Keep(Reason::NoAnswer));
    let mut decider = Decider::new();
    decide(&mut decider, at(0.0), &views, ("a", by_name.clone()), None);
    let list = Some(lacks(at(20.0), &["a"]));
    assert_eq!(decide(&mut decider, at(20.0), &views, ("a", by_name), list), Verdict::Delete);
}

#[test]
fn an_approved_node_bypasses_the_breaker_but_needs_proof() {
    let all: Vec<String> =
        (0..10).map(|number| format!("ready-{number}")).chain(["a".to_owned()]).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    for (approved, expect) in [(false, Verdict::BreakerOpen), (true, Verdict::Delete)] {
        let node = NodeView { approved, ..view("a") };
        let first =
            decide(&mut Decider::new(), at(0.0), &among_ready(node.clone()), ("a", gone()), None);
        assert_eq!(why(&first), ("suspect", "unconfirmed"));
        assert_eq!(after_confirmation(&node, gone(), Some(lacks(at(20.0), &all))), expect);
    }
}

#[test]
fn the_oldest_case_is_the_first_that_is_still_open() {
    let views = among_ready(view("a")).into_iter().chain([view("b")]).collect::<Vec<_>>();
    let mut decider = Decider::new();
    decide(&mut decider, at(5.0), &views, ("a", running()), None);
    assert_eq!(decider.oldest_case(at(9.0)), None, "watched, without a case");
    decide(&mut decider, at(10.0), &views, ("a", gone()), None);
    decide(&mut decider, at(40.0), &views, ("b", gone()), None);
    assert_eq!(decider.oldest_case(at(100.0)), Some(Duration::from_secs(90)));
    decide(&mut decider, at(101.0), &views, ("a", running()), None);
    assert_eq!(decider.oldest_case(at(101.0)), Some(Duration::from_secs(61)), "a is closed");
    let all_ready = among_ready(ready("a"));
    decider.agenda(at(102.0), &all_ready, &Policy::default());
    assert_eq!(decider.oldest_case(at(102.0)), None);
}

#[test]
fn a_new_node_of_the_same_name_starts_without_a_case() {
    let mut decider = Decider::new();
    decide(&mut decider, at(0.0), &among_ready(view("a")), ("a", gone()), None);
    let again = NodeView { uid: "uid-2".into(), ..view("a") };
    let ended = decider.agenda(at(19.0), &among_ready(again), &Policy::default()).ended;
    assert_eq!(ended[0].verdict, Verdict::Keep(Reason::AnotherNode));
    assert_eq!(decider.counts(), Counts { watched: 1, ..Counts::default() });
}

#[test]
fn answers_received_while_the_breaker_is_open_are_discarded() {
    let views = among_ready(view("a"));
    let all: Vec<&str> = views.iter().map(|view| &*view.name).collect();
    let mut decider = Decider::new();
    decide(&mut decider, at(0.0), &views, ("a", gone()), None);
    let verdict =
        decide(&mut decider, at(20.0), &views, ("a", gone()), Some(lacks(at(20.0), &all)));
    assert_eq!(verdict, Verdict::BreakerOpen);
    let closing = Some(lacks(at(25.0), &["a"]));
    let verdict = decide(&mut decider, at(25.0), &views, ("a", gone()), closing);
    assert_eq!(why(&verdict), ("suspect", "unconfirmed"));
    let list = Some(lacks(at(45.0), &["a"]));
    assert_eq!(decide(&mut decider, at(45.0), &views, ("a", gone()), list), Verdict::Delete);
}

#[test]
fn one_answer_never_suffices_even_without_a_confirmation_period() {
    let policy = Policy { confirmation_period: Duration::ZERO, ..Policy::default() };
    let views = among_ready(view("a"));
    let mut decider = Decider::new();
    for (now, expect) in [(10.0, "suspect"), (10.1, "delete")] {
        decider.agenda(at(now), &views, &policy);
        let lookup = looked_up("a", now, gone());
        let answers = Answers {
            asked: at(now),
            lookups: vec![lookup],
            witnesses: Vec::new(),
            list: Some(lacks(at(now), &["a"])),
        };
        let decisions = decider.decide(at(now), &views, answers, &policy);
        assert_eq!(decisions[0].verdict.as_str(), expect, "at {now}");
    }
}

#[test]
fn a_list_from_before_the_case_does_not_confirm() {
    let views = among_ready(view("a"));
    let mut decider = Decider::new();
    decide(&mut decider, at(10.0), &views, ("a", gone()), None);
    let old = Some(lacks(at(9.0), &["a"]));
    let verdict = decide(&mut decider, at(31.0), &views, ("a", gone()), old);
    assert_eq!(why(&verdict), ("suspect", "not_listed"));
}
