//! Changes that were decided and wait for a lane, while something changes.

use std::time::Duration;

use ccm_controller::brake::Limit;
use ccm_sim::{
    cloud::{Operation, SimCloud, routes::RouteWriteKind},
    faults::{Effect, Fault},
};
use tokio::time::sleep;

use crate::world::{World, cidr, name, node};

/// How many calls the program makes at once.
const LANES: usize = 8;
/// The time limit of a call, so long hang the lanes.
const HANGS: Duration = Duration::from_mins(1);
/// The nodes that have their routes; a tenth are fewer than the three that may go.
const NODES: usize = 12;

/// Each lane hangs.
async fn stuck(arguments: &[&str]) -> World {
    let cloud = SimCloud::new();
    let world =
        World::start(&cloud, "c-1", &[arguments, &["--cloud-call-timeout=1m"]].concat()).await;
    world.add_nodes(0..NODES);
    world.reachable(0..NODES).await;
    cloud.router().reset_writes();
    cloud.faults().add(Fault::new(Effect::Hang).on(Operation::ApplyRoutes).times(LANES as u64));
    for number in 0..LANES {
        world.add_nodes([50 + number]);
        sleep(Duration::from_millis(1500)).await;
    }
    world
}

fn deleted(world: &World) -> usize {
    world.cloud.router().written(RouteWriteKind::Delete)
}

/// A person stops all losses of routes.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_waits_follows_new_settings() {
    let world = stuck(&[]).await;
    world.delete_nodes(0..2);
    sleep(Duration::from_secs(5)).await;
    world.configure(|settings| settings.route_loss = Limit::Count(0));
    sleep(HANGS * 5).await;
    assert_eq!(deleted(&world), 0);
    assert_eq!(world.metric("ccm_route_changes_held"), 2);
    world.configure(|settings| settings.route_loss = Limit::Count(1));
    sleep(HANGS).await;
    assert_eq!(deleted(&world), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_waits_needs_its_approval() {
    let world = stuck(&["--route-loss=0"]).await;
    world.approve_all();
    world.delete_nodes(0..2);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(world.metric("ccm_route_changes_held"), 0);
    world.running().annotate_lease("quartet.dev/approved-selector", None);
    world.running().annotate_lease("quartet.dev/approved-until", None);
    sleep(HANGS * 5).await;
    assert_eq!(deleted(&world), 0);
    assert_eq!(world.metric("ccm_route_changes_held"), 2);
}

/// The node has the same address and pod CIDR. route-ccm gives its charge back.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_waits_meets_no_node_that_is_back() {
    let world = stuck(&[]).await;
    world.delete_nodes(0..3);
    sleep(Duration::from_secs(5)).await;
    for number in 0..3 {
        world.api.create(node(&name(number), &[&cidr(number)])).unwrap();
    }
    sleep(HANGS * 2).await;
    assert_eq!(deleted(&world), 0);
    world.reachable(0..NODES).await;
    world.delete_nodes(3..6);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(deleted(&world), 3, "as many as the budget allows");
    assert_eq!(world.metric("ccm_route_changes_held"), 0);
}

/// The API server shows no node any more.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_waits_is_held_if_no_node_is_left() {
    let world = stuck(&[]).await;
    world.delete_nodes(0..2);
    sleep(Duration::from_secs(5)).await;
    world.delete_nodes((2..NODES).chain(50..50 + LANES));
    sleep(HANGS * 5).await;
    assert_eq!(deleted(&world), 0);
}

/// The node that a waiting route is for is gone, or has moved: the route that was decided is never made.
#[tokio::test(start_paused = true)]
async fn a_route_that_waits_is_made_for_the_node_as_it_is() {
    let world = stuck(&[]).await;
    world.add_nodes(20..23);
    sleep(Duration::from_secs(5)).await;
    world.delete_nodes(20..22);
    let mut again = node(&name(21), &[&cidr(21)]);
    again["status"]["addresses"][0]["address"] = "10.0.0.121".into();
    world.api.create(again).unwrap();
    sleep(HANGS * 2).await;
    world.reachable(21..23).await;
    assert_eq!(world.routes()[&cidr(21)], "10.0.0.121");
    let made = world.cloud.router().written(RouteWriteKind::Create);
    assert_eq!((made, deleted(&world)), (LANES + 2, 0));
}
