//! The charge of a deletion.

use super::*;

/// Returns a decider that has just decided to delete node a.
fn decided(views: &[NodeView]) -> Decider {
    let mut decider = Decider::new();
    decide(&mut decider, at(0.0), views, ("a", gone()), None);
    let list = Some(lacks(at(20.0), &["a"]));
    assert_eq!(decide(&mut decider, at(20.0), views, ("a", gone()), list), Verdict::Delete);
    decider
}

/// The node may be gone although the informer still shows it.
#[test]
fn a_deletion_whose_answer_was_lost_costs_budget_whatever_the_next_one_says() {
    let (views, policy) = (among_ready(view("a")), Policy::default());
    for next in [DeletionOutcome::NotDone, DeletionOutcome::Refused, DeletionOutcome::Observed] {
        let mut decider = decided(&views);
        decider.deleted(at(20.0), &decision("a"), DeletionOutcome::Uncertain, &policy);
        let list = Some(lacks(at(21.0), &["a"]));
        assert_eq!(decide(&mut decider, at(21.0), &views, ("a", gone()), list), Verdict::Delete);
        decider.deleted(at(22.0), &decision("a"), next, &policy);
        assert_eq!(decider.budget(at(22.0), &views, &policy).used, 1, "{next:?}");
    }
}

/// A queue of slow deletions must not leave the window before its last one was made long enough ago.
#[test]
fn the_window_counts_from_the_deletion() {
    let (views, policy) = (among_ready(view("a")), Policy::default());
    for outcome in [DeletionOutcome::Done, DeletionOutcome::Uncertain] {
        let mut decider = decided(&views);
        decider.deleted(at(50.0), &decision("a"), outcome, &policy);
        assert_eq!(decider.budget(at(649.0), &views, &policy).used, 1, "{outcome:?}");
        assert_eq!(decider.budget(at(650.0), &views, &policy).used, 0, "{outcome:?}");
    }
}

/// The leader may die right after it has sent the deletion.
#[test]
fn the_window_on_the_lease_counts_from_the_last_attempt() {
    let (views, policy) = (among_ready(view("a")), Policy::default());
    let mut decider = decided(&views);
    decider.deleted(at(20.0), &decision("a"), DeletionOutcome::Uncertain, &policy);
    let list = Some(lacks(at(50.0), &["a"]));
    assert_eq!(decide(&mut decider, at(50.0), &views, ("a", gone()), list), Verdict::Delete);
    let next = Decider::resume(at(60.0), decider.window(at(50.0), &policy));
    assert_eq!(next.budget(at(649.0), &views, &policy).used, 1);
}

#[test]
fn the_next_leader_begins_with_the_window_of_the_last_one() {
    let policy = Policy { budget: Limit::Count(1), ..Policy::default() };
    let views = among_ready(view("a"));
    let mut decider = decided(&views);
    let stored = decider.window(at(20.0), &policy);
    decider.deleted(at(20.0), &decision("a"), DeletionOutcome::Done, &policy);
    let next = Decider::resume(at(30.0), stored.clone());
    let used = |decider: &Decider, now| decider.budget(at(now), &views, &policy).used;
    assert_eq!((used(&next, 619.0), used(&next, 620.0)), (1, 0));
    assert!(!next.breaker().is_open());
    assert_eq!(next.window(at(619.0), &policy), stored);
    assert_eq!(next.window(at(620.0), &policy), Window::default(), "what has expired is not left");
    // A deletion with a time in the future counts for one window.
    let behind = Decider::resume(at(10.0), stored);
    assert_eq!((used(&behind, 609.0), used(&behind, 610.0)), (1, 0));
}
