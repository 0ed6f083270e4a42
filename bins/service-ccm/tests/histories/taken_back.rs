//! Deletions that users take back, and the removal of a finalizer whose answer is lost.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    apiserver::{Action, Fault as ApiFault, Verb},
    cloud::Operation,
    faults::Trouble,
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    cases::{SOON, on},
    neighbours::THEIRS,
    watched::is_protected,
    world::World,
};

/// A type that keeps the node ports, so that the configuration is the same afterwards.
const INTERNAL: &str = "NodePort";

impl World {
    /// One Service whose load balancer the cloud takes this long to delete.
    async fn that_deletes_in(time: Duration) -> Self {
        let world = Self::with_services(0..1).await;
        world.cloud.balancers().configure(|settings| settings.times.delete = time);
        world
    }

    /// The number of failing load balancers in the metrics.
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

/// The API server removes the finalizer, and its answer is lost. Before the program sees that,
/// another controller sets the finalizer of the same name.
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_is_set_after_a_lost_answer_is_another_controllers() {
    let mut world = World::that_deletes_in(Duration::from_secs(5)).await;
    world.set_type(0, INTERNAL);
    world.patch(0, json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": THEIRS}}));
    sleep(Duration::from_secs(2)).await;
    let lost = ApiFault::new(Action::DropAfterApply).verb(Verb::Patch).resource("services");
    world.api.faults().add(lost.lasting(Duration::from_secs(6)));
    let down = Action::Status { code: 503, retry_after: None };
    let blind = ApiFault::new(down).verb(Verb::Watch).resource("services");
    world.api.faults().add(blind.lasting(Duration::from_secs(8)));
    world.api.cut_watches("", true);
    for _ in 0..60 {
        sleep(Duration::from_secs(1)).await;
        world.neighbours_work();
    }
    let service = world.service(0).unwrap();
    assert!(world.neighbours.has(&service) && is_protected(&service), "{service}");
    assert!(world.ours().is_empty());
    assert_eq!(world.broken.take(), []);
}
