//! Load balancers whose digest exists although they are not as wanted: their creation was
//! interrupted, or another client has changed them.

use std::time::Duration;

use ccm_sim::{
    apiserver::PatchKind,
    cloud::balancers::{Outcome, SimBalancer, State},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{cases::SOON, world::World};

const ID: &str = "quartet.dev/load-balancer-id";

impl World {
    /// Returns a Service with a floating address, and no process.
    async fn floating() -> Self {
        let mut world = Self::new().await;
        world.create_with(0, json!({"sim/floating": "true"}));
        sleep(SOON).await;
        assert!(world.has_address(0));
        world.stop();
        world
    }

    /// Puts another load balancer in place of the Service's, as it is after the first request of a
    /// creation: whole and with its digest, but at no floating address.
    fn left(&self, id: &str, state: State) {
        let before = self.ours().remove(0);
        self.cloud.balancers().remove(&before.id);
        let balancer = SimBalancer { id: id.to_owned(), state, created: Instant::now(), ..before };
        self.cloud.balancers().add(balancer);
        self.cloud.balancers().reset_writes();
    }

    /// Returns true if this load balancer has its floating address, and the Service says so.
    fn is_whole(&self, id: &str) -> bool {
        let annotation = self.service(0).unwrap()["metadata"]["annotations"][ID].clone();
        let writes = self.cloud.balancers().writes();
        annotation == id && writes.iter().any(|one| one.id == id && one.line.contains("attach"))
    }
}

/// The Service shows the address of the load balancer before.
#[tokio::test(start_paused = true)]
async fn a_replacement_without_its_floating_address_is_finished_by_the_next_leader() {
    let mut world = World::floating().await;
    let shown = world.service(0).unwrap()["status"]["loadBalancer"].clone();
    world.left("lb-new", State::Ready);
    world.restart().await;
    sleep(SOON).await;
    assert!(world.is_whole("lb-new"), "{:?}", world.cloud.balancers().writes());
    assert_eq!(world.service(0).unwrap()["status"]["loadBalancer"], shown);
}

/// Load balancers that Services record as complete cost nothing.
#[tokio::test(start_paused = true)]
async fn a_restart_with_fifty_services_is_one_list() {
    let mut world = World::with_services(0..50).await;
    sleep(SOON).await;
    let services = world.api.list("services");
    world.cloud.balancers().reset_writes();
    world.cloud.reset_calls();
    world.restart().await;
    sleep(Duration::from_mins(4)).await;
    let calls = world.cloud.calls().load_balancers;
    assert_eq!((calls.list, calls.total()), (1, 1), "{calls:?}");
    assert_eq!(world.cloud.balancers().writes(), []);
    assert_eq!(world.api.list("services"), services);
}

/// A new Service, whose load balancer the cloud still works on.
#[tokio::test(start_paused = true)]
async fn a_creation_that_was_left_is_finished_as_soon_as_the_cloud_is_ready() {
    let mut world = World::floating().await;
    world.patch(0, json!({"metadata": {"annotations": {ID: null, "sim/load-balancer-id": null}}}));
    let none = json!({"status": {"conditions": null, "loadBalancer": {"ingress": null}}});
    let key = World::service_key(0);
    world.api.patch("services", &key, "status", PatchKind::Merge, none).unwrap();
    let until = Some(Instant::now() + Duration::from_secs(30));
    world.left("lb-new", State::Pending { what: "create", until, then: Outcome::Done });
    world.restart().await;
    sleep(Duration::from_secs(30) + SOON).await;
    assert!(world.is_whole("lb-new"), "{:?}", world.cloud.balancers().writes());
    assert!(world.has_address(0));
}

/// The cloud still works on the change of another client when the audit lists the load balancer.
#[tokio::test(start_paused = true)]
async fn what_another_client_changes_is_compared_when_the_cloud_is_ready() {
    let world = World::with_services(0..1).await;
    sleep(SOON).await;
    let before = world.ours().remove(0);
    let until = Some(Instant::now() + Duration::from_mins(7));
    world.cloud.balancers().update(&before.id, |balancer| {
        balancer.configuration.listeners.clear();
        balancer.state = State::Pending { what: "update", until, then: Outcome::Done };
    });
    sleep(Duration::from_mins(8)).await;
    assert_eq!(world.ours()[0].configuration, before.configuration);
}
