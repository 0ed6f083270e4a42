//! Routes that do not belong to this cluster.

use super::*;

#[test]
fn foreign_routes_are_counted_and_stay() {
    // 19, 24, 25, 27 and 28 differ: only a proof makes an unknown target ours.
    let other = RouteTarget::Address("10.9.9.9".parse().expect("an address"));
    let blackhole = |cidr: &str| Route { target: None, ..route(cidr, instance(1)) };
    let theirs = Route { owner: Some(owner("other", 1)), ..route("10.120.8.0/24", instance(1)) };
    let mut world = World::new(
        vec![node(1, &["10.120.1.0/24"])],
        vec![
            route("10.120.1.0/24", instance(1)),
            blackhole("10.120.3.0/24"),
            blackhole("10.1.3.0/24"),
            route("10.120.4.0/24", other.clone()),
            route("10.0.0.0/8", instance(1)),
            route("0.0.0.0/0", instance(1)),
            theirs,
        ],
    );
    let plan = world.plan(at(0));
    assert_eq!(plan.due().count(), 0);
    let counts =
        (plan.counts.ours, plan.counts.unknown, plan.counts.foreign, plan.counts.elsewhere);
    assert_eq!(counts, (1, 1, 2, 3));
    assert_eq!(plan.questions, vec![other.clone()]);
    assert_eq!(plan.witnesses, [instance(1)]);
    let answers =
        vec![(other.clone(), Ok(TargetState::Exists)), (instance(1), Ok(TargetState::Exists))];
    assert_eq!(world.planner.record_answers(at(0), answers, &plan.witnesses), None);
    let plan = world.plan(at(1));
    assert_eq!((plan.counts.unknown, plan.counts.foreign), (0, 3));
    assert_eq!((plan.due().count(), plan.questions.len()), (0, 0));
    assert_eq!(world.plan(at(600)).questions, [other], "asked again");
}

#[test]
fn an_unknown_target_needs_two_proofs() {
    let other = RouteTarget::Address("10.9.9.9".parse().expect("an address"));
    let routes = vec![route("10.120.1.0/24", instance(1)), route("10.120.4.0/24", other.clone())];
    let mut world = World::new(vec![node(1, &["10.120.1.0/24"])], routes);
    assert_eq!(world.plan(at(0)).questions, vec![other.clone()]);
    world.planner.record_answers(at(0), vec![(other.clone(), Ok(gone()))], &[]);
    let plan = world.plan(at(1));
    assert_eq!((plan.due().count(), plan.questions.len(), plan.next), (0, 0, Some(at(60))));
    assert_eq!(world.plan(at(60)).questions, vec![other.clone()]);
    world.planner.record_answers(at(60), vec![(other.clone(), Ok(gone()))], &[]);
    assert_eq!(world.settle(at(61)), ["delete 10.120.4.0/24 to 10.9.9.9"]);
}

/// The cloud shows the end of a target only by its route: the provider's statement counts after
/// five minutes.
#[test]
fn a_blackhole_is_replaced_after_two_words_of_the_provider() {
    let other = RouteTarget::Blackhole("rtb-1/10.120.4.0".to_owned());
    let routes = vec![route("10.120.1.0/24", instance(1)), route("10.120.4.0/24", other.clone())];
    let nodes = vec![node(1, &["10.120.1.0/24"]), node(4, &["10.120.4.0/24"])];
    let mut world = World::new(nodes, routes);
    let gone = || Ok(TargetState::Gone(AbsenceProof::new(ProofMethod::ProvidersWord, "gone")));
    assert_eq!(world.plan(at(0)).questions, vec![other.clone()]);
    world.planner.record_answers(at(0), vec![(other.clone(), gone())], &[]);
    world.planner.record_answers(at(60), vec![(other.clone(), gone())], &[]);
    assert_eq!(world.due(at(61)), NOTHING, "too early for a word");
    world.planner.record_answers(at(300), vec![(other, gone())], &[]);
    assert_eq!(
        world.due(at(301)),
        ["replace 10.120.4.0/24 of n4: a blackhole (rtb-1/10.120.4.0) -> n4"]
    );
}

/// A pending change is not a failure: its node waits, the table is listed, and if the list does not
/// show it, it is sent again after a growing pause, or the pause that the cloud asks for.
#[test]
fn a_change_that_the_cloud_is_still_making_is_sent_again_after_a_pause() {
    let words = ["create 10.120.1.0/24 to n1"];
    for (asked, pauses) in [(None, [2, 4, 8, 16]), (Some(60), [60; 4])] {
        let mut world = World::new(vec![node(1, &["10.120.1.0/24"])], Vec::new());
        let mut now = 0;
        for pause in pauses {
            let plan = world.plan(at(now));
            let planned = plan.due().next().expect("a change").clone();
            world.planner.sent(at(now), &planned);
            let mut error = CloudError::new(ErrorKind::Pending, "the fabric is programmed");
            error.retry_after = asked.map(Duration::from_secs);
            assert!(world.planner.applied(at(now), &planned, &Err(error)), "the table is listed");
            world.planner.listed(at(now), &world.table);
            let plan = world.plan(at(now + pause - 1));
            assert_eq!((plan.due().count(), why(&plan, "n1").1), (0, Some(false)));
            let held: Vec<_> = plan.changes.iter().filter_map(|one| one.held.as_ref()).collect();
            let [held] = held[..] else { panic!("{plan:?}") };
            assert!(held.to_string().starts_with("the cloud is still making the change"), "{held}");
            now += pause;
            assert_eq!(world.due(at(now)), words);
        }
    }
}

/// The list shows that the cloud has made the change: nothing waits for it any more.
#[test]
fn a_change_that_was_pending_holds_nothing_once_its_route_exists() {
    let mut world = World::new(vec![node(1, &["10.120.1.0/24"])], Vec::new());
    let planned = world.plan(at(0)).due().next().expect("a change").clone();
    world.planner.sent(at(0), &planned);
    let mut error = CloudError::new(ErrorKind::Pending, "the fabric is programmed");
    error.retry_after = Some(Duration::from_mins(5));
    world.planner.applied(at(0), &planned, &Err(error));
    let routes = vec![route("10.120.1.0/24", instance(1))];
    world.table = Table::from(RouteTable { routes, ..RouteTable::default() });
    world.planner.listed(at(1), &world.table);
    assert_eq!(world.due(at(1)), NOTHING);
    // The route goes with its node at once, and does not wait for the pause.
    world.nodes.push(node(2, &[]));
    world.goes(1, true);
    assert_eq!(world.due(at(2)).len(), 1, "{:?}", world.plan(at(2)));
}

/// A conflict is not a failure, and the next list shows the changes of others.
#[test]
fn a_change_that_met_another_one_is_sent_again_after_the_list() {
    let mut world = World::new(vec![node(1, &["10.120.1.0/24"])], Vec::new());
    let planned = world.plan(at(0)).due().next().expect("a change").clone();
    let busy = CloudError::new(ErrorKind::Busy, "another version");
    assert!(world.planner.applied(at(0), &planned, &Err(busy)), "the table is listed");
    assert_eq!((world.due(at(1)), why(&world.plan(at(1)), "n1").1), (Vec::new(), Some(false)));
    world.planner.listed(at(1), &world.table);
    assert_eq!(world.due(at(1)), ["create 10.120.1.0/24 to n1"]);
}

#[test]
fn an_answer_that_denies_a_witness_proves_nothing() {
    let other = RouteTarget::Address("10.9.9.9".parse().expect("an address"));
    let routes = vec![route("10.120.1.0/24", instance(1)), route("10.120.4.0/24", other.clone())];
    let mut world = World::new(vec![node(1, &["10.120.1.0/24"])], routes);
    for time in [0, 60, 120, 180] {
        let plan = world.plan(at(time));
        assert_eq!(plan.questions, vec![other.clone()]);
        let answers = vec![(other.clone(), Ok(gone())), (instance(1), Ok(gone()))];
        let denied = world.planner.record_answers(at(time), answers, &plan.witnesses);
        assert_eq!(denied, Some(instance(1)));
    }
    assert_eq!(world.due(at(240)), NOTHING);
}

#[test]
fn a_foreign_route_in_the_way_is_a_clear_failure() {
    let other = RouteTarget::Address("10.9.9.9".parse().expect("an address"));
    let routes = vec![route("10.120.1.0/24", other.clone())];
    let mut world =
        World::new(vec![node(1, &["10.120.1.0/24"]), node(2, &["10.120.2.0/24"])], routes);
    assert_eq!(world.settle(at(0)), ["create 10.120.2.0/24 to n2"], "the other node goes on");
    assert_eq!(why(&world.plan(at(0)), "n1").1, Some(false));
    world.planner.record_answers(at(0), vec![(other.clone(), Ok(TargetState::Exists))], &[]);
    let plan = world.plan(at(1));
    let (why, has_failed) = why(&plan, "n1");
    assert_eq!(has_failed, Some(true));
    assert!(why.contains("10.120.1.0/24 to 10.9.9.9, of another owner"), "{why}");
    // Once the target is proven to be gone, the route is replaced.
    world.planner.record_answers(at(600), vec![(other.clone(), Ok(gone()))], &[]);
    world.planner.record_answers(at(660), vec![(other, Ok(gone()))], &[]);
    assert_eq!(world.due(at(660)), ["replace 10.120.1.0/24 of n1: 10.9.9.9 -> 10.0.0.1"]);
}

#[test]
fn recorded_routes_are_ours_wherever_they_lie() {
    let ours = |cidr: &str| Route { owner: Some(owner("ours", 9)), ..route(cidr, instance(9)) };
    let routes =
        vec![route("10.120.1.0/24", instance(1)), ours("10.120.9.0/24"), ours("10.7.9.0/24")];
    let mut world = World::new(vec![node(1, &["10.120.1.0/24"])], routes);
    assert_eq!(
        world.settle(at(0)),
        ["delete 10.7.9.0/24 to sim://i-9", "delete 10.120.9.0/24 to sim://i-9"]
    );
}

/// Returns nodes 1 to this one with their routes, and a route to an unknown target.
fn with_unknown(last: u8) -> (World, RouteTarget) {
    let other = RouteTarget::Address("10.9.9.9".parse().expect("an address"));
    let cidr = |number: u8| format!("10.120.{number}.0/24");
    let nodes = (1..=last).map(|number| node(number, &[&cidr(number)])).collect();
    let mut routes: Vec<Route> =
        (1..=last).map(|number| route(&cidr(number), instance(number))).collect();
    routes.push(route("10.120.200.0/24", other.clone()));
    (World::new(nodes, routes), other)
}

/// Asks once; the instances of these nodes and the unknown target are gone.
fn ask(world: &mut World, now: At, dead: impl Fn(u8) -> bool) -> Option<RouteTarget> {
    let plan = world.plan(now);
    let numbers: Vec<RouteTarget> = (1..=60).filter(|number| dead(*number)).map(instance).collect();
    let state = |target: &RouteTarget| match numbers.contains(target) {
        true => gone(),
        false => TargetState::Exists,
    };
    let mut answers: Vec<_> =
        plan.witnesses.iter().map(|target| (target.clone(), Ok(state(target)))).collect();
    answers.extend(plan.questions.iter().map(|target| (target.clone(), Ok(gone()))));
    world.planner.record_answers(now, answers, &plan.witnesses)
}

#[test]
fn a_node_without_its_instance_does_not_stop_the_proofs() {
    for nodes in [2, 3, 12] {
        let (mut world, other) = with_unknown(nodes);
        assert_eq!(ask(&mut world, at(0), |number| number == 1), None, "{nodes}");
        assert_eq!(ask(&mut world, at(60), |number| number == 1), None, "{nodes}");
        assert_eq!(world.due(at(61)), [format!("delete 10.120.200.0/24 to {other}")], "{nodes}");
    }
}

#[test]
fn most_witnesses_have_to_exist() {
    let (mut world, _) = with_unknown(1);
    assert!(ask(&mut world, at(0), |_| true).is_some(), "the only one");
    let (mut world, _) = with_unknown(60);
    for minute in 0..30 {
        // The answer has a third of the existing targets.
        let denied = ask(&mut world, at(60 * minute), |number| number % 3 != 0);
        if denied.is_none() {
            assert_eq!(world.due(at(60 * minute + 1)), NOTHING, "{minute}");
        }
    }
}

#[test]
fn other_witnesses_are_asked_next_time() {
    // Most nodes at the beginning of the table have lost their instance.
    let (mut world, _) = with_unknown(60);
    let mut asked = std::collections::BTreeSet::new();
    for minute in 0..20 {
        let plan = world.plan(at(60 * minute));
        asked.extend(plan.witnesses.clone());
        ask(&mut world, at(60 * minute), |_| true);
    }
    assert!(asked.len() >= 40, "{} of 60 nodes", asked.len());
}

#[test]
fn answers_without_any_about_witnesses_prove_nothing() {
    let (mut world, other) = with_unknown(3);
    for time in [0, 60, 120] {
        let plan = world.plan(at(time));
        let mut answers = vec![(other.clone(), Ok(gone()))];
        let error = CloudError::new(ErrorKind::Unavailable, "down");
        answers.extend(plan.witnesses.iter().map(|one| (one.clone(), Err(error.clone()))));
        world.planner.record_answers(at(time), answers, &plan.witnesses);
    }
    assert_eq!(world.due(at(180)), NOTHING);
}

#[test]
fn ours_to_a_gone_target_goes_though_a_foreign_one_stays() {
    let other = RouteTarget::Address("10.9.9.9".parse().expect("an address"));
    let routes = vec![route("10.120.1.0/24", instance(9)), route("10.120.1.0/24", other.clone())];
    let mut world = World::new(vec![node(1, &["10.120.1.0/24"])], routes);
    world.traits.several_targets = true;
    world.former.gone(&node(9, &["10.120.1.0/24"]), false);
    assert_eq!(world.due(at(0)), NOTHING, "the other target may be gone as well");
    world.planner.record_answers(at(0), vec![(other.clone(), Ok(TargetState::Exists))], &[]);
    assert_eq!(world.settle(at(1)), ["delete 10.120.1.0/24 to sim://i-9"]);
    assert_eq!(world.table.to(net("10.120.1.0/24")), [route("10.120.1.0/24", other)]);
    assert!(why(&world.plan(at(2)), "n1").0.contains("of another owner"));
}

#[test]
fn ours_to_an_old_address_of_the_node_stays_beside_a_foreign_one() {
    let (hop, other) =
        (RouteTarget::Address([10, 0, 1, 1].into()), RouteTarget::Address([10, 9, 9, 9].into()));
    let routes = vec![route("10.120.1.0/24", hop), route("10.120.1.0/24", other.clone())];
    let after = node(1, &["10.120.1.0/24"]);
    let mut world = World::new(vec![after.clone()], routes);
    world.traits.several_targets = true;
    let mut before = Node::clone(&after.node);
    before.addresses = vec![Address::new("InternalIP", "10.0.1.1")];
    world.former.record_change(&NodeView { node: Arc::new(before), ..after.clone() }, &after);
    world.planner.record_answers(at(0), vec![(other, Ok(TargetState::Exists))], &[]);
    assert_eq!(world.due(at(1)), NOTHING, "it may be the only one that still works");
}

#[test]
fn responsibility_is_inside_or_equal() {
    // 1 to 12; quirk 11: a wider route is never ours.
    for (cluster, destination, expect) in [
        ("10.244.0.0/16", "10.244.0.0/24", true),
        ("10.244.0.0/16", "10.244.10.0/24", true),
        ("10.244.0.0/16", "10.244.255.0/24", true),
        ("10.244.0.0/14", "10.244.0.0/24", true),
        ("10.244.0.0/14", "10.247.255.0/24", true),
        ("a00:100::/10", "a00:100::/24", true),
        ("10.244.0.0/16", "10.224.0.0/24", false),
        ("10.244.0.0/16", "10.0.10.0/24", false),
        ("10.244.0.0/16", "10.255.255.0/24", false),
        ("10.244.0.0/14", "10.248.0.0/24", false),
        ("10.244.0.0/14", "10.243.255.0/24", false),
        ("a00:100::/10", "b00:100::/24", false),
        ("10.244.0.0/16", "10.244.0.0/16", true),
        ("10.244.0.0/16", "10.244.0.0/15", false),
        ("10.244.0.0/16", "0.0.0.0/0", false),
    ] {
        let inside = wanted::is_inside(net(destination), &[net(cluster).trunc()]);
        assert_eq!(inside, expect, "{destination} in {cluster}");
    }
}

#[test]
fn what_only_a_change_of_the_cluster_cidrs_makes_ours_waits_for_a_person() {
    let other = RouteTarget::Address("10.9.9.9".parse().expect("an address"));
    let old = vec![net("10.120.0.0/24"), net("10.120.1.0/24")];
    let stray = route("10.120.7.0/24", instance(1));
    let recorded = Route { owner: Some(owner("ours", 1)), ..route("10.120.8.0/24", instance(1)) };
    for (routes, expect) in [
        (vec![stray.clone()], &["held"][..]),
        (vec![recorded], &["due"]),
        (vec![route("10.120.0.0/24", instance(1))], &["due"]),
        (vec![route("10.120.9.0/24", other.clone())], &["held"]),
    ] {
        let own = route("10.120.1.0/24", instance(1));
        let routes = [vec![own], routes].concat();
        let mut world = World::new(vec![node(1, &["10.120.1.0/24"])], routes);
        world.planner = Planner::resume(at(0), Window::default(), old.clone());
        for time in [0, 60] {
            world.plan(at(time));
            world.planner.record_answers(at(time), vec![(other.clone(), Ok(gone()))], &[]);
        }
        let plan = world.plan(at(6 * 3600));
        let found: Vec<_> = plan.changes.iter().map(|one| &one.held).collect();
        let found: Vec<_> =
            found.into_iter().map(|held| held.as_ref().map_or("due", |_| "held")).collect();
        assert_eq!(found, expect, "{:?}", plan.changes);
        let is_held = expect == ["held"];
        assert_eq!((plan.counts.held == 1, world.planner.networks == old), (is_held, is_held));
        world.approval = Some(approves("*"));
        let plan = world.plan(at(6 * 3600));
        assert_eq!((plan.counts.held, plan.due().count()), (0, 1), "a person approves it");
    }
    // Nothing is in doubt in the new network, so the next one is compared with it.
    let own = route("10.120.1.0/24", instance(1));
    let mut world = World::new(vec![node(1, &["10.120.1.0/24"])], vec![own]);
    world.planner = Planner::resume(at(0), Window::default(), old);
    world.plan(at(0));
    assert_eq!(world.planner.networks, world.cidrs);
    let empty = AppliedChange { route: Some(stray), ..AppliedChange::default() };
    let wanted = RouteChange::Delete(Box::new(route("10.120.7.0/24", other)));
    world.table.apply(&wanted, &empty);
    assert_eq!(world.due(at(1)), ["delete 10.120.7.0/24 to sim://i-1"]);
}

#[test]
fn a_route_under_another_uid_serves_its_node() {
    let lent = |target| Route { owner: Some(owner("other", 1)), ..route("10.120.1.0/24", target) };
    let mut world = World::new(vec![node(1, &["10.120.1.0/24"])], vec![lent(instance(1))]);
    let plan = world.plan(at(0));
    assert!(plan.nodes.values().all(NodeRoutes::is_complete));
    assert_eq!((plan.counts.lent, plan.counts.foreign, plan.counts.nodes_complete), (1, 0, 1));
    assert_eq!((plan.changes.len(), plan.problems.len()), (0, 1));
    assert!(plan.problems[0].1.to_string().contains("check --cluster-uid"));
    // A route that does not carry traffic, or that leads elsewhere, does not.
    let defective = Route { defect: Some("down".to_owned()), ..lent(instance(1)) };
    for routes in
        [vec![defective], vec![lent(instance(2))], vec![lent(instance(1)), lent(instance(2))]]
    {
        let mut world = World::new(vec![node(1, &["10.120.1.0/24"])], routes);
        let plan = world.plan(at(0));
        assert_eq!((plan.counts.lent, plan.counts.nodes_incomplete), (0, 1), "{:?}", world.table);
    }
}
