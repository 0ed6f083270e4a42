use super::*;

fn names(agenda: &Agenda) -> Vec<&str> {
    agenda.look_up.iter().map(|name| &**name).collect()
}

#[test]
fn nobody_is_looked_at_while_all_are_ready() {
    let agenda = Court::new().agenda(at(0.0), &[ready("a"), ready("b")], &Policy::default());
    assert_eq!(agenda, Agenda::default());
}

#[test]
fn a_node_is_due_at_once_and_then_every_period() {
    let (subjects, policy) = (among_ready(subject("a")), Policy::default());
    let mut court = Court::new();
    hear(&mut court, at(10.0), &subjects, ("a", running()), None);
    let next = court.agenda(at(14.9), &subjects, &policy);
    assert_eq!((names(&next), next.next), (vec![], Some(at(15.0))));
    let due = court.agenda(at(15.0), &subjects, &policy);
    assert_eq!((names(&due), due.list), (vec!["a"], false));
}

/// Answers take 0.1 s each, so the looks of every 5 s drift until one would come just
/// before the period is over, to no avail.
#[test]
fn the_look_that_can_confirm_is_not_missed_by_a_moment() {
    let subjects = among_ready(subject("a"));
    let mut court = Court::new();
    let mut looks = Vec::new();
    for now in [0.4, 5.3, 10.2, 15.1] {
        hear(&mut court, at(now), &subjects, ("a", gone()), None);
        looks.push(court.agenda(at(now), &subjects, &Policy::default()).next);
    }
    let expect = [at(5.4), at(10.3), at(15.2), at(20.4)].map(Some);
    assert_eq!(looks, expect);
}

#[test]
fn those_who_are_due_soon_come_along() {
    let subjects: Vec<Subject> = ["a", "b", "c"].map(subject).into();
    let mut court = Court::new();
    for (name, looked) in [("a", 0.0), ("b", 2.5), ("c", 2.6)] {
        hear(&mut court, at(looked), &subjects, (name, running()), None);
    }
    // Half a period is 2.5 s: b is due at 7.5, c at 7.6.
    let agenda = court.agenda(at(5.0), &subjects, &Policy::default());
    assert_eq!((names(&agenda), agenda.next), (vec!["a", "b"], Some(at(7.6))));
}

#[test]
fn a_pass_is_bounded_and_cases_go_first() {
    let mut subjects: Vec<Subject> =
        (0..1500).map(|number| subject(&format!("n-{number:04}"))).collect();
    subjects.push(subject("z-case"));
    let mut court = Court::new();
    hear(&mut court, at(1.0), &subjects, ("z-case", gone()), None);
    hear(&mut court, at(1.0), &subjects, ("n-0000", running()), None);
    let agenda = court.agenda(at(6.0), &subjects, &Policy::default());
    let names = names(&agenda);
    assert_eq!((names.len(), names[0]), (LOOKUPS_PER_PASS, "z-case"));
    assert!(!names.contains(&"n-0000"), "those never looked at go before it");
}

#[test]
fn the_fleet_is_listed_only_for_a_conviction_and_while_the_breaker_is_open() {
    let (subjects, policy) = (among_ready(subject("a")), Policy::default());
    let mut court = Court::new();
    hear(&mut court, at(0.0), &subjects, ("a", gone()), None);
    assert!(!court.agenda(at(19.9), &subjects, &policy).list);
    assert!(court.agenda(at(20.0), &subjects, &policy).list);
    let all: Vec<&str> = subjects.iter().map(|subject| &*subject.name).collect();
    let list = Some(lacks(at(20.0), &all));
    hear(&mut court, at(20.0), &subjects, ("a", gone()), list);
    assert!(court.breaker().is_open());
    // Everybody is Ready again, and still the breaker wants to know.
    let well: Vec<Subject> = subjects.iter().map(|subject| ready(&subject.name)).collect();
    let agenda = court.agenda(at(49.9), &well, &policy);
    assert_eq!((agenda.list, agenda.next), (false, Some(at(50.0))));
    let agenda = court.agenda(at(50.0), &well, &policy);
    assert_eq!((agenda.list, agenda.look_up.len()), (true, 0));
}

#[test]
fn cases_do_not_crowd_out_the_others() {
    let nodes: Vec<Subject> = (0..3000).map(|number| subject(&format!("n-{number:04}"))).collect();
    let mut court = Court::new();
    let policy = Policy::default();
    court.agenda(at(1.0), &nodes, &policy);
    let lookups = nodes[..2000].iter().map(|node| LookedUp {
        name: Arc::clone(&node.name),
        uid: node.uid.clone(),
        testimony: gone(),
    });
    let hearing =
        Hearing { asked: at(1.0), answered: at(1.0), lookups: lookups.collect(), list: None };
    court.hear(at(1.0), &nodes, hearing, &policy);
    let agenda = court.agenda(at(6.0), &nodes, &policy);
    let names = names(&agenda);
    let cases = names.iter().filter(|name| **name < "n-2000").count();
    assert_eq!((names.len(), cases), (1000, 500));
    assert!(names[0] < "n-2000", "cases go first");
}

#[test]
fn those_who_are_held_are_looked_at_together_and_at_once_when_the_operator_speaks() {
    let all = ["a", "b", "c", "d"].map(subject).to_vec();
    let (mut court, policy) = (Court::new(), Policy::default());
    for (name, heard) in [("a", 0.0), ("b", 3.0)] {
        hear(&mut court, at(heard), &all, (name, gone()), None);
    }
    for (name, heard) in [("a", 31.0), ("b", 34.0)] {
        let list = Some(lacks(at(heard), &["a", "b", "c", "d"]));
        let verdict = hear(&mut court, at(heard), &all, (name, gone()), list);
        assert_eq!(verdict, Verdict::BreakerOpen);
    }
    for name in ["c", "d"] {
        hear(&mut court, at(58.0), &all, (name, running()), None);
    }
    // Six periods are 30 s.
    assert_eq!(names(&court.agenda(at(57.4), &all, &policy)), Vec::<&str>::new());
    assert_eq!(names(&court.agenda(at(60.0), &all, &policy)), ["a", "b"]);
    let mut approved = all.clone();
    approved[1].approved = true;
    assert_eq!(names(&court.agenda(at(50.0), &approved, &policy)), ["b"]);
}

#[test]
fn who_cannot_be_judged_is_looked_at_seldom() {
    let never = Policy { ghosts: Ghosts::Never, ..Policy::default() };
    let nameless = |uninitialised| Subject {
        claim: Claim::Unclaimed,
        has_id: false,
        uninitialised,
        ..subject("a")
    };
    let protected = Subject { protected: true, ..subject("a") };
    for (node, policy, pause) in [
        (nameless(false), Policy::default(), 30.0),
        (nameless(true), never.clone(), 30.0),
        (nameless(true), Policy::default(), 5.0),
        (subject("a"), never, 5.0),
        (protected, Policy::default(), 5.0),
    ] {
        let subjects = among_ready(node.clone());
        let mut court = Court::new();
        assert_eq!(names(&court.agenda(at(60.0), &subjects, &policy)), ["a"], "at once");
        hear(&mut court, at(60.0), &subjects, ("a", running()), None);
        let next = court.agenda(at(60.1), &subjects, &policy);
        assert_eq!((names(&next), next.next), (vec![], Some(at(60.0 + pause))), "{node:?}");
        assert_eq!(names(&court.agenda(at(60.0 + pause), &subjects, &policy)), ["a"], "{node:?}");
    }
    // It can be judged from now on, so it is due when the others are.
    let mut court = Court::new();
    let before = among_ready(nameless(false));
    hear(&mut court, at(60.0), &before, ("a", running()), None);
    let after = among_ready(nameless(true));
    assert_eq!(names(&court.agenda(at(65.0), &after, &Policy::default())), ["a"]);
}

#[test]
fn an_answer_by_name_is_none_about_an_id_that_was_set_later() {
    let ghost =
        Subject { claim: Claim::Unclaimed, has_id: false, uninitialised: true, ..subject("a") };
    let (before, after) = (among_ready(ghost), among_ready(subject("a")));
    let mut court = Court::new();
    hear(&mut court, at(0.0), &before, ("a", gone_by(ProofMethod::ByName)), None);
    let list = Some(lacks(at(20.0), &["a"]));
    let verdict = hear(&mut court, at(20.0), &after, ("a", gone()), list);
    assert_eq!(why(&verdict), ("suspect", "unconfirmed"));
}

#[test]
fn a_deletion_is_carried_out_once_and_what_is_uncertain_stays_paid() {
    let (subjects, policy) = (among_ready(subject("a")), Policy::default());
    for (outcome, used, due) in [(Deletion::Done, 1, vec![]), (Deletion::Uncertain, 1, vec!["a"])] {
        let mut court = Court::new();
        hear(&mut court, at(0.0), &subjects, ("a", gone()), None);
        let list = Some(lacks(at(20.0), &["a"]));
        assert_eq!(hear(&mut court, at(20.0), &subjects, ("a", gone()), list), Verdict::Delete);
        court.deleted(at(20.0), &ruling("a"), outcome, &policy);
        assert_eq!(court.budget(at(20.0), &subjects, &policy).used, used);
        assert_eq!(names(&court.agenda(at(30.0), &subjects, &policy)), due, "{outcome:?}");
    }
}

#[test]
fn a_shorter_period_counts_for_those_who_wait_already() {
    let subjects = among_ready(subject("a"));
    let mut court = Court::new();
    hear(&mut court, at(0.0), &subjects, ("a", running()), None);
    let shorter = Policy { monitor_period: Duration::from_secs(1), ..Policy::default() };
    assert_eq!(names(&court.agenda(at(1.0), &subjects, &shorter)), ["a"]);
}

#[test]
fn a_refused_deletion_waits_behind_the_others() {
    let policy = Policy { budget: Limit::Count(1), ..Policy::default() };
    let subjects: Vec<Subject> =
        among_ready(subject("a")).into_iter().chain([subject("b")]).collect();
    let mut court = Court::new();
    let all = |now: f64| Hearing {
        asked: at(now),
        answered: at(now),
        lookups: ["a", "b"]
            .map(|name| LookedUp {
                name: name.into(),
                uid: format!("uid-{name}").into(),
                testimony: gone(),
            })
            .into(),
        list: Some(lacks(at(now), &["a", "b"])),
    };
    let convicted = |court: &mut Court, now: f64| -> Vec<(Arc<str>, &str)> {
        court.agenda(at(now), &subjects, &policy);
        let rulings = court.hear(at(now), &subjects, all(now), &policy);
        rulings.iter().map(|ruling| (ruling.name.clone(), ruling.verdict.as_str())).collect()
    };
    convicted(&mut court, 0.0);
    let said = convicted(&mut court, 20.0);
    assert_eq!(said, [("a".into(), "delete"), ("b".into(), "over_budget")]);
    court.deleted(at(20.0), &ruling("a"), Deletion::Refused, &policy);
    let agenda = court.agenda(at(25.0), &subjects, &policy);
    assert!(agenda.is_empty(), "neither is asked about in each pass: {agenda:?}");
    let said = convicted(&mut court, 30.0);
    assert_eq!(said, [("b".into(), "delete"), ("a".into(), "over_budget")]);
}

#[test]
fn a_deletion_that_did_not_happen_is_due_at_once_and_costs_no_budget() {
    let (subjects, policy) = (among_ready(subject("a")), Policy::default());
    let mut court = Court::new();
    hear(&mut court, at(0.0), &subjects, ("a", gone()), None);
    let list = Some(lacks(at(20.0), &["a"]));
    assert_eq!(hear(&mut court, at(20.0), &subjects, ("a", gone()), list), Verdict::Delete);
    assert_eq!(court.budget(at(20.0), &subjects, &policy).used, 1);
    court.deleted(at(20.0), &ruling("a"), Deletion::NotDone, &policy);
    assert_eq!(court.budget(at(20.0), &subjects, &policy).used, 0);
    let agenda = court.agenda(at(20.5), &subjects, &policy);
    assert_eq!((names(&agenda), agenda.list), (vec!["a"], true));
}
