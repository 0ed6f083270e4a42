//! Answers that come late or not at all, and their consequences.

use super::*;

#[test]
fn a_creation_that_fails_gives_no_budget_back() {
    let cidr = |number: u8| format!("10.120.{number}.0/24");
    let nodes = (1..11).map(|number| node(number, &[&cidr(number)])).collect();
    let routes = (1..11).map(|number| route(&cidr(number), instance(number))).collect();
    let mut world = World::new(nodes, routes);
    (1..5).for_each(|number| world.goes(number, false));
    assert_eq!(world.settle(at(0)).len(), 3);
    world.nodes.push(node(1, &[&cidr(1)]));
    let plan = world.plan(at(1));
    let created = plan.due().next().expect("a change").clone();
    assert_eq!(words(&created), "create 10.120.1.0/24 to n1");
    world.planner.sent(at(0), &created);
    let error = CloudError::new(ErrorKind::QuotaExceeded, "full");
    world.planner.applied(at(1), &created, &Err(error));
    world.goes(1, false);
    assert_eq!(world.due(at(2)), NOTHING, "three routes went");
}

/// A node comes back, and the deletion of its route is under way.
#[test]
fn a_route_that_goes_serves_no_node() {
    let mut world = World::new(vec![node(2, &["10.120.2.0/24"])], Vec::new());
    world.former.gone(&node(1, &["10.120.1.0/24"]), true);
    world.table = RouteTable {
        routes: vec![route("10.120.1.0/24", instance(1)), route("10.120.2.0/24", instance(2))],
        ..RouteTable::default()
    }
    .into();
    let deleted = world.plan(at(0)).due().next().expect("a change").clone();
    assert_eq!(words(&deleted), "delete 10.120.1.0/24 to sim://i-1");
    world.planner.sent(at(0), &deleted);
    world.nodes.push(node(1, &["10.120.1.0/24"]));
    let plan = world.plan(at(1));
    assert!(!plan.nodes["n1"].is_complete(), "{plan:?}");
    assert!(plan.nodes["n2"].is_complete(), "{plan:?}");
    let error = CloudError::new(ErrorKind::Busy, "it has changed");
    world.planner.applied(at(2), &deleted, &Err(error));
    assert!(world.plan(at(2)).nodes["n1"].is_complete());
}

#[test]
fn the_window_of_a_deletion_begins_when_it_is_made() {
    let cidr = |number: u8| format!("10.120.{number}.0/24");
    let nodes = (1..11).map(|number| node(number, &[&cidr(number)])).collect();
    let routes = (1..11).map(|number| route(&cidr(number), instance(number))).collect();
    let mut world = World::new(nodes, routes);
    (1..7).for_each(|number| world.goes(number, false));
    let charged: Vec<Planned> = world.plan(at(0)).due().cloned().collect();
    assert_eq!(charged.len(), 3);
    for planned in &charged {
        world.planner.sent(at(0), planned);
        let error = CloudError::new(ErrorKind::Timeout, "late").that_may_be_done();
        world.planner.applied(at(0), planned, &Err(error));
    }
    assert_eq!(world.settle(at(590)).len(), 3, "the same ones");
    assert_eq!(world.settle(at(1180)).len(), 0, "three went less than ten minutes ago");
    assert_eq!(world.settle(at(1190)).len(), 3);
}

#[test]
fn a_replacement_that_the_list_shows_already_is_there_once() {
    let nodes = vec![node(1, &["10.120.1.0/24"])];
    let mut world = World::new(nodes, vec![route("10.120.1.0/24", instance(9))]);
    world.former.gone(&node(9, &["10.120.1.0/24"]), false);
    let plan = world.plan(at(0));
    let replaced = plan.due().next().expect("a change");
    assert_eq!(words(replaced), "replace 10.120.1.0/24 of n1: sim://i-9 -> sim://i-1");
    // The list was read after the change, and its answer comes before the change's.
    let routes = vec![route("10.120.1.0/24", instance(1))];
    world.table = RouteTable { routes, ..RouteTable::default() }.into();
    world.table.apply(&replaced.change, &applied(replaced));
    assert_eq!(world.settle(at(1)), NOTHING, "the route is not taken for two");
}

/// On a replica that does not lead, nodes come and go for months.
#[test]
fn of_many_former_nodes_the_last_ones_are_remembered() {
    let mut former = Former::default();
    let target = |number: usize| RouteTarget::Node(format!("node-{number}"));
    for number in 0..50_000 {
        let name = format!("node-{number}").as_str().into();
        let node = Arc::new(Node { name, ..Node::default() });
        former.gone(&NodeView { node, id: None, left_out: None }, false);
    }
    let remembered = (0..50_000).filter(|number| former.get(&target(*number)).is_some()).count();
    assert!((10_000..=20_000).contains(&remembered), "{remembered}");
    assert!((0..10_000).all(|last| former.get(&target(49_999 - last)).is_some()));
}

#[test]
fn the_target_of_a_node_that_went_is_remembered_while_its_route_may_come() {
    let gone = node(1, &["10.120.1.0/24"]);
    let mut world = World::new(vec![node(2, &[])], Vec::new());
    world.former.gone(&gone, false);
    world.former.retain(at(0), &world.table.targets());
    world.former.retain(at(120), &world.table.targets());
    // A write without an answer is carried out now.
    world.table =
        RouteTable { routes: vec![route("10.120.1.0/24", instance(1))], ..RouteTable::default() }
            .into();
    assert_eq!(world.settle(at(120)), ["delete 10.120.1.0/24 to sim://i-1"]);
    world.former.retain(at(120), &world.table.targets());
    world.former.retain(at(120 + 3600), &world.table.targets());
    assert!(world.former.get(&instance(1)).is_none());
}

/// Another client creates a route again whose deletion was confirmed: the next deletion waits, also
/// if a list in between does not show the route.
#[test]
fn a_route_that_comes_again_and_again_waits() {
    let nodes = vec![node(1, &["10.120.1.0/24"]), node(2, &["10.120.2.0/24"])];
    let mut world = World::new(nodes, Vec::new());
    assert_eq!(world.settle(at(0)).len(), 2);
    let (with, cidr) = (world.table.clone(), net("10.120.1.0/24"));
    world.goes(1, false);
    assert_eq!(world.settle(at(1)).len(), 1);
    world.planner.failures.postpone(cidr, at(60), "something makes it again");
    world.plan(at(2));
    world.table = with;
    assert_eq!(world.due(at(59)), NOTHING);
    assert_eq!(world.due(at(60)), ["delete 10.120.1.0/24 to sim://i-1"]);
}
