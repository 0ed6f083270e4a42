//! Routes that are not this cluster's.

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
    assert_eq!(world.planner.answered(at(0), answers, &plan.witnesses), None);
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
    world.planner.answered(at(0), vec![(other.clone(), Ok(gone()))], &[]);
    let plan = world.plan(at(1));
    assert_eq!((plan.due().count(), plan.questions.len(), plan.next), (0, 0, Some(at(60))));
    assert_eq!(world.plan(at(60)).questions, vec![other.clone()]);
    world.planner.answered(at(60), vec![(other.clone(), Ok(gone()))], &[]);
    assert_eq!(world.settle(at(61)), ["delete 10.120.4.0/24 to 10.9.9.9"]);
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
        let denied = world.planner.answered(at(time), answers, &plan.witnesses);
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
    world.planner.answered(at(0), vec![(other.clone(), Ok(TargetState::Exists))], &[]);
    let plan = world.plan(at(1));
    let (why, has_failed) = why(&plan, "n1");
    assert_eq!(has_failed, Some(true));
    assert!(why.contains("10.120.1.0/24 to 10.9.9.9, of somebody else"), "{why}");
    // Once the target is proven to be gone, the route is replaced.
    world.planner.answered(at(600), vec![(other.clone(), Ok(gone()))], &[]);
    world.planner.answered(at(660), vec![(other, Ok(gone()))], &[]);
    assert_eq!(world.due(at(660)), ["replace 10.120.1.0/24 to 10.9.9.9 by n1"]);
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
