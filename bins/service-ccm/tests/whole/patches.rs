//! How often a Service is written to.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{apiserver::Verb, cloud::Operation, faults::Trouble};
use tokio::time::sleep;

use crate::{
    cases::{SOON, on},
    world::{NODES, World},
};

impl World {
    /// Returns the number of writes to Services since the last call.
    fn patches(&self) -> usize {
        let count = self.api.audit().count("service-ccm/", Verb::Patch, "services");
        self.api.audit().reset();
        count
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_is_written_twice_when_it_is_created_and_once_when_it_is_deleted() {
    let world = World::new().await;
    world.create(0);
    sleep(SOON).await;
    assert!(world.has_address(0));
    assert_eq!(world.patches(), 2, "finalizer and condition; status, condition and annotations");
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.patches(), 0, "audits write nothing");
    world.delete(0);
    sleep(SOON).await;
    assert!(world.service(0).is_none());
    assert_eq!(world.patches(), 1, "the finalizer");
}

/// A cloud that fails and recovers all the time is shown twice a minute at most.
#[tokio::test(start_paused = true)]
async fn conditions_of_one_service_are_rewritten_at_most_once_in_half_a_minute() {
    let world = World::with_services(0..1).await;
    world.patches();
    for round in 0..30 {
        let error = CloudError::new(ErrorKind::Unavailable, "no");
        world.cloud.faults().add(on(Operation::SetMembers, 0, Trouble::Fail(error)).times(1));
        if round % 2 == 0 {
            world.add_node(NODES);
        } else {
            world.api.delete("nodes", &World::node_name(NODES)).unwrap();
        }
        sleep(Duration::from_secs(20)).await;
    }
    let count = world.patches();
    assert!((2..=21).contains(&count), "{count} writes in ten minutes");
    world.cloud.faults().clear();
    sleep(Duration::from_mins(2)).await;
    let conditions = world.service(0).unwrap()["status"]["conditions"].to_string();
    assert!(conditions.contains("\"Provisioned\""), "{conditions}");
}
