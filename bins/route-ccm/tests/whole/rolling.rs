//! All nodes are replaced one by one, and nothing marks the old ones.

use std::time::Duration;

use ccm_sim::{
    cloud::{Operation, SimCloud},
    faults::{Effect, Fault},
};
use tokio::time::{Instant, sleep};

use crate::world::{World, cidr, instance, name};

const NODES: usize = 100;
/// The time between two replacements: all in twenty minutes.
const EACH: Duration = Duration::from_secs(12);
/// The time after which a machine follows its node, or a node its machine.
const APART: Duration = Duration::from_secs(6);
/// Within this time after its registration a node has its route.
const SOON: Duration = Duration::from_mins(2);

async fn cluster(records_owner: bool) -> World {
    let cloud = SimCloud::new();
    cloud.router().configure(|settings| {
        settings.quota = Some(u32::try_from(NODES * 3 / 2).unwrap());
        settings.traits.records_owner = records_owner;
    });
    let world = World::start(&cloud, "c-1", &[]).await;
    world.add_nodes(0..NODES);
    world.reachable([0, NODES - 1]).await;
    sleep(Duration::from_mins(1)).await;
    world
}

fn is_reachable(world: &World, number: usize) -> bool {
    world.condition(&name(number)).is_some_and(|[status, ..]| status == "False")
}

#[tokio::test(start_paused = true)]
async fn each_new_node_has_its_route_within_two_minutes() {
    for (records_owner, machine_first) in [(false, true), (true, false)] {
        let world = cluster(records_owner).await;
        let mut waiting: Vec<(usize, Instant)> = Vec::new();
        let mut longest = Duration::ZERO;
        for number in 0..NODES + 20 {
            if number < NODES {
                world.add_nodes([NODES + number]);
                waiting.push((NODES + number, Instant::now()));
                for step in [machine_first, !machine_first] {
                    match step {
                        true => drop(world.cloud.remove(&instance(&name(number)).id)),
                        false => world.delete_nodes([number]),
                    }
                    sleep(APART).await;
                }
            } else {
                sleep(EACH).await;
            }
            waiting.retain(|(number, since)| {
                let is_there = is_reachable(&world, *number);
                longest = longest.max(since.elapsed());
                assert!(
                    is_there || since.elapsed() < SOON,
                    "{} of {NODES} nodes are replaced ({records_owner}, {machine_first}), and node {number} has no route after {:?}; {} routes, {} held",
                    number - NODES,
                    since.elapsed(),
                    world.routes().len(),
                    world.metric("ccm_route_changes_held"),
                );
                !is_there
            });
        }
        assert!(waiting.is_empty(), "{waiting:?}");
        assert!((NODES..2 * NODES).all(|number| is_reachable(&world, number)));
        sleep(Duration::from_mins(5)).await;
        let left = world.routes().keys().filter(|one| **one < cidr(NODES)).count();
        assert_eq!(
            (world.routes().len(), world.metric("ccm_route_changes_held")),
            (NODES, 0),
            "{left}"
        );
    }
}

/// Nodes that a person has deleted, or that a list does not show, have their machines: their routes are held.
#[tokio::test(start_paused = true)]
async fn a_machine_that_exists_keeps_its_route_whatever_the_nodes_say() {
    for denies in [false, true] {
        let world = cluster(true).await;
        if denies {
            // The machines are gone, and the cloud denies those of living nodes as well.
            (0..40).for_each(|number| drop(world.cloud.remove(&instance(&name(number)).id)));
            world.cloud.faults().add(Fault::new(Effect::WrongProject).on(Operation::FindTargets));
        }
        world.delete_nodes(0..40);
        sleep(Duration::from_mins(9)).await;
        assert_eq!(world.routes().len(), NODES - 10, "a tenth");
        assert_eq!(world.metric("ccm_route_changes_held"), 30);
        let asked = world.cloud.calls().routes.find_targets;
        assert!((2..=20).contains(&asked), "{asked} questions in nine minutes");
    }
}
