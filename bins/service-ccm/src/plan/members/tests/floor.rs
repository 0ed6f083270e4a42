//! At least half of the members stay with a wrong view of the nodes, and nodes that leave on
//! purpose are not held.

use super::*;

/// Returns these nodes; the nodes of `gone` went with this mark.
fn marked(
    numbers: impl IntoIterator<Item = usize>,
    gone: impl IntoIterator<Item = usize>,
    mark: Mark,
) -> NodeSet {
    let mut set = nodes(numbers);
    for number in gone {
        set.marks.see(&member(number).node, Some(mark), at(0));
    }
    set
}

#[test]
fn half_of_the_members_stay_also_of_few() {
    for (count, stay) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4), (30, 27)] {
        // They leave at once, one by one, and after a change of leader.
        let mut membership = with(count);
        let mut slowly = with(count);
        for (turn, gone) in (0..50).zip(0..) {
            step(&mut membership, at(turn), &nodes([]));
            let left = count.saturating_sub(gone);
            step(&mut slowly, at(turn * 10), &nodes(0..left));
            if turn % 7 == 0 {
                slowly = handed_over(&slowly, at(turn * 10));
            }
        }
        assert_eq!((membership.count(), slowly.count()), (stay, stay), "of {count}");
    }
}

#[test]
fn a_list_that_is_short_by_half_takes_no_more_than_half() {
    for (count, stay) in [(4, 2), (8, 5), (50, 45)] {
        let mut membership = with(count);
        for turn in 0..50 {
            step(&mut membership, at(turn * 10), &nodes(0..count / 2));
        }
        assert_eq!(membership.count(), stay, "of {count}");
    }
}

#[test]
fn cordoned_nodes_count_for_the_floor_alone() {
    let mut membership = with(12);
    for number in 0..6 {
        // They went 20 s apart.
        let view = marked(number + 1..12, 0..=number, Mark::Drained);
        let now = at(20 * number as u64);
        assert_eq!(step(&mut membership, now, &view), (1, 0), "{number}");
    }
    // The seventh one is one too many, until the first ones leave the window.
    let view = marked(7..12, 0..7, Mark::Drained);
    let decision = membership.decide(at(120), &view, RULES);
    assert_eq!(decision.held.values().collect::<Vec<_>>(), [&Held::Floor]);
    let mut next = handed_over(&membership, at(130));
    assert_eq!(step(&mut next, at(130), &view), (0, 1), "nor for the next leader");
    assert_eq!(step(&mut membership, at(599), &view), (0, 1));
    assert_eq!(step(&mut membership, at(620), &view), (1, 0));
    // The list lies about cordoned nodes.
    let mut membership = with(12);
    assert_eq!(step(&mut membership, at(0), &marked([], 0..12, Mark::Drained)), (6, 6));
}

#[test]
fn cordoned_and_vanished_nodes_count_together_for_the_floor() {
    let mut membership = with(8);
    assert_eq!(step(&mut membership, at(0), &marked(2..8, 0..2, Mark::Drained)), (2, 0));
    assert_eq!(step(&mut membership, at(60), &marked([], 0..2, Mark::Drained)), (2, 4));
    // Cordoned nodes do not use up the three of the budget.
    let mut membership = with(20);
    assert_eq!(step(&mut membership, at(0), &marked(4..20, 0..4, Mark::Drained)), (4, 0));
    assert_eq!(step(&mut membership, at(60), &marked(8..20, 0..4, Mark::Drained)), (3, 1));
}

#[test]
fn what_an_autoscaler_or_a_proof_takes_counts_for_nothing() {
    let mut membership = with(50);
    assert_eq!(step(&mut membership, at(0), &marked(40..50, 0..40, Mark::Meant)), (40, 0));
    assert_eq!(step(&mut membership, at(10), &marked(43..50, [], Mark::Meant)), (3, 0));
    assert_eq!(step(&mut membership, at(20), &marked(44..50, [], Mark::Meant)), (0, 1));
}

#[test]
fn a_cordoned_node_that_returns_is_not_counted() {
    let mut membership = with(4);
    assert_eq!(step(&mut membership, at(0), &marked(2..4, 0..2, Mark::Drained)), (2, 0));
    assert_eq!(step(&mut membership, at(10), &nodes(0..4)), (0, 0));
    assert_eq!(step(&mut membership, at(20), &marked(0..2, 2..4, Mark::Drained)), (2, 0));
    // The node returns before the cloud was asked.
    let mut membership = with(4);
    membership.decide(at(0), &marked(2..4, 0..2, Mark::Drained), RULES);
    membership.decide(at(1), &nodes(0..4), RULES);
    assert_eq!(step(&mut membership, at(2), &marked(0..2, 2..4, Mark::Drained)), (2, 0));
}

/// A cluster whose nodes are replaced one after another.
#[test]
fn nodes_that_join_in_the_same_pass_count() {
    let mut membership = with(1);
    assert_eq!(step(&mut membership, at(0), &nodes([1])), (1, 0));
    let mut membership = with(3);
    for number in 0..3 {
        let view = nodes(number + 1..number + 4);
        assert_eq!(step(&mut membership, at(number as u64 * 60), &view), (1, 0), "{number}");
    }
}

/// The nodes of a cluster are replaced one after another, without a mark: a node that joins counts
/// after an hour.
#[test]
fn members_that_were_replaced_are_not_counted() {
    let go = |membership: &mut Membership, minutes: u64, view: &NodeSet| {
        let decision = membership.decide(at(60 * minutes), view, LONG);
        membership.applied(&decision.members, at(60 * minutes));
        (decision.members.absent.len(), decision.held.len())
    };
    for joins_first in [true, false] {
        let mut membership = with(10);
        for number in 0..20 {
            let minutes = 30 * number as u64;
            if joins_first {
                assert_eq!(go(&mut membership, minutes, &nodes(number..number + 11)), (0, 0));
            }
            let view = nodes(number + 1..number + if joins_first { 11 } else { 10 });
            assert_eq!(go(&mut membership, minutes, &view), (1, 0), "{number}, {joins_first}");
            go(&mut membership, minutes, &nodes(number + 1..number + 11));
        }
        // No more than three of the largest number of members are missing.
        for turn in 0..50 {
            go(&mut membership, 600 + turn, &nodes(25..30));
        }
        assert!(membership.count() >= 7, "{}, {joins_first}", membership.count());
    }
}

/// More nodes than before do not add budget for a view that is wrong later.
#[test]
fn nodes_that_joined_before_are_no_budget() {
    let mut membership = with(10);
    let mut go = |minutes: u64, view: &NodeSet| {
        let decision = membership.decide(at(60 * minutes), view, LONG);
        membership.applied(&decision.members, at(60 * minutes));
        (decision.members.absent.len(), decision.held.len())
    };
    go(0, &nodes(0..20));
    assert_eq!(go(1, &nodes(0..10)), (3, 7));
    // A node that joins replaces one after an hour.
    let view = nodes((0..10).chain([42]));
    assert_eq!([go(2, &view), go(3, &view), go(61, &view)], [(0, 7); 3]);
    assert_eq!(go(62, &view), (1, 6));
    assert_eq!(go(63, &view), (0, 6));
}

/// A node that has joined does not replace members that leave later.
#[test]
fn a_node_that_joined_covers_nothing_that_leaves_later() {
    let mut membership = with(10);
    let mut go = |minutes: u64, view: &NodeSet| {
        let decision = membership.decide(at(60 * minutes), view, LONG);
        membership.applied(&decision.members, at(60 * minutes));
        (decision.members.absent.len(), decision.held.len())
    };
    assert_eq!(go(0, &nodes(1..10)), (1, 0));
    go(1, &nodes(1..12));
    assert_eq!(go(30, &nodes(2..12)), (1, 0));
    // One of the two that joined takes the place of the first that left.
    assert_eq!(go(62, &nodes(5..12)), (2, 1));
}

/// A user excludes one node after another for a while.
#[test]
fn an_excluded_node_that_returns_is_not_counted() {
    let mut membership = with(4);
    for number in 0..4 {
        let view = and(nodes((0..4).filter(|one| *one != number)), [number], Excluded::Label);
        assert_eq!(step(&mut membership, at(number as u64), &view), (1, 0), "{number}");
        assert_eq!(step(&mut membership, at(number as u64), &nodes(0..4)), (0, 0));
        // The next change of any node finds it back.
        step(&mut membership, at(number as u64), &nodes(0..5));
        assert_eq!(step(&mut membership, at(number as u64), &nodes(0..4)), (1, 0));
        membership.vanished = Floor::default();
        membership.brake = Brake::default();
    }
    // It returns before the cloud was asked.
    let mut membership = with(4);
    membership.decide(at(0), &and(nodes(2..4), 0..2, Excluded::Label), RULES);
    membership.decide(at(1), &nodes(0..4), RULES);
    assert_eq!(step(&mut membership, at(2), &and(nodes(0..2), 2..4, Excluded::Label)), (2, 0));
}

/// The change waits for a cloud that works.
#[test]
fn what_may_leave_may_leave_at_the_next_look_too() {
    let (mut membership, view) = (with(4), marked(2..4, 0..2, Mark::Drained));
    for turn in 0..5 {
        let decision = membership.decide(at(turn), &view, RULES);
        assert_eq!((decision.members.absent.len(), decision.held.len()), (2, 0), "{turn}");
    }
}

/// The clock of the last leader was ahead.
#[test]
fn what_left_in_the_future_counts_for_one_window() {
    let left = ("n001".to_owned(), at(7200));
    let mut floor = Floor::resume(at(0), [(&left.0, &left.1)]);
    floor.expire(at(599), WINDOW);
    assert!(floor.has("n001"));
    floor.expire(at(600), WINDOW);
    assert!(floor.is_empty());
}

/// A load balancer that has not lost any has its whole budget, whatever others have lost.
#[test]
fn what_other_load_balancers_lost_is_no_loss_of_this_one() {
    let mut other = with(10);
    assert_eq!(step(&mut other, at(0), &nodes(0..7)), (3, 0));
    let mut membership = resumed(&other, at(1));
    membership.shown(&(0..10).map(member).collect(), &NodeSet::default(), at(1));
    assert_eq!(step(&mut membership, at(2), &nodes(3..10)), (3, 0));
}

#[test]
fn what_is_left_to_the_next_leader_names_each_once_with_its_last_departure() {
    let (mut first, mut second) = (with(10), with(10));
    assert_eq!(step(&mut first, at(100), &nodes(0..9)), (1, 0));
    assert_eq!(step(&mut second, at(10), &nodes(0..9)), (1, 0));
    let mut left = Departures::default();
    first.add_departures(at(0), &mut left);
    second.add_departures(at(0), &mut left);
    assert_eq!(left.charged, [("n009".to_owned(), at(100))].into());
    // Unnamed departures already exist.
    left.charged.insert("~3".to_owned(), at(50));
    let mut again = left.clone();
    Membership::resume(at(101), &left).add_departures(at(0), &mut again);
    assert_eq!(again, left);
}

/// The number of members is not known, so the known ones count.
#[test]
fn a_cloud_that_shows_no_members_says_nothing_about_their_number() {
    for (in_cloud, left) in [(None, 5), (Some(0), 5), (Some(20), 3)] {
        let mut membership = with(50);
        let decision = membership.decide(at(0), &nodes(10..50), MemberRules { in_cloud, ..RULES });
        assert_eq!(decision.members.absent.len(), left, "{in_cloud:?}");
    }
}

/// One node has crashed, and all others are cordoned and replaced one after another.
#[test]
fn a_rolling_replacement_of_cordoned_nodes_is_not_held_because_one_has_crashed() {
    let mut membership = with(40);
    assert_eq!(step(&mut membership, at(0), &nodes(1..40)), (1, 0));
    for number in 1..40 {
        let now = at(10 * number as u64);
        let gone = |more: usize| {
            marked((number + 1..40).chain(100..100 + more), 1..=number, Mark::Drained)
        };
        assert_eq!(step(&mut membership, now, &gone(number - 1)), (1, 0), "{number}");
        assert_eq!(step(&mut membership, now, &gone(number)), (0, 0), "{number}");
    }
    assert_eq!(membership.count(), 39);
}
