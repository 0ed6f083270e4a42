//! The plan's statements about nodes: their conditions follow from them.

use super::*;

fn hop(last: u8) -> RouteTarget {
    RouteTarget::Address([10, 0, 1, last].into())
}

/// Returns nodes with their routes to addresses that they no longer have.
fn moved() -> World {
    let cidr = |number: u8| format!("10.120.{number}.0/24");
    let nodes: Vec<NodeView> = (1..9).map(|number| node(number, &[&cidr(number)])).collect();
    let routes = (1..9).map(|number| route(&cidr(number), hop(number))).collect();
    let mut world = World::new(nodes.clone(), routes);
    for (number, after) in (1..9).zip(&nodes) {
        let mut before = Node::clone(&after.node);
        before.addresses = vec![Address::new("InternalIP", format!("10.0.1.{number}"))];
        world.former.record_change(&NodeView { node: Arc::new(before), ..after.clone() }, after);
    }
    world
}

#[test]
fn a_move_that_is_held_says_why() {
    let plan = moved().plan(at(0));
    assert_eq!((plan.due().count(), plan.counts.held), (3, 5));
    assert_eq!(
        why(&plan, "n1"),
        ("the route of 10.120.1.0/24 is being made".to_owned(), Some(false))
    );
    let (text, has_failed) = why(&plan, "n8");
    assert!(
        text.contains("10.120.8.0/24 stays at 10.0.1.8") && text.contains("--route-loss"),
        "{text}"
    );
    assert_eq!(has_failed, Some(true));
}

#[test]
fn a_move_that_fails_says_why() {
    let mut world = moved();
    let plan = world.plan(at(0));
    let planned = plan.due().next().expect("a change").clone();
    assert_eq!(words(&planned), "replace 10.120.1.0/24 of n1: 10.0.1.1 -> 10.0.0.1");
    world.planner.sent(at(0), &planned);
    let error = CloudError::new(ErrorKind::Invalid, "not this one");
    world.planner.applied(at(0), &planned, &Err(error));
    let (text, has_failed) = why(&world.plan(at(1)), "n1");
    assert!(text.contains("not this one"), "{text}");
    assert_eq!(has_failed, Some(true));
}

#[test]
fn a_route_outside_of_the_cluster_cidrs_counts_if_it_is_there() {
    let other = Route { owner: Some(owner("other", 3)), ..route("10.99.3.0/24", instance(3)) };
    let broken = Route { defect: Some("x".to_owned()), ..route("10.99.4.0/24", instance(4)) };
    let numbers = [1, 2, 3, 4, 5];
    let nodes = numbers.map(|number| node(number, &[&format!("10.99.{number}.0/24")]));
    let routes =
        vec![route("10.99.1.0/24", instance(1)), route("10.99.2.0/24", instance(1)), other, broken];
    let mut world = World::new(nodes.to_vec(), routes);
    let plan = world.plan(at(0));
    assert_eq!(plan.due().count(), 0, "nothing is touched");
    assert!(plan.nodes.get("n1").is_some_and(NodeRoutes::is_complete), "it works");
    for name in ["n2", "n3", "n4", "n5"] {
        assert!(why(&plan, name).0.contains("not inside --cluster-cidr"), "{name}");
    }
    assert_eq!(plan.problems.len(), 5, "an event each");
    assert_eq!((plan.counts.nodes_complete, plan.counts.nodes_incomplete), (1, 4));
    assert_eq!(plan.counts.elsewhere, 4, "they are counted");
}

#[test]
fn of_two_nodes_with_one_pod_cidr_one_has_the_route() {
    let nodes = vec![node(1, &["10.120.1.0/24"]), node(2, &["10.120.0.0/23"])];
    let routes = vec![route("10.120.1.0/24", instance(1)), route("10.120.0.0/23", instance(2))];
    let plan = World::new(nodes, routes).plan(at(0));
    assert_eq!(plan.due().count(), 0);
    assert!(why(&plan, "n2").0.contains("overlaps"), "a part of it is the other node's");
    assert_eq!(plan.counts.ours, 2);
}

/// Texts that Kubernetes treats as one network or address count as one.
#[test]
fn networks_and_addresses_are_read_as_kubernetes_reads_them() {
    let mut odd = Node::clone(&node(1, &["::ffff:10.120.1.7/120"]).node);
    odd.addresses = vec![Address::new("InternalIP", "::ffff:10.0.0.1")];
    let hop = RouteTarget::Address("10.0.0.1".parse().expect("an address"));
    let view = NodeView { node: Arc::new(odd), id: None, left_out: None };
    let mut world = World::new(vec![view], vec![route("10.120.1.0/24", hop)]);
    world.traits =
        RouteTraits { target_addresses: true, target_ids: false, ..RouteTraits::default() };
    assert_eq!(world.settle(at(0)), NOTHING);
    assert_eq!(why(&world.plan(at(0)), "n1"), (String::new(), None));
    world.table = Table::default();
    let plan = world.plan(at(0));
    let RouteChange::Create(new) = &plan.changes[0].change else { panic!("{plan:?}") };
    assert_eq!(new.addresses[0].address, "10.0.0.1", "the cloud reads it, too");
}

#[test]
fn a_retry_does_not_hide_why_the_last_attempt_failed() {
    let mut world = World::new(vec![node(1, &["10.120.1.0/24"])], Vec::new());
    let planned = world.plan(at(0)).due().next().expect("a change").clone();
    world.planner.sent(at(0), &planned);
    assert_eq!(why(&world.plan(at(1)), "n1").1, Some(false), "it is being made");
    let error = CloudError::new(ErrorKind::QuotaExceeded, "full");
    world.planner.applied(at(1), &planned, &Err(error));
    world.planner.sent(at(400), &planned);
    assert_eq!(why(&world.plan(at(401)), "n1"), ("quota_exceeded: full".to_owned(), Some(true)));
}
