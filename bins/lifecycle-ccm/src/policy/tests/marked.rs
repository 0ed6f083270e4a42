//! Nodes that an autoscaler removes, and absences that are proven one by one.

use super::{fleet::Fleet, *};

#[test]
fn nodes_marked_for_scale_down_go_without_budget() {
    for (size, lost) in [(50, 30), (50, 50), (3, 3)] {
        let mut fleet = Fleet::of(size);
        fleet.views[..lost].iter_mut().for_each(|view| view.marked = true);
        fleet.lose(lost);
        fleet.run(300);
        let last = *fleet.deleted.last().unwrap();
        println!("{lost} of {size} marked, gone within a minute: the last deleted after {last} s");
        assert_eq!((fleet.deleted.len(), &*fleet.held), (lost, &[][..]));
        // The last instance ends after 58 s, and its node is silent 40 s later.
        assert!(last <= 59 + 20 + 60, "{last}");
    }
}

#[test]
fn the_same_nodes_without_a_mark_are_held_until_each_is_proven() {
    let mut fleet = Fleet::of(50);
    fleet.lose(30);
    fleet.run(2 * 3600);
    let (first, last) = (fleet.deleted[0], *fleet.deleted.last().unwrap());
    println!("30 of 50: the first after {first} s, the last after {last} s, {:?}", fleet.rounds());
    assert!(!fleet.held.is_empty());
    assert!((900..=1080).contains(&first), "{first}");
    assert_eq!(fleet.deleted.len(), 30);
    assert_eq!(fleet.rounds()[..3], [5, 5, 4]);
    assert!(last <= 90 * 60, "{last}");
}

#[test]
fn a_fleet_that_goes_without_a_mark_is_held() {
    let mut fleet = Fleet::of(50);
    fleet.lose(50);
    fleet.run(3 * 3600);
    assert_eq!((fleet.deleted.len(), fleet.held.is_empty()), (0, false));
}

/// Another project's nodes are left out of what a list should show, also those that the policy
/// does not judge.
#[test]
fn protected_nodes_of_another_project_do_not_hold_a_scale_down_to_zero() {
    let mut fleet = Fleet::of(10);
    fleet.views[..6].iter_mut().for_each(|view| view.marked = true);
    fleet.views[6..].iter_mut().for_each(|view| view.protected = true);
    fleet.unlisted = (6..10).collect();
    fleet.lose(6);
    fleet.run(300);
    assert_eq!(fleet.deleted.len(), 6, "held at {:?}", fleet.held);
    assert!(fleet.deleted.iter().all(|at| *at <= 59 + 20 + 60), "{:?}", fleet.deleted);
    // If they are ours, they are missing in a list of another project.
    let mut fleet = fleet.again();
    fleet.about_unlisted = running();
    fleet.run(300);
    assert_eq!((fleet.deleted.len(), fleet.held.is_empty()), (0, false));
}

#[test]
fn a_mark_does_not_pass_an_open_breaker() {
    let views = among_ready(NodeView { marked: true, ..view("a") });
    let all: Vec<&str> = views.iter().map(|view| &*view.name).collect();
    let mut decider = Decider::new();
    decide(&mut decider, at(0.0), &views, ("a", gone()), None);
    let verdict =
        decide(&mut decider, at(20.0), &views, ("a", gone()), Some(lacks(at(20.0), &all)));
    assert_eq!(verdict, Verdict::BreakerOpen);
}

#[test]
fn absences_are_not_proven_while_the_list_lacks_the_ready_nodes() {
    let mut fleet = Fleet::of(50);
    fleet.lose(30);
    // The lookups find these, the lists do not show them.
    fleet.unlisted = (40..50).collect();
    fleet.about_unlisted = running();
    fleet.run(2 * 3600);
    assert_eq!(fleet.deleted, [0; 0]);
}
