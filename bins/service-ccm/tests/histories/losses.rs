//! A load balancer loses no more members than the brake allows, whatever happens to its Service.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::{
    cases::SOON,
    world::{NODES, World},
};

/// The window of the brake.
const WINDOW: Duration = Duration::from_hours(6);

impl World {
    fn lose_nodes(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            self.api.delete("nodes", &Self::node_name(number)).unwrap();
        }
    }
}

/// A person takes type and finalizer from it, and changes their mind.
#[tokio::test(start_paused = true)]
async fn a_service_that_is_served_again_has_no_new_budget() {
    for has_new_leader in [false, true] {
        let mut world = World::with_services(0..1).await;
        world.lose_nodes(0..5);
        sleep(SOON).await;
        assert_eq!(world.members(0), NODES - 3);
        world.patch(0, json!({"metadata": {"finalizers": null}, "spec": {"type": "ClusterIP"}}));
        sleep(SOON).await;
        if has_new_leader {
            world.restart().await;
            sleep(SOON).await;
        }
        world.set_type(0, "LoadBalancer");
        sleep(SOON).await;
        assert!(world.has_address(0));
        assert_eq!(world.members(0), NODES - 3, "{has_new_leader}");
        sleep(WINDOW + SOON).await;
        assert_eq!(world.members(0), NODES - 5, "{has_new_leader}");
    }
}
