use super::*;

fn names(agenda: &Agenda) -> Vec<&str> {
    agenda.look_up.iter().map(|name| &**name).collect()
}

#[test]
fn no_node_is_looked_up_while_all_are_ready() {
    let agenda = Decider::new().agenda(at(0.0), &[ready("a"), ready("b")], &Policy::default());
    assert_eq!(agenda, Agenda::default());
}

#[test]
fn a_node_is_due_at_once_and_then_every_period() {
    let (views, policy) = (among_ready(view("a")), Policy::default());
    let mut decider = Decider::new();
    decide(&mut decider, at(10.0), &views, ("a", running()), None);
    let next = decider.agenda(at(14.9), &views, &policy);
    assert_eq!((names(&next), next.next), (vec![], Some(at(15.0))));
    let due = decider.agenda(at(15.0), &views, &policy);
    assert_eq!((names(&due), due.list), (vec!["a"], false));
}

/// Answers take 0.1 s each, so lookups every 5 s drift until one would come just before the
/// period ends, without effect.
#[test]
fn a_lookup_is_delayed_until_it_can_confirm() {
    let views = among_ready(view("a"));
    let mut decider = Decider::new();
    let mut looks = Vec::new();
    for now in [0.4, 5.3, 10.2, 15.1] {
        decide(&mut decider, at(now), &views, ("a", gone()), None);
        looks.push(decider.agenda(at(now), &views, &Policy::default()).next);
    }
    let expect = [at(5.4), at(10.3), at(15.2), at(20.4)].map(Some);
    assert_eq!(looks, expect);
}

#[test]
fn nodes_that_are_due_soon_join_the_batch() {
    let views: Vec<NodeView> = ["a", "b", "c"].map(view).into();
    let mut decider = Decider::new();
    for (name, looked) in [("a", 0.0), ("b", 2.5), ("c", 2.6)] {
        decide(&mut decider, at(looked), &views, (name, running()), None);
    }
    // Half a period is 2.5 s: b is due at 7.5, c at 7.6.
    let agenda = decider.agenda(at(5.0), &views, &Policy::default());
    assert_eq!((names(&agenda), agenda.next), (vec!["a", "b"], Some(at(7.6))));
}

#[test]
fn a_pass_is_bounded_and_cases_go_first() {
    let mut views: Vec<NodeView> =
        (0..1500).map(|number| view(&format!("n-{number:04}"))).collect();
    views.push(view("z-case"));
    let mut decider = Decider::new();
    decide(&mut decider, at(1.0), &views, ("z-case", gone()), None);
    decide(&mut decider, at(1.0), &views, ("n-0000", running()), None);
    let agenda = decider.agenda(at(6.0), &views, &Policy::default());
    let names = names(&agenda);
    assert_eq!((names.len(), names[0]), (LOOKUPS_PER_PASS, "z-case"));
    assert!(!names.contains(&"n-0000"), "nodes that were never looked up go first");
    for (most, expect) in [(0, 1), (1, 1), (40, 40), (1_000_000, LOOKUPS_PER_PASS)] {
        decider.adapt_to(Abilities { most_lookups: most, ..Abilities::default() });
        let agenda = decider.agenda(at(6.0), &views, &Policy::default());
        assert_eq!((agenda.look_up.len(), &*agenda.look_up[0]), (expect, "z-case"), "{most}");
    }
}

#[test]
fn the_fleet_is_listed_only_to_confirm_and_while_the_breaker_is_open() {
    let (views, policy) = (among_ready(view("a")), Policy::default());
    let mut decider = Decider::new();
    decide(&mut decider, at(0.0), &views, ("a", gone()), None);
    assert!(!decider.agenda(at(19.9), &views, &policy).list);
    assert!(decider.agenda(at(20.0), &views, &policy).list);
    let all: Vec<&str> = views.iter().map(|view| &*view.name).collect();
    let list = Some(lacks(at(20.0), &all));
    decide(&mut decider, at(20.0), &views, ("a", gone()), list);
    assert!(decider.breaker().is_open());
    // All nodes are Ready again, and the breaker still needs a list.
    let well: Vec<NodeView> = views.iter().map(|view| ready(&view.name)).collect();
    let agenda = decider.agenda(at(49.9), &well, &policy);
    assert_eq!((agenda.list, agenda.next), (false, Some(at(50.0))));
    let agenda = decider.agenda(at(50.0), &well, &policy);
    assert_eq!((agenda.list, agenda.look_up.len()), (true, 0));
}

#[test]
fn cases_do_not_displace_other_nodes() {
    let nodes: Vec<NodeView> = (0..3000).map(|number| view(&format!("n-{number:04}"))).collect();
    let mut decider = Decider::new();
    let policy = Policy::default();
    decider.agenda(at(1.0), &nodes, &policy);
    let lookups = nodes[..2000].iter().map(|node| LookedUp {
        name: Arc::clone(&node.name),
        uid: node.uid.clone(),
        answered: at(1.0),
        result: gone(),
        heartbeat: Some(Heartbeat::default()),
    });
    let answers =
        Answers { asked: at(1.0), lookups: lookups.collect(), witnesses: Vec::new(), list: None };
    decider.decide(at(1.0), &nodes, answers, &policy);
    let agenda = decider.agenda(at(6.0), &nodes, &policy);
    let names = names(&agenda);
    let cases = names.iter().filter(|name| **name < "n-2000").count();
    assert_eq!((names.len(), cases), (1000, 500));
    assert!(names[0] < "n-2000", "cases go first");
}

#[test]
fn held_nodes_are_looked_up_together_and_at_once_when_annotated() {
    let all = ["a", "b", "c", "d"].map(view).to_vec();
    let (mut decider, policy) = (Decider::new(), Policy::default());
    for (name, asked) in [("a", 0.0), ("b", 3.0)] {
        decide(&mut decider, at(asked), &all, (name, gone()), None);
    }
    for (name, asked) in [("a", 31.0), ("b", 34.0)] {
        let list = Some(lacks(at(asked), &["a", "b", "c", "d"]));
        let verdict = decide(&mut decider, at(asked), &all, (name, gone()), list);
        assert_eq!(verdict, Verdict::BreakerOpen);
    }
    for name in ["c", "d"] {
        decide(&mut decider, at(58.0), &all, (name, running()), None);
    }
    // Six periods are 30 s.
    assert_eq!(names(&decider.agenda(at(57.4), &all, &policy)), Vec::<&str>::new());
    assert_eq!(names(&decider.agenda(at(60.0), &all, &policy)), ["a", "b"]);
    let mut approved = all.clone();
    approved[1].approved = true;
    assert_eq!(names(&decider.agenda(at(50.0), &approved, &policy)), ["b"]);
}

#[test]
fn nodes_that_may_not_be_deleted_are_looked_up_rarely() {
    let never = Policy { ghosts: Ghosts::Never, ..Policy::default() };
    let nameless = |uninitialised| NodeView {
        claim: Claim::Unclaimed,
        has_id: false,
        uninitialised,
        ..view("a")
    };
    let protected = NodeView { protected: true, ..view("a") };
    for (node, policy, pause) in [
        (nameless(false), Policy::default(), 30.0),
        (nameless(true), never.clone(), 30.0),
        (nameless(true), Policy::default(), 5.0),
        (view("a"), never, 5.0),
        (protected, Policy::default(), 5.0),
    ] {
        let views = among_ready(node.clone());
        let mut decider = Decider::new();
        assert_eq!(names(&decider.agenda(at(60.0), &views, &policy)), ["a"], "at once");
        decide(&mut decider, at(60.0), &views, ("a", running()), None);
        let next = decider.agenda(at(60.1), &views, &policy);
        assert_eq!((names(&next), next.next), (vec![], Some(at(60.0 + pause))), "{node:?}");
        assert_eq!(names(&decider.agenda(at(60.0 + pause), &views, &policy)), ["a"], "{node:?}");
    }
    // It may be deleted from now on, so it is due with the others.
    let mut decider = Decider::new();
    let before = among_ready(nameless(false));
    decide(&mut decider, at(60.0), &before, ("a", running()), None);
    let after = among_ready(nameless(true));
    assert_eq!(names(&decider.agenda(at(65.0), &after, &Policy::default())), ["a"]);
}

#[test]
fn an_answer_by_name_is_no_evidence_about_a_later_id() {
    let ghost =
        NodeView { claim: Claim::Unclaimed, has_id: false, uninitialised: true, ..view("a") };
    let (before, after) = (among_ready(ghost), among_ready(view("a")));
    let mut decider = Decider::new();
    decide(&mut decider, at(0.0), &before, ("a", gone_by(ProofMethod::ByName)), None);
    let list = Some(lacks(at(20.0), &["a"]));
    let verdict = decide(&mut decider, at(20.0), &after, ("a", gone()), list);
    assert_eq!(why(&verdict), ("suspect", "unconfirmed"));
}

#[test]
fn a_node_is_deleted_once_and_an_uncertain_result_keeps_its_budget() {
    let (views, policy) = (among_ready(view("a")), Policy::default());
    for (outcome, used, due) in
        [(DeletionOutcome::Done, 1, vec![]), (DeletionOutcome::Uncertain, 1, vec!["a"])]
    {
        let mut decider = Decider::new();
        decide(&mut decider, at(0.0), &views, ("a", gone()), None);
        let list = Some(lacks(at(20.0), &["a"]));
        assert_eq!(decide(&mut decider, at(20.0), &views, ("a", gone()), list), Verdict::Delete);
        decider.deleted(at(20.0), &decision("a"), outcome, &policy);
        assert_eq!(decider.budget(at(20.0), &views, &policy).used, used);
        assert_eq!(names(&decider.agenda(at(30.0), &views, &policy)), due, "{outcome:?}");
    }
}

#[test]
fn a_shorter_period_applies_at_once() {
    let views = among_ready(view("a"));
    let mut decider = Decider::new();
    decide(&mut decider, at(0.0), &views, ("a", running()), None);
    let shorter = Policy { monitor_period: Duration::from_secs(1), ..Policy::default() };
    assert_eq!(names(&decider.agenda(at(1.0), &views, &shorter)), ["a"]);
}

#[test]
fn a_refused_deletion_is_retried_after_the_others() {
    let verdicts = after_deletion(DeletionOutcome::Refused);
    assert_eq!(verdicts, [("b".into(), "delete"), ("a".into(), "over_budget")]);
}

/// Otherwise the plan in observe mode would name another node each time.
#[test]
fn in_observe_mode_a_deletion_keeps_its_place() {
    let verdicts = after_deletion(DeletionOutcome::Observed);
    assert_eq!(verdicts, [("a".into(), "delete"), ("b".into(), "over_budget")]);
}

/// Returns the decisions about two nodes with budget for one, when they are looked up again after
/// the deletion of the first ended with this result.
fn after_deletion(outcome: DeletionOutcome) -> Vec<(Arc<str>, &'static str)> {
    let policy = Policy { budget: Limit::Count(1), ..Policy::default() };
    let views: Vec<NodeView> = among_ready(view("a")).into_iter().chain([view("b")]).collect();
    let mut decider = Decider::new();
    let all = |now: f64| Answers {
        asked: at(now),
        lookups: ["a", "b"]
            .map(|name| LookedUp {
                name: name.into(),
                uid: format!("uid-{name}").into(),
                answered: at(now),
                result: gone(),
                heartbeat: Some(Heartbeat::default()),
            })
            .into(),
        witnesses: Vec::new(),
        list: Some(lacks(at(now), &["a", "b"])),
    };
    let judge = |decider: &mut Decider, now: f64| -> Vec<(Arc<str>, &'static str)> {
        decider.agenda(at(now), &views, &policy);
        let decisions = decider.decide(at(now), &views, all(now), &policy);
        decisions
            .iter()
            .map(|decision| (decision.name.clone(), decision.verdict.as_str()))
            .collect()
    };
    judge(&mut decider, 0.0);
    let verdicts = judge(&mut decider, 20.0);
    assert_eq!(verdicts, [("a".into(), "delete"), ("b".into(), "over_budget")]);
    decider.deleted(at(20.0), &decision("a"), outcome, &policy);
    let agenda = decider.agenda(at(25.0), &views, &policy);
    assert!(agenda.is_empty(), "neither is looked up in each pass: {agenda:?}");
    judge(&mut decider, 30.0)
}

#[test]
fn a_failed_deletion_is_due_at_once_and_releases_its_budget() {
    let (views, policy) = (among_ready(view("a")), Policy::default());
    let mut decider = Decider::new();
    decide(&mut decider, at(0.0), &views, ("a", gone()), None);
    let list = Some(lacks(at(20.0), &["a"]));
    assert_eq!(decide(&mut decider, at(20.0), &views, ("a", gone()), list), Verdict::Delete);
    assert_eq!(decider.budget(at(20.0), &views, &policy).used, 1);
    decider.deleted(at(20.0), &decision("a"), DeletionOutcome::NotDone, &policy);
    assert_eq!(decider.budget(at(20.0), &views, &policy).used, 0);
    let agenda = decider.agenda(at(20.5), &views, &policy);
    assert_eq!((names(&agenda), agenda.list), (vec!["a"], true));
}

/// It must not wait for a node that is suspected: with the wrong project nothing else shows it.
#[test]
fn an_observer_asks_for_one_list_that_can_be_read() {
    let (policy, views) = (Policy::default(), vec![ready("a"), ready("b")]);
    let mut leader = Decider::new();
    assert!(leader.agenda(at(0.0), &views, &policy).is_empty());
    let mut observer = Decider::new();
    observer.adapt_to(Abilities { lists_once: true, ..Abilities::default() });
    let mut asks_at = |seconds: f64, answer: Option<Listing>| {
        let asks = observer.agenda(at(seconds), &views, &policy).list;
        if let Some(list) = answer.filter(|_| asks) {
            let (asked, list) = (at(seconds), Some(list));
            let answers = Answers { asked, lookups: Vec::new(), witnesses: Vec::new(), list };
            observer.decide(at(seconds), &views, answers, &policy);
        }
        asks
    };
    let failed = Listing::Failed(CloudError::new(ErrorKind::Timeout, "late"));
    assert!(asks_at(0.0, Some(failed)));
    assert!(!asks_at(5.0, None), "not at once again");
    assert!(asks_at(60.0, Some(lacks(at(60.0), &[]))));
    assert!(!asks_at(600.0, None), "one is enough");
}
