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
fn a_deletion_that_did_not_happen_is_due_at_once_and_costs_no_budget() {
    let (subjects, policy) = (among_ready(subject("a")), Policy::default());
    let mut court = Court::new();
    hear(&mut court, at(0.0), &subjects, ("a", gone()), None);
    let list = Some(lacks(at(20.0), &["a"]));
    assert_eq!(hear(&mut court, at(20.0), &subjects, ("a", gone()), list), Verdict::Delete);
    assert_eq!(court.budget(at(20.0), &subjects, &policy).used, 1);
    court.released("a", "uid-a");
    assert_eq!(court.budget(at(20.0), &subjects, &policy).used, 0);
    let agenda = court.agenda(at(20.5), &subjects, &policy);
    assert_eq!((names(&agenda), agenda.list), (vec!["a"], true));
}
