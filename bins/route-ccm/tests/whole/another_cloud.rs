//! The cloud is another project, which shows no routes and no machines.

use std::time::Duration;

use ccm_sim::cloud::SimCloud;
use tokio::time::sleep;

use crate::world::{World, cidr, name, node};

#[tokio::test(start_paused = true)]
async fn no_route_is_made_or_deleted_while_the_cloud_is_another_project() {
    for restarts in [false, true] {
        let mut world = World::start(&SimCloud::new(), "c-1", &[]).await;
        world.add_nodes(0..4);
        world.reachable(0..4).await;
        world.running().lose_project(&world.cloud);
        if restarts {
            world.restart().await;
        }
        world.delete_nodes(0..1);
        world.add(node(&name(4), &[&cidr(4)]));
        let before = (world.routes(), (1..4).map(|one| world.writes_to(&name(one))).sum::<usize>());
        let calls = world.cloud.calls();
        sleep(Duration::from_secs(2)).await;
        assert!(world.running().is_changed());
        sleep(Duration::from_hours(6)).await;
        let after = (world.routes(), (1..4).map(|one| world.writes_to(&name(one))).sum::<usize>());
        assert_eq!((after, world.cloud.calls()), (before, calls), "{restarts}");

        world.running().approve_project(&world.cloud);
        sleep(Duration::from_mins(10)).await;
        world.reachable(1..5).await;
        assert!(!world.running().is_changed() && !world.routes().contains_key(&cidr(0)));
    }
}
