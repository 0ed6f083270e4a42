//! Node IPAM, the routes of other owners and the calls for other nodes are also causes.

use ccm_cloud::RouteChange;

use super::*;

#[test]
fn of_a_node_without_pod_cidrs_the_page_says_what_node_ipam_says() {
    let mut world = listed(vec![node(1, &[])], Vec::new());
    let all = [
        ObjectState::Working,
        ObjectState::Held,
        ObjectState::Blocked,
        ObjectState::Foreign,
        ObjectState::Unknown,
    ];
    for state in all {
        world.asked.ipam = Some(Explanation::new(state, "its cause", "its fix"));
        let cause =
            "the node has no podCIDRs, so it does not get a route; node-ipam says: its cause";
        says(&world.node("n1"), state, cause, "its fix");
    }
    // Node IPAM may wait for the list itself.
    let mut world = World::new(vec![node(1, &[])], Vec::new());
    world.pass(0);
    for (state, cause) in [
        (ObjectState::Working, "the routes are not listed yet"),
        (ObjectState::Blocked, "says: its cause"),
    ] {
        world.asked.ipam = Some(Explanation::new(state, "its cause", "wait"));
        says(&world.node("n1"), state, cause, "wait");
    }
}

#[test]
fn another_program_has_a_minute_to_assign_pod_cidrs() {
    let mut world = World::new(vec![node(1, &[])], Vec::new());
    says(&world.node("n1"), ObjectState::Working, "the node does not have podCIDRs yet", "wait");
    world.pass(30);
    says(&world.node("n1"), ObjectState::Working, "the node does not have podCIDRs yet", "wait");
    let later = world.machine.explain_node("n1", &world.asked, at(90));
    says(&later, ObjectState::Blocked, "the node has no podCIDRs", "--allocate-node-cidrs=true");
    world.machine.leads = false;
    says(
        &world.node("n1"),
        ObjectState::Unknown,
        "the node has no podCIDRs",
        "get lease route-ccm",
    );
}

#[test]
fn a_route_in_the_way_comes_before_what_the_node_lacks() {
    let bare = with(&own(), |node| node.addresses.clear());
    let foreign = Route { target: None, ..route("10.120.1.0/24", 1) };
    let explained = listed(vec![bare], vec![foreign]).node("n1");
    let fix = "remove it, or give the node another pod CIDR";
    says(&explained, ObjectState::Blocked, "to nothing, of another owner", fix);
    assert!(explained.fix == fix && explained.cause.ends_with("of another owner"));
}

#[test]
fn a_lent_route_says_nothing_of_the_other_pod_cidr() {
    let both = with(&node(1, &["10.120.1.0/24", "fd00::/64"]), |node| {
        node.conditions.clear();
        node.addresses.push(Address::new("InternalIP", "fd00::1"));
    });
    let lent = Route { owner: Some(owner("theirs", "n1")), ..route("10.120.1.0/24", 1) };
    let target = RouteTarget::Address("fd00::1".parse().expect("an address"));
    let world = listed(vec![both], vec![lent, Route::new(net("fd00::/64"), target)]);
    let cause = "the route of 10.120.1.0/24 was made by cluster test (UID theirs)";
    says(&world.route("10.120.1.0/24"), ObjectState::Fine, cause, "check --cluster-uid");
    says(&world.route("fd00::/64"), ObjectState::Fine, "to fd00::1 exists, by the list", NOTHING);
    let there = world.node("n1").there;
    let lines = [
        "route of 10.120.1.0/24 to 10.0.0.1, another owner's: cluster test (UID theirs)",
        "route of fd00::/64 to fd00::1, this cluster's: its target is node n1",
    ];
    let are_there = there.iter().zip(lines).all(|(line, begin)| line.starts_with(begin));
    assert!(are_there && there.len() == 2, "{there:#?}");
}

#[test]
fn a_failure_is_told_also_while_the_change_waits_for_those_of_other_nodes() {
    let mut world = listed(vec![own()], Vec::new());
    let words = "Quota exceeded for resources: ['router']";
    let error = CloudError::new(ErrorKind::QuotaExceeded, words).with_request_id("r-2");
    world.answer(2, Err(error));
    for number in 0..1000 {
        let old = route(&format!("10.121.{}.{}/32", number / 250, number % 250), 2);
        let change = RouteChange::Delete(Box::new(old));
        let planned = Planned { change, node: None, why: String::new(), held: None };
        world.machine.planner.sent(at(59), &planned);
    }
    let cause = format!(
        "the change of the route of 10.120.1.0/24 has failed once: quota_exceeded: {words} (request r-2)"
    );
    says(&world.node("n1"), ObjectState::Blocked, &cause, "raise the quota of the cloud project");
}

#[test]
fn an_observer_points_to_what_is_decided() {
    let mut world = World::new(vec![own()], Vec::new());
    world.machine.fixed.is_observing = true;
    world.list();
    let promise = "--mode=observe does not write; the line decided says which step is due";
    let fix = "the controller that leads does it, or this one with --mode=control";
    says(&world.node("n1"), ObjectState::Working, promise, fix);
}

#[test]
fn a_route_of_nobody_says_whose_it_is() {
    let routes = vec![
        route("10.99.0.0/24", 1),
        Route { target: None, ..route("10.120.2.0/24", 1) },
        Route { owner: Some(owner("theirs", "x")), ..route("10.120.3.0/24", 1) },
        route("10.120.4.0/24", 77),
    ];
    let world = listed(vec![node(1, &["10.120.1.0/24"])], routes);
    for (cidr, state, cause, fix) in [
        ("10.99.0.0/24", ObjectState::Foreign, "it is not inside --cluster-cidr", NOTHING),
        ("10.120.2.0/24", ObjectState::Foreign, "it drops packets", NOTHING),
        ("10.120.3.0/24", ObjectState::Foreign, "cluster test (UID theirs) is recorded", NOTHING),
        ("10.120.4.0/24", ObjectState::Working, "asking the cloud if it exists", "wait"),
        ("10.120.5.0/24", ObjectState::Unknown, "has no route", "check the CIDR"),
        ("n1", ObjectState::Unknown, "is not a CIDR", "use kind=Route&name="),
    ] {
        says(&world.route(cidr), state, cause, fix);
    }
}

/// The list has an entry for it, so nobody knows that there is no route.
#[test]
fn a_route_that_cannot_be_read_is_not_absent() {
    let mut world = World::new(vec![own()], Vec::new());
    world.pass(0);
    let malformed = vec!["route to \"10.120.9.0/24\": its target is of an unknown kind".to_owned()];
    let routes = vec![route("10.120.1.0/24", 1)];
    world.listed(1, Ok(RouteTable { routes, malformed, ..RouteTable::default() }));
    let explained = world.route("10.120.9.0/24");
    let cause = "its entry in the cloud's list cannot be read: route to";
    says(&explained, ObjectState::Working, cause, "wait");
    assert!(explained.there[0].contains("cannot be read"), "{explained:?}");
    // The entry may be about any other destination.
    says(&world.route("10.120.8.0/24"), ObjectState::Unknown, "1 more entries cannot be read", "");
}
