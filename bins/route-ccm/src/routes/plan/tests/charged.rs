//! Charges to the budget, and refunds.

use super::*;

const FIRST: &str = "10.120.1.0/24";

/// Returns a world in which node 1 has gone unmarked, and its route with it; node 21 has had the
/// same pod CIDR, and is gone as well.
fn twice(was_marked: bool) -> (World, Planned) {
    let mut world = World::new(
        (1..=9).map(|one| node(one, &[&format!("10.120.{one}.0/24")])).collect(),
        vec![],
    );
    world.settle(at(0));
    world.goes(1, false);
    assert_eq!(world.settle(at(10)).len(), 1);
    assert_eq!(charged(&world), [FIRST]);
    world.nodes.push(node(21, &[FIRST]));
    world.settle(at(20));
    world.goes(21, was_marked);
    let due: Vec<Planned> = world.plan(at(30)).due().cloned().collect();
    let [planned] = due.try_into().expect("one change");
    world.planner.sent(at(30), &planned);
    (world, planned)
}

fn charged(world: &World) -> Vec<String> {
    world.planner.window().after(At::default()).map(|(_, paid)| paid.to_owned()).collect()
}

fn fails(world: &mut World, planned: &Planned, maybe_done: bool) {
    let error = CloudError::new(ErrorKind::Unavailable, "not now");
    let error = if maybe_done { error.that_may_be_done() } else { error };
    world.planner.applied(at(31), planned, &Err(error));
}

#[test]
fn a_failed_change_gives_back_no_charge_of_an_earlier_one() {
    for was_marked in [true, false] {
        let (mut world, planned) = twice(was_marked);
        fails(&mut world, &planned, false);
        assert_eq!(charged(&world), [FIRST], "marked: {was_marked}");
        world.plan(at(40));
        assert_eq!(charged(&world), [FIRST], "marked: {was_marked}");
    }
}

#[test]
fn what_a_failed_change_was_charged_is_given_back_once() {
    for maybe_done in [false, true] {
        let mut world = World::new(
            (1..=9).map(|one| node(one, &[&format!("10.120.{one}.0/24")])).collect(),
            vec![],
        );
        world.settle(at(0));
        world.goes(1, false);
        // The first of two plans charges it.
        world.plan(at(10));
        let due: Vec<Planned> = world.plan(at(11)).due().cloned().collect();
        world.planner.sent(at(11), &due[0]);
        fails(&mut world, &due[0], maybe_done);
        assert_eq!(charged(&world).is_empty(), !maybe_done);
        // Only losses that route-ccm may carry out stay charged.
        let due: Vec<Planned> = world.plan(at(400)).due().cloned().collect();
        world.planner.sent(at(400), &due[0]);
        fails(&mut world, &due[0], false);
        assert_eq!(charged(&world).is_empty(), !maybe_done);
    }
}

#[test]
fn a_loss_that_is_not_due_any_more_costs_nothing() {
    let mut world = World::new(
        (1..=9).map(|one| node(one, &[&format!("10.120.{one}.0/24")])).collect(),
        vec![],
    );
    world.settle(at(0));
    world.goes(1, false);
    let due = world.plan(at(10)).due().count();
    assert_eq!((due, charged(&world)), (1, vec![FIRST.to_owned()]));
    world.nodes.push(node(1, &[FIRST]));
    assert_eq!(world.plan(at(11)).due().count(), 0);
    assert_eq!(charged(&world), [""; 0]);
}

/// The first loss of the destination is charged. So is the second one as long as it lasts: before
/// it is made, and when it is answered.
#[test]
fn a_destination_that_goes_again_is_charged_anew() {
    for may_have_failed in [false, true] {
        let (mut world, planned) = twice(false);
        let times = |world: &World| -> Vec<At> {
            world.planner.window().after(At::default()).map(|(when, _)| when).collect()
        };
        assert_eq!(times(&world), [at(30)]);
        let error = CloudError::new(ErrorKind::Unavailable, "no answer").that_may_be_done();
        let answer = if may_have_failed { Err(error) } else { Ok(applied(&planned)) };
        world.planner.applied(at(500), &planned, &answer);
        assert_eq!(times(&world), [at(500)], "may have failed: {may_have_failed}");
    }
}
