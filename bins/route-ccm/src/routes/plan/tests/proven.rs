//! Routes whose target is proven to be gone do not count for a limit.

use super::*;

/// Returns twenty nodes with their routes; the first ten go without a mark.
fn half_gone() -> World {
    let cidr = |number: u8| format!("10.120.{number}.0/24");
    let nodes = (1..21).map(|number| node(number, &[&cidr(number)])).collect();
    let routes = (1..21).map(|number| route(&cidr(number), instance(number))).collect();
    let mut world = World::new(nodes, routes);
    (1..11).for_each(|number| world.goes(number, false));
    world
}

/// Asks about what is due. `exists` says which instances the cloud knows.
fn ask(world: &mut World, now: At, exists: impl Fn(u8) -> bool) -> usize {
    let plan = world.plan(now);
    let state = |target: &RouteTarget| {
        let known = (1..21).any(|number| exists(number) && instance(number) == *target);
        if known { TargetState::Exists } else { gone() }
    };
    let asked = plan.questions.iter().chain(&plan.witnesses);
    let answers = asked.map(|target| (target.clone(), Ok(state(target)))).collect();
    world.planner.record_answers(now, answers, &plan.witnesses);
    plan.questions.len()
}

#[test]
fn two_answers_let_go_what_the_brake_holds() {
    let mut world = half_gone();
    assert_eq!(world.settle(at(0)).len(), 3, "the budget");
    assert_eq!(ask(&mut world, at(1), |number| number > 10), 7);
    assert_eq!(world.settle(at(2)), NOTHING, "one answer");
    assert_eq!(world.plan(at(2)).next, Some(at(61)));
    assert_eq!(ask(&mut world, at(61), |number| number > 10), 7);
    let before = world.planner.window().clone();
    assert_eq!(world.settle(at(62)).len(), 7);
    assert_eq!(*world.planner.window(), before, "what is proven is not charged");
}

#[test]
fn what_exists_is_asked_about_less_and_less_often_and_stays() {
    let mut world = half_gone();
    world.settle(at(0));
    let mut asked = Vec::new();
    for second in 1..3600 {
        if ask(&mut world, at(second), |_| true) > 0 {
            asked.push(second);
        }
        assert!(second >= 600 || world.due(at(second)).is_empty());
    }
    assert_eq!(asked[..5], [1, 61, 181, 421, 901]);
    assert!(asked.len() <= 10, "{asked:?}");
}

#[test]
fn a_proof_without_a_target_of_a_node_counts_for_the_brake() {
    let mut world = half_gone();
    // None of the remaining nodes has routes yet, so the cloud is not asked about them.
    let routes = world.table.destinations().map(|one| world.table.to(one)[0].clone());
    let routes = routes.filter(|one| one.destination < net("10.120.11.0/24")).collect();
    world.table = RouteTable { routes, room: Some(0), ..RouteTable::default() }.into();
    let first: Vec<String> = world.due(at(0));
    assert_eq!(first.len(), 3);
    for time in [1, 61, 121] {
        assert_eq!(ask(&mut world, at(time), |_| false), 0, "no target of a node shows a lie");
    }
    assert_eq!(world.due(at(122)), first, "no more than the budget");
    // The same applies to targets that did not belong to nodes.
    let hop = |number: u8| RouteTarget::Address([10, 9, 9, number].into());
    let routes = (1..6).map(|number| route(&format!("10.120.{number}.0/24"), hop(number)));
    let mut world = World::new(vec![node(9, &["10.120.9.0/24"])], routes.collect());
    world.table.room = Some(0);
    for time in [0, 60] {
        assert_eq!(ask(&mut world, at(time), |_| false), 5);
    }
    assert_eq!(world.due(at(61)).len(), 3);
}

#[test]
fn no_proof_counts_while_there_is_no_node() {
    let mut world = half_gone();
    world.settle(at(0));
    for time in [1, 61] {
        ask(&mut world, at(time), |number| number > 10);
    }
    (11..21).for_each(|number| world.goes(number, false));
    assert_eq!(world.settle(at(62)), NOTHING);
    assert_eq!(world.plan(at(62)).counts.held, 17);
}

#[test]
fn an_old_address_that_is_gone_is_left_at_once() {
    let hop = |number: u8| RouteTarget::Address([10, 0, 1, number].into());
    let cidr = |number: u8| format!("10.120.{number}.0/24");
    let nodes: Vec<NodeView> = (1..11).map(|number| node(number, &[&cidr(number)])).collect();
    let routes = (1..11).map(|number| match number {
        1..=6 => route(&cidr(number), hop(number)),
        _ => route(&cidr(number), instance(number)),
    });
    let mut world = World::new(nodes.clone(), routes.collect());
    for (number, after) in (1..7).zip(&nodes) {
        let mut before = Node::clone(&after.node);
        before.addresses = vec![Address::new("InternalIP", format!("10.0.1.{number}"))];
        world.former.record_change(&NodeView { node: Arc::new(before), ..after.clone() }, after);
    }
    assert_eq!(world.settle(at(0)).len(), 3);
    for time in [1, 61] {
        assert_eq!(world.due(at(time)), NOTHING);
        assert_eq!(ask(&mut world, at(time), |_| true), 3);
    }
    assert_eq!(world.settle(at(62)).len(), 3);
}

#[test]
fn a_limit_of_zero_stops_what_is_proven_as_well() {
    let mut world = half_gone();
    world.limit = Limit::Percent(0);
    for time in [0, 60, 120] {
        ask(&mut world, at(time), |number| number > 10);
    }
    assert_eq!(world.settle(at(121)), NOTHING);
    world.limit = Limit::Count(1);
    assert_eq!(world.settle(at(122)).len(), 10);
}
