//! Deletions that users undo, and the removal of a finalizer whose answer is lost.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{cloud::Operation, faults::Trouble};
use tokio::time::sleep;

use crate::{
    cases::{SOON, on},
    world::World,
};

/// This type keeps the node ports, so that the configuration is the same afterwards.
const INTERNAL: &str = "NodePort";

impl World {
    /// Creates a world with one Service whose load balancer the cloud takes this long to delete.
    async fn that_deletes_in(time: Duration) -> Self {
        let world = Self::with_services(0..1).await;
        world.cloud.balancers().configure(|settings| settings.times.delete = time);
        world
    }

    /// Returns the number of failing load balancers in the metrics.
    fn failing(&self) -> String {
        self.metric("ccm_service_load_balancers{state=\"failing\"} ")
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_failed_is_forgotten_when_the_service_asks_again() {
    for lists in [true, false] {
        let world = World::with_services(0..1).await;
        world.cloud.balancers().configure(|settings| settings.traits.lists = lists);
        let error = CloudError::new(ErrorKind::Unauthorized, "no");
        world.cloud.faults().add(on(Operation::DeleteLoadBalancers, 0, Trouble::Fail(error)));
        world.set_type(0, INTERNAL);
        sleep(SOON).await;
        assert_eq!(world.failing(), "1.0");
        // The deletion has removed a part before it failed.
        let before = world.ours().remove(0);
        world.cloud.balancers().update(&before.id, |one| one.configuration.listeners.clear());
        world.cloud.faults().clear();
        world.set_type(0, "LoadBalancer");
        sleep(SOON).await;
        assert!(world.is_served(0), "{:?}", world.service(0));
        assert_eq!(world.failing(), "0.0", "{}", world.line("provisioning"));
        assert_eq!(world.ours()[0].configuration, before.configuration);
        let plans = world.plans();
        assert!(plans.contains("objects: 0"), "{plans}");
    }
}

/// `/plan` shows no call that the Service does not need any more.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_failed_is_not_held_when_the_service_asks_again() {
    let world = World::with_services(0..1).await;
    let error = || Trouble::Fail(CloudError::new(ErrorKind::Unauthorized, "no"));
    world.cloud.faults().add(on(Operation::DeleteLoadBalancers, 0, error()));
    world.cloud.faults().add(on(Operation::EnsureLoadBalancers, 0, error()));
    world.set_type(0, INTERNAL);
    sleep(SOON).await;
    assert!(world.plans().contains("held: 1 delete"), "{}", world.plans());
    world.set_type(0, "LoadBalancer");
    sleep(SOON / 10).await;
    assert!(world.plans().contains("held: 1 ensure"), "{}", world.plans());
    world.set_type(0, INTERNAL);
    sleep(SOON / 10).await;
    assert!(world.plans().contains("held: 1 delete"), "{}", world.plans());
}

/// The Service does not wait for the next audit.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_is_under_way_is_followed_by_a_creation() {
    let world = World::that_deletes_in(Duration::from_secs(10)).await;
    let before = world.ours().remove(0);
    world.set_type(0, INTERNAL);
    sleep(Duration::from_secs(4)).await;
    world.set_type(0, "LoadBalancer");
    sleep(2 * SOON).await;
    assert!(world.is_served(0), "{:?}", world.service(0));
    assert_ne!(world.ours()[0].id, before.id);
    assert_eq!(world.failing(), "0.0");
}
