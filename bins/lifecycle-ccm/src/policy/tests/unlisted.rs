//! Nodes that no list shows, clouds without a list, and machines that were replaced.

use super::{fleet::Fleet, *};

#[test]
fn nodes_that_no_provider_can_answer_for_do_not_hold_deletions() {
    for about in [Ok(Lookup::NotOurs("another region".to_owned())), error(ErrorKind::Invalid)] {
        let mut fleet = Fleet::of(50);
        (fleet.unlisted, fleet.about_unlisted) = ((40..50).collect(), about);
        fleet.ends = HashMap::from([(0, 0)]);
        fleet.run(300);
        println!(
            "10 of 50 belong to no provider: the gone node was deleted after {:?} s",
            fleet.deleted
        );
        assert!(fleet.deleted.first().is_some_and(|at| *at <= 40 + 20 + 60), "{:?}", fleet.deleted);
        assert_eq!(fleet.witnesses, 10, "each is looked up once");
    }
    // They are not Ready, too.
    let mut fleet = Fleet::of(10);
    fleet.unlisted = (4..10).collect();
    fleet.views[4..].iter_mut().for_each(|view| view.ready = false);
    fleet.ends = HashMap::from([(0, 0)]);
    fleet.run(300);
    assert_eq!(fleet.deleted, [60]);
}

#[test]
fn ready_nodes_that_exist_or_are_gone_still_hold_deletions() {
    for about in [running(), gone(), error(ErrorKind::Timeout)] {
        let mut fleet = Fleet::of(50);
        (fleet.unlisted, fleet.about_unlisted) = ((40..50).collect(), about);
        fleet.ends = HashMap::from([(0, 0)]);
        fleet.run(600);
        assert_eq!((fleet.deleted.len(), fleet.held.is_empty()), (0, false));
    }
}

/// In an outage that shows another project, the whole fleet is not looked up again and again.
#[test]
fn few_ready_nodes_are_looked_up() {
    let mut fleet = Fleet::of(500);
    (fleet.unlisted, fleet.about_unlisted) = ((0..500).collect(), gone());
    fleet.ends = HashMap::from([(0, 0)]);
    fleet.run(600);
    println!("500 Ready nodes are denied for 540 s: {} lookups of Ready nodes", fleet.witnesses);
    assert!(fleet.witnesses <= 19 * WITNESSES, "{}", fleet.witnesses);
}

#[test]
fn a_cloud_without_a_list_needs_three_answers_and_witnesses() {
    let mut fleet = Fleet::of(100);
    (fleet.lists, fleet.ends) = (false, HashMap::from([(0, 0)]));
    fleet.run(300);
    println!("without a list: deleted {:?} s after the kubelet's silence", fleet.deleted[0] - 40);
    assert_eq!((&*fleet.deleted, fleet.witnesses), (&[100][..], WITNESSES));
    // Many at once are held as with a list.
    let mut fleet = Fleet::of(50);
    fleet.lists = false;
    fleet.lose(30);
    fleet.run(2 * 3600);
    println!("without a list, 30 of 50: {:?}", fleet.rounds());
    assert_eq!((fleet.held.is_empty(), fleet.deleted.len()), (false, 30));
    assert!((900..=1200).contains(&fleet.deleted[0]));
}

/// Returns the decision about the node after a minute, with these witnesses.
fn with_witnesses(answers: &[LookupResult]) -> (Decision, Decider) {
    let node = view("a");
    let witnesses: Vec<NodeView> =
        (0..answers.len()).map(|number| ready(&format!("w-{number}"))).collect();
    let views = [vec![node], witnesses.clone()].concat();
    let (policy, mut decider) = (Policy::default(), Decider::new());
    decider.adapt_to(Abilities { lists: false, ..Abilities::default() });
    let mut last = None;
    for now in [0.0, 30.0, 60.0] {
        let agenda = decider.agenda(at(now), &views, &policy);
        assert_eq!(agenda.list, now > 30.0);
        let answered = |(view, result): (&NodeView, &LookupResult)| LookedUp {
            name: view.name.clone(),
            uid: view.uid.clone(),
            answered: at(now),
            result: result.clone(),
            heartbeat: Some(Heartbeat::default()),
        };
        let all = Answers {
            asked: at(now),
            lookups: vec![answered((&views[0], &gone()))],
            witnesses: witnesses.iter().zip(answers).map(answered).collect(),
            list: agenda.list.then_some(Listing::Witnesses),
        };
        last = decider.decide(at(now), &views, all, &policy).into_iter().next();
    }
    (last.unwrap(), decider)
}

#[test]
fn witnesses_must_be_found_and_none_gone() {
    let late = || error(ErrorKind::Timeout);
    for (answers, expect) in [
        (vec![running()], "delete"),
        (vec![running(), late()], "delete"),
        (vec![running(), gone()], "breaker_open"),
        (vec![gone()], "breaker_open"),
        (vec![], "breaker_open"),
        (vec![late(), late()], "suspect"),
    ] {
        let (decision, _) = with_witnesses(&answers);
        assert_eq!(decision.verdict.as_str(), expect, "{answers:?}");
    }
}

/// A person would look for a list that the cloud does not have.
#[test]
fn what_lookups_have_shown_is_not_called_a_list() {
    for (answers, expect) in [
        (vec![running(), gone()], "lacks 1 of 2 nodes that are Ready"),
        (vec![gone(), gone()], "shows none of 2 nodes: wrong project, region or credentials?"),
        (vec![], "shows none of 1 nodes: wrong project, region or credentials?"),
    ] {
        let (decision, decider) = with_witnesses(&answers);
        let Breaker::Open { cause, .. } = *decider.breaker() else { panic!("{answers:?}") };
        let expect = format!("the cloud, which is asked node by node, {expect}");
        assert_eq!(cause.to_string(), expect);
        let text = decision.message(at(60.0), &Policy::default(), None).text
            + &decision.evidence.to_string();
        assert!(!text.contains("list"), "{text}");
    }
    let (decision, _) = with_witnesses(&[running()]);
    let text = decision.evidence.to_string();
    assert!(text.ends_with("; lookups find the instances of 1 Ready nodes"), "{text}");
}

#[test]
fn a_providers_own_word_needs_three_answers() {
    let word = |request_id: Option<&str>| {
        Ok(Lookup::Gone(AbsenceProof {
            method: ProofMethod::ProvidersWord,
            evidence: "no".to_owned(),
            request_id: request_id.map(str::to_owned),
            kept: None,
        }))
    };
    for (request, times) in [(None, [0.0, 20.0, 40.0, 60.0]), (Some("r"), [0.0, 5.0, 10.0, 20.0])] {
        let (views, mut decider) = (among_ready(view("a")), Decider::new());
        for now in times {
            let list = Some(lacks(at(now), &["a"]));
            let verdict = decide(&mut decider, at(now), &views, ("a", word(request)), list);
            let expect = if now >= times[3] { "delete" } else { "suspect" };
            assert_eq!(verdict.as_str(), expect, "{request:?} at {now}");
        }
    }
}

#[test]
fn a_node_without_a_provider_id_stays_where_there_is_no_list() {
    let ghost =
        NodeView { claim: Claim::Unclaimed, has_id: false, uninitialised: true, ..view("a") };
    let (views, mut decider) = (among_ready(ghost), Decider::new());
    decider.adapt_to(Abilities { lists: false, ..Abilities::default() });
    for now in [0.0, 30.0, 60.0, 90.0] {
        let by_name = gone_by(ProofMethod::ByName);
        let verdict =
            decide(&mut decider, at(now), &views, ("a", by_name), Some(Listing::Witnesses));
        assert_eq!(verdict.as_str(), "suspect", "at {now}");
    }
}

#[test]
fn a_ready_node_on_a_replaced_machine_goes_if_that_is_wanted() {
    for (replaced, policy, expect) in [
        (true, Replaced::Report, [("suspect", "unconfirmed"), ("keep", "replaced")]),
        (true, Replaced::Delete, [("suspect", "unconfirmed"), ("delete", "")]),
        (false, Replaced::Delete, [("keep", "ready"), ("keep", "ready")]),
    ] {
        let views = among_ready(NodeView { replaced, ..ready("a") });
        let policy = Policy { replaced: policy, ..Policy::default() };
        let mut decider = Decider::new();
        let verdicts = [0.0, 30.0].map(|now| {
            let agenda = decider.agenda(at(now), &views, &policy);
            assert_eq!(agenda.look_up.len(), usize::from(replaced), "others are not looked up");
            assert!(
                agenda.heartbeats.is_empty(),
                "the kubelet of the new machine renews its Lease"
            );
            let (name, uid, answered) = ("a".into(), "uid-a".into(), at(now));
            let lookup = LookedUp { name, uid, answered, result: gone(), heartbeat: None };
            let list = agenda.list.then(|| lacks(at(now), &["a"]));
            let (lookups, witnesses) = (vec![lookup], Vec::new());
            let answers = Answers { asked: at(now), lookups, witnesses, list };
            why(&decider.decide(at(now), &views, answers, &policy)[0].verdict)
        });
        assert_eq!(verdicts, expect, "{:?}", policy.replaced);
        assert_eq!(decider.counts().replaced, usize::from(replaced));
    }
}

#[test]
fn a_held_node_on_a_replaced_machine_that_stops_being_ready_is_looked_up_at_once() {
    let node = NodeView { replaced: true, ..ready("a") };
    let policy =
        Policy { replaced: Replaced::Delete, budget: Limit::Count(0), ..Policy::default() };
    let mut decider = Decider::new();
    for now in [0.0, 31.0] {
        let views = among_ready(node.clone());
        decider.agenda(at(now), &views, &policy);
        let (name, uid, answered) = ("a".into(), "uid-a".into(), at(now));
        let lookup = LookedUp { name, uid, answered, result: gone(), heartbeat: None };
        let (lookups, witnesses) = (vec![lookup], Vec::new());
        let answers =
            Answers { asked: at(now), lookups, witnesses, list: Some(lacks(at(now), &["a"])) };
        let verdict = decider.decide(at(now), &views, answers, &policy)[0].verdict;
        let expect = if now > 30.0 { "over_budget" } else { "suspect" };
        assert_eq!(verdict.as_str(), expect);
    }
    assert!(decider.agenda(at(32.0), &among_ready(node.clone()), &policy).is_empty(), "held");
    // The new machine is silent, too: the proof of life begins now.
    let views = among_ready(NodeView { ready: false, ..node });
    let agenda = decider.agenda(at(33.0), &views, &policy);
    assert_eq!((agenda.look_up.len(), agenda.heartbeats.len()), (1, 1));
}
