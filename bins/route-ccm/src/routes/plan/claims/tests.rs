use ccm_cloud::{
    AddressKind, CloudError, ErrorKind, NodeAddress, ProviderId, Route, RouteTraits, TargetState,
};
use ccm_objects::Address;

use super::*;
use crate::routes::plan::{
    tests::{World, at, gone, instance, node, owner, route, why},
    wanted::{LeftOut, NodeView},
};

const NOTHING: [String; 0] = [];

fn hop(last: u8) -> RouteTarget {
    RouteTarget::Address([10, 0, 0, last].into())
}

/// Returns nodes 1 and 2 with their routes, and a route to 10.0.0.99 that another owner has made.
fn world() -> World {
    let nodes = vec![node(1, &["10.120.1.0/24"]), node(2, &["10.120.2.0/24"])];
    let routes = vec![
        route("10.120.1.0/24", hop(1)),
        route("10.120.2.0/24", hop(2)),
        route("10.120.200.0/24", hop(99)),
    ];
    let mut world = World::new(nodes, routes);
    world.traits = RouteTraits { target_addresses: true, ..RouteTraits::default() };
    world.has_instances = true;
    world
}

/// Returns the instance of a node, as the cloud has it.
fn machine(number: u8) -> Instance {
    let id = ProviderId::parse(&format!("sim://i-{number}")).expect("an ID");
    let address = NodeAddress::new(AddressKind::InternalIp, format!("10.0.0.{number}"));
    Instance { addresses: vec![address], ..Instance::new(id, format!("n{number}")) }
}

fn found(instance: Instance) -> Lookup {
    Lookup::Found(Box::new(instance))
}

/// Answers all questions of a plan: it has one instance for the number in each node's name.
fn answer(world: &mut World, now: At) -> usize {
    let claims = world.plan(now).claims;
    let number = |claim: &Claim| claim.node.name.trim_start_matches('n').parse().expect("a number");
    let answers: Vec<_> = claims
        .into_iter()
        .map(|claim| (claim.clone(), Ok(found(machine(number(&claim))))))
        .collect();
    let count = answers.len();
    world.planner.claimed(now, answers);
    count
}

/// Lets the node with this number name these addresses as its own.
fn says(world: &mut World, number: u8, addresses: &[u8]) {
    let name = format!("n{number}");
    let place = world.nodes.iter().position(|view| *view.node.name == *name).expect("a node");
    let before = world.nodes[place].clone();
    let mut after = Node::clone(&before.node);
    after.addresses =
        addresses.iter().map(|last| Address::new("InternalIP", format!("10.0.0.{last}"))).collect();
    let after = NodeView { node: Arc::new(after), ..before.clone() };
    world.former.record_change(&before, &after);
    world.nodes[place] = after;
}

/// Lets the unknown target exist.
fn exists(world: &mut World, now: At) {
    let plan = world.plan(now);
    let answers = plan.questions.iter().map(|one| (one.clone(), Ok(TargetState::Exists)));
    world.planner.record_answers(now, answers.collect(), &plan.witnesses);
}

#[test]
fn an_address_that_only_a_node_says_takes_no_route() {
    let mut world = world();
    assert_eq!(answer(&mut world, at(0)), 2);
    exists(&mut world, at(0));
    // A kubelet adds the target of a foreign route to its addresses, and removes it again.
    says(&mut world, 1, &[1, 99]);
    assert_eq!(world.due(at(1)), NOTHING, "the cloud has not been asked");
    assert_eq!(answer(&mut world, at(1)), 1);
    assert_eq!(world.settle(at(2)), NOTHING);
    says(&mut world, 1, &[1]);
    for time in [3, 60, 600, 3600] {
        exists(&mut world, at(time));
        answer(&mut world, at(time));
        assert_eq!(world.settle(at(time)), NOTHING, "{time}");
    }
    // A node that comes with its destination as its pod CIDR does not do that either.
    world.nodes.push(node(3, &["10.120.200.0/24"]));
    says(&mut world, 3, &[99]);
    assert_eq!(world.settle(at(4000)), NOTHING);
    assert_eq!(world.plan(at(4000)).counts.nodes_complete, 3, "the route serves the node");
    says(&mut world, 3, &[3]);
    answer(&mut world, at(4001));
    exists(&mut world, at(4001));
    assert_eq!(world.settle(at(5000)), NOTHING);
    assert!(why(&world.plan(at(5000)), "n3").0.contains("of another owner"));
}

/// A route to an excluded node waits for a person. The statement of that node alone does not allow
/// its removal for another node.
#[test]
fn a_node_that_is_left_out_takes_no_route_by_its_word() {
    for (is_its, expect) in
        [(false, &[][..]), (true, &["replace 10.120.200.0/24 of n3: 10.0.0.99 -> 10.0.0.3"])]
    {
        let mut world = world();
        let left_out = Some(LeftOut::NotSelected);
        world.nodes.push(node(3, &["10.120.200.0/24"]));
        world.nodes.push(NodeView { left_out, ..node(4, &[]) });
        says(&mut world, 4, &[4, 99]);
        assert_eq!(world.due(at(1)), NOTHING, "the cloud has not been asked");
        let mut instance = machine(4);
        if is_its {
            instance.addresses.push(NodeAddress::new(AddressKind::InternalIp, "10.0.0.99"));
        }
        for time in [2, 60, 600] {
            let claims = world.plan(at(time)).claims;
            let of_node = claims.into_iter().filter(|claim| *claim.node.name == *"n4");
            let answers = of_node.map(|claim| (claim, Ok(found(instance.clone()))));
            let answers = answers.collect();
            world.planner.claimed(at(time), answers);
        }
        assert_eq!(world.settle(at(601)), expect, "{is_its}");
    }
}

#[test]
fn what_the_cloud_has_confirmed_is_ours_when_the_node_is_gone() {
    let mut world = world();
    answer(&mut world, at(0));
    world.goes(1, false);
    assert_eq!(world.settle(at(1)), ["delete 10.120.1.0/24 to 10.0.0.1"]);
    // The instance is asked for when it is already gone.
    let mut world = self::world();
    world.goes(1, false);
    assert_eq!(world.settle(at(1)), NOTHING);
    answer(&mut world, at(1));
    assert_eq!(world.settle(at(2)), ["delete 10.120.1.0/24 to 10.0.0.1"]);
    // If the instance is also gone, or has another address, the end of the target needs a proof.
    let mut world = self::world();
    says(&mut world, 2, &[2]);
    world.goes(1, false);
    let claims = world.plan(at(0)).claims.into_iter();
    let other = |claim| (claim, Ok(found(machine(9))));
    world.planner.claimed(at(0), claims.map(other).collect());
    assert_eq!(world.settle(at(1)), NOTHING);
    for time in [1, 61] {
        let plan = world.plan(at(time));
        let mut answers = vec![(hop(2), Ok(TargetState::Exists))];
        let state = |one: &RouteTarget| if *one == hop(1) { gone() } else { TargetState::Exists };
        answers.extend(plan.questions.iter().map(|one| (one.clone(), Ok(state(one)))));
        world.planner.record_answers(at(time), answers, &plan.witnesses);
    }
    assert_eq!(world.settle(at(62)), ["delete 10.120.1.0/24 to 10.0.0.1"]);
}

#[test]
fn a_route_to_another_address_of_the_node_waits_for_the_cloud() {
    // An earlier leader has left a route to a node that now has another pod CIDR.
    let mut world = world();
    world.nodes[0] = node(1, &["10.120.7.0/24"]);
    assert_eq!(world.due(at(0)), ["create 10.120.7.0/24 to n1"]);
    answer(&mut world, at(0));
    let due = world.due(at(1));
    assert!(due.contains(&"delete 10.120.1.0/24 to 10.0.0.1".to_owned()), "{due:?}");
    // Another route is where a node needs it.
    let mut world = self::world();
    world.nodes[0] = node(1, &["10.120.2.0/24"]);
    world.nodes.remove(1);
    world.nodes.push(node(3, &["10.120.1.0/24"]));
    assert_eq!(world.due(at(0)), NOTHING);
    let (text, has_failed) = why(&world.plan(at(0)), "n3");
    assert_eq!(has_failed, Some(false));
    assert!(text.contains("which node n1 claims"), "{text}");
    answer(&mut world, at(0));
    assert!(
        world.due(at(1)).contains(&"replace 10.120.1.0/24 of n3: 10.0.0.1 -> 10.0.0.3".to_owned())
    );
}

#[test]
fn what_this_process_has_made_is_ours_wherever_it_leads() {
    let mut world = world();
    // Its kubelet reports an old address, until node-ccm corrects it.
    world.nodes.push(node(3, &["10.120.3.0/24"]));
    says(&mut world, 3, &[77]);
    let plan = world.plan(at(0));
    let planned = plan.due().next().expect("a change");
    let made = ccm_cloud::AppliedChange {
        route: Some(route("10.120.3.0/24", hop(77))),
        ..ccm_cloud::AppliedChange::default()
    };
    world.planner.applied(at(0), planned, &Ok(made.clone()));
    world.table.apply(&planned.change, &made);
    says(&mut world, 3, &[3]);
    assert_eq!(world.due(at(1)), ["replace 10.120.3.0/24 of n3: 10.0.0.77 -> 10.0.0.3"]);
    // Only this route is ours. Another one to that target is not.
    let other = ccm_cloud::RouteChange::Create(Arc::new(ccm_cloud::WantedRoute {
        destination: crate::routes::plan::tests::net("10.120.201.0/24"),
        ..planned_route(planned)
    }));
    let theirs = route("10.120.201.0/24", hop(77));
    let applied = ccm_cloud::AppliedChange { route: Some(theirs), ..made };
    world.table.apply(&other, &applied);
    assert_eq!(world.due(at(2)), ["replace 10.120.3.0/24 of n3: 10.0.0.77 -> 10.0.0.3"]);
}

fn planned_route(planned: &crate::routes::plan::Planned) -> ccm_cloud::WantedRoute {
    match &planned.change {
        ccm_cloud::RouteChange::Create(new) => ccm_cloud::WantedRoute::clone(new),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_that_does_not_come_is_asked_for_again() {
    let answers = |error: ErrorKind| {
        let mut world = world();
        world.nodes[0] = node(1, &["10.120.7.0/24"]);
        let claims = world.plan(at(0)).claims;
        let failed = |claim| (claim, Err(CloudError::new(error, "no")));
        world.planner.claimed(at(0), claims.into_iter().map(failed).collect());
        world
    };
    // This is only for the moment.
    let mut world = answers(ErrorKind::Unavailable);
    let plan = world.plan(at(1));
    assert_eq!((plan.claims.len(), plan.next), (0, Some(at(15))));
    assert_eq!(plan.due().count(), 1, "{:?}", plan.changes);
    assert_eq!(answer(&mut world, at(15)), 2);
    assert_eq!(world.due(at(15)).len(), 2);
    // The cloud cannot be asked.
    let mut world = answers(ErrorKind::Forbidden);
    assert_eq!(world.due(at(1)).len(), 2);
    // A token may just have expired, so the second such answer in a row counts.
    let mut world = answers(ErrorKind::Unauthorized);
    assert_eq!(world.due(at(1)).len(), 1);
    let again = |error| {
        let mut world = answers(ErrorKind::Unauthorized);
        let claims = world.plan(at(15)).claims.into_iter();
        let failed = |claim| (claim, Err(CloudError::new(error, "no")));
        world.planner.claimed(at(15), claims.map(failed).collect());
        world.due(at(16)).len()
    };
    assert_eq!(again(ErrorKind::Unauthorized), 2);
    assert_eq!(again(ErrorKind::Unavailable), 1);
    let mut world = self::world();
    world.has_instances = false;
    world.nodes[0] = node(1, &["10.120.7.0/24"]);
    assert_eq!((world.due(at(0)).len(), world.plan(at(0)).claims.len()), (2, 0));
}

#[test]
fn routes_with_an_owner_and_targets_by_name_need_no_question() {
    let named = RouteTarget::Node("n1".to_owned());
    let recorded = Route { owner: Some(owner("ours", 2)), ..route("10.120.8.0/24", hop(2)) };
    let mut world = World::new(world().nodes, vec![route("10.120.7.0/24", named), recorded]);
    world.has_instances = true;
    let plan = world.plan(at(0));
    assert_eq!((plan.claims.len(), plan.changes.len()), (0, 4), "{:?}", plan.changes);
}

#[test]
fn a_target_by_id_is_the_nodes_if_something_else_agrees() {
    let view = node(1, &[]);
    let target = instance(1);
    let named = |name: &str, addresses: Vec<NodeAddress>| Instance {
        name: name.to_owned(),
        addresses,
        ..machine(1)
    };
    let other = NodeAddress::new(AddressKind::InternalIp, "10.0.0.9");
    assert!(has(&named("n1.example", vec![other.clone()]), &view.node, &target));
    assert!(has(&named("x", machine(1).addresses), &view.node, &target));
    assert!(!has(&named("x", vec![other]), &view.node, &target));
    assert!(!has(&machine(2), &node(2, &[]).node, &target));
    assert!(!has(&machine(1), &view.node, &hop(9)) && has(&machine(1), &view.node, &hop(1)));
}

#[test]
fn what_no_route_has_is_forgotten() {
    let mut world = world();
    answer(&mut world, at(0));
    let empty = crate::routes::plan::Table::default();
    world.planner.listed(at(0), &empty);
    world.planner.listed(at(0) + KEPT, &empty);
    assert_eq!(answer(&mut world, at(0) + KEPT), 2);
}
