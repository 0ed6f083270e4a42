//! What is kept: reservations, blocks of nodes that are gone; and other allocators.

use super::*;

fn with_routes(nodes: &[Node]) -> Allocator {
    let hold = HoldUntil { grace: GRACE, routes: true };
    Allocator::rebuild(config(&["10.10.0.0/23/24"], &[]), hold, nodes, Vec::new())
}

fn gone(allocator: &mut Allocator, name: &str, at: At) -> Vec<String> {
    let waiting = allocator.release(&format!("uid-{name}"), at);
    waiting.iter().map(ToString::to_string).collect()
}

#[test]
fn a_node_keeps_its_reservation_while_the_outcome_is_unknown() {
    for written in [Written::Unknown, Written::No, Written::Yes] {
        let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[]);
        for _ in 0..5 {
            assert_eq!(reserve(&mut allocator, "a").unwrap(), "10.10.0.0/24");
            allocator.answered("uid-a", written);
        }
        assert_eq!(used(&allocator), [1]);
        assert_eq!(reserve(&mut allocator, "b").unwrap(), "10.10.1.0/24");
    }
}

#[test]
fn a_write_without_an_answer_is_confirmed_by_the_node() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[]);
    reserve(&mut allocator, "a").unwrap();
    allocator.answered("uid-a", Written::Unknown);
    reserve(&mut allocator, "a").unwrap();
    allocator.answered("uid-a", Written::No);
    let seen = allocator.observe(&node("a", &["10.10.0.0/24"]));
    assert!(seen.confirmed && seen.rival.is_none(), "{seen:?}");
    assert!(allocator.rival().is_none());
}

#[test]
fn what_was_never_written_is_free_at_once() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[]);
    reserve(&mut allocator, "a").unwrap();
    allocator.answered("uid-a", Written::No);
    allocator.release("uid-a", NOW);
    assert_eq!(used(&allocator), [0]);
    reserve(&mut allocator, "b").unwrap();
    allocator.answered("uid-b", Written::Unknown);
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
    let waiting: Vec<_> =
        allocator.waiting_for_routes().map(|(net, name)| (net, &**name)).collect();
    assert_eq!(waiting, [(net("10.10.0.0/24"), "a")]);
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
    // A route to more than a block is no obstacle: that to the block is more specific.
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
        // A list without it was wrong: that is no other allocator.
        assert_eq!(allocator.observe(&a), Seen::default(), "after {wait:?}");
        allocator.expire(NOW + GRACE * 9);
        assert_eq!((used(&allocator), allocator.rival()), (vec![1], None));
    }
}

#[test]
fn cidrs_from_before_are_respected_and_later_ones_are_a_rival() {
    let before = node("before", &["10.10.7.0/24"]);
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], std::slice::from_ref(&before));
    assert_eq!(allocator.observe(&before), Seen::default());
    let seen = allocator.observe(&node("later", &["10.10.8.0/24"]));
    let rival = seen.rival.unwrap();
    assert_eq!((&*rival.node, &*rival.shown[0]), ("later", "10.10.8.0/24"));
    assert_eq!(reserve(&mut allocator, "new"), Err(Refusal::Stopped(rival)));
    // For good, and told once.
    allocator.release("uid-later", NOW);
    assert!(matches!(reserve(&mut allocator, "new"), Err(Refusal::Stopped(_))));
    assert_eq!(allocator.observe(&node("third", &["10.10.9.0/24"])).rival, None);
    assert_eq!(used(&allocator), [3]);
}

#[test]
fn other_cidrs_than_the_reserved_ones_are_a_rival() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[]);
    reserve(&mut allocator, "a").unwrap();
    let seen = allocator.observe(&node("a", &["10.10.9.0/24"]));
    assert_eq!(seen.rival.unwrap().reserved, [net("10.10.0.0/24")]);
    assert_eq!(used(&allocator), [1], "what was reserved is free");
}

#[test]
fn the_reserved_cidrs_of_a_write_that_was_refused_are_a_rival() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[]);
    reserve(&mut allocator, "a").unwrap();
    allocator.answered("uid-a", Written::No);
    assert!(allocator.observe(&node("a", &["10.10.0.0/24"])).rival.is_some());
}

#[test]
fn cidrs_that_change_are_a_rival() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[node("a", &["10.10.0.0/24"])]);
    assert!(allocator.observe(&node("a", &["10.10.1.0/24"])).rival.is_some());
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[]);
    assert!(allocator.observe(&node("a", &["nonsense"])).rival.is_some());
}

#[test]
fn a_reservation_that_another_node_has_is_not_written() {
    let mut allocator = rebuilt(&["10.10.0.0/16/24"], &[], &[node("old", &["10.10.0.0/24"])]);
    gone(&mut allocator, "old", NOW - GRACE);
    assert_eq!(reserve(&mut allocator, "a").unwrap(), "10.10.0.0/24");
    allocator.answered("uid-a", Written::No);
    // The list without it was wrong, for longer than the grace time.
    allocator.observe(&node("old", &["10.10.0.0/24"]));
    assert_eq!(reserve(&mut allocator, "a").unwrap(), "10.10.1.0/24");
    allocator.answered("uid-a", Written::Unknown);
    allocator.insert(&node("b", &["10.10.1.0/24"]));
    assert!(matches!(reserve(&mut allocator, "a"), Err(Refusal::Taken(_))));
}
