//! Reservations, blocks of nodes that are gone, and other allocators.

use super::*;
use crate::node_ipam::ipam::rival::LEFT_ALONE;

fn with_routes(nodes: &[Node]) -> Allocator {
    let hold = HoldUntil { grace: GRACE, routes: true };
    Allocator::rebuild(config(&["10.10.0.0/23/24"], &[]), hold, nodes, Vec::new())
}

fn gone(allocator: &mut Allocator, name: &str, at: At) -> Vec<String> {
    let before: Vec<_> = allocator.waiting_for_routes().collect();
    allocator.release(&format!("uid-{name}"), at);
    let waiting = allocator.waiting_for_routes().filter(|one| !before.contains(one));
    waiting.map(|one| one.to_string()).collect()
}

#[test]
fn a_node_keeps_its_reservation_while_the_outcome_is_unknown() {
    for written in [Written::Unknown, Written::No, Written::Yes] {
        let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[]);
        for _ in 0..5 {
            assert_eq!(reserve(&mut allocator, "a").unwrap(), "10.10.0.0/24");
            allocator.record_outcome(&node("a", &[]), written);
        }
        assert_eq!(used(&allocator), [1]);
        assert_eq!(reserve(&mut allocator, "b").unwrap(), "10.10.1.0/24");
    }
}

#[test]
fn a_write_without_an_answer_is_confirmed_by_the_node() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[]);
    reserve(&mut allocator, "a").unwrap();
    allocator.record_outcome(&node("a", &[]), Written::Unknown);
    reserve(&mut allocator, "a").unwrap();
    allocator.record_outcome(&node("a", &[]), Written::No);
    let seen = allocator.observe(&node("a", &["10.10.0.0/24"]), NOW);
    assert!(seen.foreign.is_none() && seen.rival.is_none(), "{seen:?}");
    assert!(allocator.rival().is_none());
}

/// The cloud gives a node that registers again the block that it had, so the route to it stays.
#[test]
fn a_block_that_a_living_node_shows_is_not_held_for_the_one_before() {
    let mut allocator = with_routes(&[node("a", &["10.10.0.0/24"])]);
    assert_eq!(gone(&mut allocator, "a", NOW), ["10.10.0.0/24"]);
    let again = Node { uid: "uid-again".into(), ..node("a", &["10.10.0.0/24"]) };
    allocator.observe(&again, NOW);
    assert_eq!(allocator.held_nodes(), 1, "the grace time");
    allocator.expire(NOW + GRACE);
    assert_eq!((allocator.held_nodes(), used(&allocator)), (0, vec![1]));
    assert_eq!(gone(&mut allocator, "again", NOW), ["10.10.0.0/24"]);
}

/// The order in which they come and go does not matter, and the former one may also have been lost
/// by mistake.
#[test]
fn the_route_of_a_block_that_another_node_shows_is_not_awaited() {
    let nodes = [node("a", &["10.10.0.0/24"]), node("b", &["10.10.0.0/24"])];
    let mut allocator = with_routes(&nodes);
    assert_eq!(gone(&mut allocator, "a", NOW), [""; 0], "b shows it");
    assert_eq!(gone(&mut allocator, "b", NOW), ["10.10.0.0/24"]);
    allocator.observe(&nodes[0], NOW);
    assert_eq!(allocator.waiting_for_routes().count(), 0, "a is here again");
}

#[test]
fn what_was_never_written_is_free_at_once() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[]);
    reserve(&mut allocator, "a").unwrap();
    allocator.record_outcome(&node("a", &[]), Written::No);
    allocator.release("uid-a", NOW);
    assert_eq!(used(&allocator), [0]);
    reserve(&mut allocator, "b").unwrap();
    allocator.record_outcome(&node("b", &[]), Written::Unknown);
    allocator.release("uid-b", NOW);
    assert_eq!(used(&allocator), [1]);
}

#[test]
fn only_the_owner_releases() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[node("a", &["10.10.0.0/24"])]);
    allocator.release("uid-a", NOW);
    allocator.expire(NOW + GRACE);
    let second = Node { uid: "another".into(), ..node("a", &["10.10.0.0/24"]) };
    allocator.insert(&second);
    // The end of the first node of this name is reported once more.
    allocator.release("uid-a", NOW);
    allocator.expire(NOW + GRACE * 2);
    assert_eq!(used(&allocator), [1]);
}

#[test]
fn a_block_is_held_for_the_grace_time() {
    let nodes = [node("a", &["10.10.0.0/24"]), node("b", &["10.10.1.0/24"])];
    let mut allocator = rebuilt(&["10.10.0.0/23/24"], &[], &nodes);
    assert_eq!(gone(&mut allocator, "a", NOW), [""; 0]);
    let new = node("c", &[]);
    let early = NOW + GRACE - Duration::from_secs(1);
    assert!(matches!(allocator.reserve(&new, early), Err(Refusal::Exhausted(_))));
    assert_eq!(allocator.reserve(&new, NOW + GRACE).unwrap().cidrs, [net("10.10.0.0/24")]);
}

#[test]
fn a_block_is_held_until_its_route_is_gone() {
    let nodes = [node("a", &["10.10.0.0/24"]), node("b", &["10.10.1.0/24"])];
    let mut allocator = with_routes(&nodes);
    let (new, late) = (node("c", &[]), NOW + GRACE * 100);
    assert_eq!(allocator.reserve(&new, NOW), Err(Refusal::RoutesUnknown));
    allocator.routes_are([net("10.10.0.0/24"), net("10.10.1.0/24")], NOW);
    assert_eq!(gone(&mut allocator, "a", NOW), ["10.10.0.0/24"]);
    assert!(allocator.reserve(&new, late).is_err());
    allocator.route_gone(net("10.10.1.0/24"));
    assert!(allocator.reserve(&new, late).is_err());
    allocator.route_gone(net("10.10.0.7/24"));
    assert!(allocator.reserve(&new, NOW).is_err(), "the grace time");
    assert_eq!(allocator.reserve(&new, late).unwrap().cidrs, [net("10.10.0.0/24")]);
}

#[test]
fn a_table_from_before_the_end_of_a_node_says_nothing_about_its_route() {
    let nodes = [node("a", &["10.10.0.0/24"]), node("b", &["10.10.1.0/24"])];
    let mut allocator = with_routes(&nodes);
    gone(&mut allocator, "a", NOW);
    let (new, late) = (node("c", &[]), NOW + GRACE * 100);
    allocator.routes_are([], NOW - Duration::from_secs(1));
    assert!(allocator.reserve(&new, late).is_err());
    allocator.routes_are([net("10.10.0.0/24")], NOW);
    assert!(allocator.reserve(&new, late).is_err());
    allocator.routes_are([], NOW);
    assert_eq!(allocator.reserve(&new, late).unwrap().cidrs, [net("10.10.0.0/24")]);
}

#[test]
fn a_block_with_a_foreign_route_is_given_to_no_node() {
    let mut allocator = with_routes(&[]);
    // A route to more than a block does not matter: the block's own route is more specific.
    allocator.routes_are([net("10.10.0.128/25"), net("10.10.0.0/23"), net("0.0.0.0/0")], NOW);
    assert_eq!(reserve(&mut allocator, "a").unwrap(), "10.10.1.0/24");
    assert!(matches!(reserve(&mut allocator, "b"), Err(Refusal::Exhausted(_))));
    allocator.routes_are([], NOW);
    assert_eq!(reserve(&mut allocator, "b").unwrap(), "10.10.0.0/24");
}

#[test]
fn the_next_leader_holds_what_the_last_one_held() {
    let nodes = [node("a", &["10.10.0.0/24"]), node("b", &["10.10.1.0/24"])];
    let mut allocator = rebuilt(&["10.10.0.0/23/24"], &[], &nodes);
    gone(&mut allocator, "a", NOW);
    gone(&mut allocator, "b", NOW + GRACE);
    let left = allocator.held(1);
    assert_eq!(left.len(), 1);
    let hold = HoldUntil { grace: GRACE, routes: false };
    let config = config(&["10.10.0.0/23/24"], &[]);
    let mut next = Allocator::rebuild(config, hold, &[], left);
    assert_eq!(reserve(&mut next, "c").unwrap(), "10.10.0.0/24");
    assert!(reserve(&mut next, "d").is_err());
    let late = next.reserve(&node("d", &[]), NOW + GRACE * 2);
    assert_eq!(late.unwrap().cidrs, [net("10.10.1.0/24")]);
}

#[test]
fn a_node_that_comes_back_has_what_it_had() {
    let a = node("a", &["10.10.0.0/24"]);
    for wait in [Duration::ZERO, GRACE] {
        let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], std::slice::from_ref(&a));
        gone(&mut allocator, "a", NOW);
        allocator.expire(NOW + wait);
        // A list without it was wrong, which does not indicate another allocator.
        assert_eq!(allocator.observe(&a, NOW), Seen::default(), "after {wait:?}");
        allocator.expire(NOW + GRACE * 9);
        assert_eq!((used(&allocator), allocator.rival()), (vec![1], None));
    }
}

/// Returns true if these pod CIDRs of the node are another client's.
fn is_foreign(allocator: &mut Allocator, name: &str, cidrs: &[&str]) -> bool {
    let seen = allocator.observe(&node(name, cidrs), NOW);
    assert_eq!(seen.rival, None);
    seen.foreign.is_some()
}

#[test]
fn cidrs_of_other_clients_are_respected() {
    let before = node("before", &["10.10.7.0/24"]);
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], std::slice::from_ref(&before));
    assert_eq!(allocator.observe(&before, NOW), Seen::default());
    // The nodes are created with another node's block, the next block, and any other one.
    for (name, cidr) in [("a", "10.10.7.0/24"), ("b", "10.10.0.0/24"), ("c", "10.10.9.0/24")] {
        assert!(is_foreign(&mut allocator, name, &[cidr]), "{name}");
    }
    assert_eq!((used(&allocator), allocator.rival()), (vec![3], None));
    assert_eq!(reserve(&mut allocator, "new").unwrap(), "10.10.1.0/24");
}

/// Lets another client assign pod CIDRs to a node that was here without them.
fn another_assigns(allocator: &mut Allocator, name: &str, cidr: &str, at: At) -> Seen {
    assert_eq!(allocator.observe(&node(name, &[]), at), Seen::default());
    allocator.observe(&node(name, &[cidr]), at)
}

#[test]
fn what_takes_our_blocks_on_two_nodes_is_another_allocator() {
    let second = "10.10.1.0/24";
    for (case, setup, cidr) in [
        ("the next one", "", second),
        ("a part of the next one", "", "10.10.1.128/25"),
        ("another node's block", "", "10.10.7.0/24"),
        ("one that is kept for another node", "x", second),
        ("one that is kept for it, and not written", "b", second),
    ] {
        let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[node("a", &["10.10.7.0/24"])]);
        let first = another_assigns(&mut allocator, "one", "10.10.0.0/24", NOW);
        assert!(first.foreign.is_some() && first.rival.is_none(), "{first:?}");
        if !setup.is_empty() {
            reserve(&mut allocator, setup).unwrap();
            allocator.record_outcome(&node("b", &[]), Written::No);
        }
        let seen = another_assigns(&mut allocator, "b", cidr, NOW);
        let rival = seen.rival.unwrap_or_else(|| panic!("{case}"));
        assert_eq!(rival.signs.len(), 2);
        assert_eq!(reserve(&mut allocator, "new"), Err(Refusal::Stopped(rival)), "{case}");
    }
}

#[test]
fn what_takes_none_of_our_blocks_is_no_other_allocator() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[]);
    for (name, cidr) in [("a", "10.10.0.0/24"), ("b", "10.10.200.0/24"), ("c", "10.99.0.0/24")] {
        reserve(&mut allocator, name).unwrap();
        let seen = another_assigns(&mut allocator, name, cidr, NOW);
        assert!(seen.rival.is_none(), "{name}: {seen:?}");
    }
    // The list was wrong: the node has the blocks that we gave it.
    gone(&mut allocator, "b", NOW);
    assert_eq!(allocator.observe(&node("b", &["10.10.200.0/24"]), NOW), Seen::default());
    assert!(reserve(&mut allocator, "d").is_ok());
}

#[test]
fn a_node_that_is_left_alone_ends_the_stop() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[]);
    another_assigns(&mut allocator, "a", "10.10.0.0/24", NOW);
    another_assigns(&mut allocator, "b", "10.10.1.0/24", NOW);
    let reserve = |allocator: &mut Allocator, name, at| allocator.reserve(&node(name, &[]), at);
    assert!(matches!(reserve(&mut allocator, "c", NOW), Err(Refusal::Stopped(_))));
    // Its end says nothing about the other allocator.
    allocator.release("uid-c", NOW);
    let mut at = NOW + LEFT_ALONE;
    assert!(matches!(reserve(&mut allocator, "d", at), Err(Refusal::Stopped(_))));
    let far = another_assigns(&mut allocator, "e", "10.99.0.0/24", at + LEFT_ALONE / 2);
    assert!(far.foreign.is_some() && far.rival.is_none());
    at = at + LEFT_ALONE;
    assert!(matches!(reserve(&mut allocator, "d", at), Err(Refusal::Stopped(_))));
    assert!(reserve(&mut allocator, "d", at + LEFT_ALONE).is_ok());
    assert_eq!(allocator.rival(), None);
}

#[test]
fn other_cidrs_than_the_reserved_ones_are_foreign() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[]);
    reserve(&mut allocator, "a").unwrap();
    let seen = allocator.observe(&node("a", &["10.10.9.0/24"]), NOW);
    assert_eq!(seen.foreign.unwrap().reserved, [net("10.10.0.0/24")]);
    assert_eq!(used(&allocator), [1], "what was reserved is free");
}

#[test]
fn the_reserved_cidrs_of_a_write_that_was_refused_are_foreign() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[]);
    reserve(&mut allocator, "a").unwrap();
    allocator.record_outcome(&node("a", &[]), Written::No);
    assert!(is_foreign(&mut allocator, "a", &["10.10.0.0/24"]));
}

#[test]
fn cidrs_that_change_are_foreign() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[node("a", &["10.10.0.0/24"])]);
    assert!(is_foreign(&mut allocator, "a", &["10.10.1.0/24"]));
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[]);
    assert!(is_foreign(&mut allocator, "a", &["nonsense"]));
}

/// The API server refuses a write that was decided on an older version.
#[test]
fn a_write_for_an_older_version_of_the_node_does_not_keep_a_block_that_another_node_has() {
    for (version, has_another) in [("7", false), ("8", true)] {
        let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[]);
        let at = |version: &str| Node { resource_version: version.into(), ..node("a", &[]) };
        allocator.reserve(&at("7"), NOW).unwrap();
        allocator.record_outcome(&at("7"), Written::Unknown);
        allocator.observe(&node("b", &["10.10.0.0/24"]), NOW);
        let given = allocator.reserve(&at(version), NOW).map(|given| given.cidrs);
        assert_eq!(given == Ok(vec![net("10.10.1.0/24")]), has_another, "{given:?}");
    }
}

#[test]
fn a_node_that_has_lost_its_pod_cidrs_gets_them_again() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[node("a", &["10.10.3.0/24"])]);
    assert_eq!(reserve(&mut allocator, "a"), Err(Refusal::Assigned));
    allocator.lost(&node("a", &[]), NOW);
    assert_eq!(reserve(&mut allocator, "a").unwrap(), "10.10.3.0/24");
    allocator.record_outcome(&node("a", &[]), Written::Yes);
    assert!(!is_foreign(&mut allocator, "a", &["10.10.3.0/24"]));
    assert_eq!(reserve(&mut allocator, "a"), Err(Refusal::Assigned));
}

#[test]
fn a_node_that_cannot_get_the_same_again_gets_others_and_the_old_ones_are_held() {
    // Pod CIDRs of another size, and a block that another node shows as well.
    for (shown, others) in [("10.10.0.0/25", ""), ("10.10.0.0/24", "10.10.0.0/24")] {
        let mut nodes = vec![node("a", &[shown])];
        nodes.extend((!others.is_empty()).then(|| node("b", &[others])));
        let mut allocator = with_routes(&nodes);
        allocator.routes_are([], NOW);
        let bare = Node { resource_version: "7".into(), ..node("a", &[]) };
        allocator.lost(&bare, NOW);
        let given = allocator.reserve(&bare, NOW).unwrap();
        assert_eq!(given.cidrs, [net("10.10.1.0/24")]);
        gone(&mut allocator, "b", NOW);
        assert_eq!(used(&allocator), [2], "{shown} is held");
        allocator.routes_are([], NOW + GRACE);
        allocator.expire(NOW + GRACE);
        assert_eq!(used(&allocator), [1]);
    }
}

#[test]
fn a_reservation_that_another_node_has_is_not_written() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[node("old", &["10.10.0.0/24"])]);
    gone(&mut allocator, "old", NOW - GRACE);
    assert_eq!(reserve(&mut allocator, "a").unwrap(), "10.10.0.0/24");
    allocator.record_outcome(&node("a", &[]), Written::No);
    // The list without it was wrong for longer than the grace time.
    allocator.observe(&node("old", &["10.10.0.0/24"]), NOW);
    assert_eq!(reserve(&mut allocator, "a").unwrap(), "10.10.1.0/24");
    allocator.record_outcome(&node("a", &[]), Written::Unknown);
    allocator.insert(&node("b", &["10.10.1.0/24"]));
    assert!(matches!(reserve(&mut allocator, "a"), Err(Refusal::Taken(_))));
}
