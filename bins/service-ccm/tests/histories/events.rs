//! What happens in a history.

use rand::Rng as _;

use crate::{
    clouds, cluster, nodes,
    rules::Rules,
    services,
    world::{NODES, World},
};

/// Lets one random thing happen.
pub(crate) async fn next(world: &mut World, rules: &mut Rules) {
    match world.dice.random_range(0..100) {
        0..32 => services::next(world),
        32..54 => nodes::next(world, rules),
        54..57 => lose_all_nodes(world),
        57..63 => (0..NODES).for_each(|number| world.add_node(number)),
        63..77 => clouds::fault(world),
        77..81 => clouds::lie(world),
        81..83 => clouds::stale_leader(world),
        83..88 => clouds::person(world, rules),
        88..91 => clouds::times(world),
        91..96 => cluster::fault(world),
        _ => cluster::change_of_leader(world, rules).await,
    }
}

fn lose_all_nodes(world: &World) {
    for number in 0..NODES {
        world.api.delete("nodes", &World::node_name(number)).ok();
    }
}
