//! More nodes than the calls under way have room for.

use super::*;

fn nodes(count: u8) -> Vec<NodeView> {
    (1..=count).map(|number| node(number, &[&format!("10.120.{number}.0/24")])).collect()
}

#[test]
fn nodes_wait_for_those_before_them() {
    let mut world = World { sendable: 2, ..World::new(nodes(3), Vec::new()) };
    let plan = world.plan(at(0));
    let sent: Vec<Planned> = plan.due().cloned().collect();
    assert_eq!(
        sent.iter().map(words).collect::<Vec<_>>(),
        ["create 10.120.1.0/24 to n1", "create 10.120.2.0/24 to n2"]
    );
    let waits = "the route of 10.120.3.0/24 waits for other nodes' routes";
    assert_eq!(why(&plan, "n3"), (waits.to_owned(), Some(false)));
    for planned in &sent {
        world.planner.sent(at(0), planned);
        world.planner.applied(at(1), planned, &Ok(applied(planned)));
        world.table.apply(&planned.change, &applied(planned));
    }
    assert_eq!(world.due(at(1)), ["create 10.120.3.0/24 to n3"]);
}

#[test]
fn a_node_that_fails_takes_no_place_of_others() {
    let mut world = World { sendable: 1, ..World::new(nodes(2), Vec::new()) };
    let first = world.plan(at(0)).due().next().expect("a change").clone();
    let error = CloudError::new(ErrorKind::Invalid, "not this one");
    world.planner.applied(at(0), &first, &Err(error));
    assert_eq!(world.due(at(1)), ["create 10.120.2.0/24 to n2"]);
    world.sendable = 0;
    assert_eq!(why(&world.plan(at(1)), "n1").1, Some(true), "its failure is still shown");
}

#[test]
fn calls_are_full_as_long_as_nodes_wait() {
    let mut sent = InFlight::default();
    let traits = |max_batch| RouteTraits { max_batch, ..RouteTraits::default() };
    let room = |sent: &InFlight, now| [1, 500, 5000].map(|most| sent.room(now, &traits(most)));
    let block = |number: u32| IpNet::new((0x0a00_0000 + number * 256).to_be_bytes().into(), 24);
    assert_eq!(room(&sent, at(0)), [1000, 1000, 5000]);
    (0..300).for_each(|number| sent.insert(block(number).expect("a network"), at(0), None));
    assert_eq!(room(&sent, at(0)), [700, 500, 0]);
    // Hanging calls do not take the places of others, up to a limit.
    assert_eq!(sent.next(at(0)), Some(at(3)));
    assert_eq!(room(&sent, at(3)), [1000, 1000, 0]);
    (0..3900).for_each(|number| sent.insert(block(number).expect("a network"), at(3), None));
    assert_eq!(room(&sent, at(6)), [100, 0, 0]);
    assert_eq!(sent.next(at(6)), None);
}
