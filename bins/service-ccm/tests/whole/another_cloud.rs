//! The cloud is another project, which shows no load balancers.

use std::time::Duration;

use tokio::time::sleep;

use crate::world::{NODES, World};

#[tokio::test(start_paused = true)]
async fn nothing_is_made_or_deleted_while_the_cloud_is_another_project() {
    for restarts in [false, true] {
        let mut world = World::with_services(0..4).await;
        world.running().lose_project(&world.cloud);
        if restarts {
            world.restart().await;
        }
        world.create(4);
        world.api.delete("services", &World::service_key(0)).unwrap();
        world.add_node(NODES);
        world.cloud.balancers().reset_writes();
        let (before, calls) = (world.ours(), world.cloud.calls());
        sleep(Duration::from_secs(2)).await;
        assert!(world.running().is_changed());
        assert!(world.line("cloud-identity").starts_with("[!]the cloud is another one"));
        sleep(Duration::from_hours(6)).await;
        assert_eq!((world.ours(), world.cloud.calls()), (before, calls), "{restarts}");
        assert_eq!(world.cloud.balancers().writes().len(), 0);
        let reported = world.events("CloudChanged").len();
        assert!((1..=2).contains(&reported), "{reported} times: not with each retry");
        assert!(world.service(0).is_some(), "the finalizer of the deleted Service stays");
        (1..4).for_each(|number| assert!(world.has_address(number)));
        assert!(!world.has_address(4));

        world.running().approve_project(&world.cloud);
        sleep(Duration::from_mins(10)).await;
        assert!(world.service(0).is_none() && world.has_address(4));
        assert_eq!((world.ours().len(), world.members(1)), (4, NODES + 1));
        assert!(!world.running().is_changed());
    }
}
