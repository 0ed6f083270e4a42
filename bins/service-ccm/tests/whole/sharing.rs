//! Services whose load balancer is shared, or was not made for them: they keep it, and no other one
//! is made for them.

use std::time::Duration;

use ccm_cloud::{ClusterId, Owner};
use ccm_sim::apiserver::PatchKind;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    cases::{FINALIZER, SOON},
    world::{NODES, Variant, World},
};

const ADOPT: &str = "quartet.dev/adopt-load-balancer";
/// The annotation of the simulated cloud's provider.
const NAMED: &str = "sim/load-balancer-id";
const SHARED: &str = "lb-shared";
/// The ID of a load balancer that a person has made.
const BY_HAND: &str = "of-others-0";

/// Returns the owner as another controller of this cluster records it, without UIDs.
fn named(number: usize) -> Owner {
    let (namespace, name) = ("default".to_owned(), format!("web-{number}"));
    let cluster = ClusterId { name: "kubernetes".to_owned(), uid: String::new() };
    Owner { cluster, uid: String::new(), namespace, name }
}

impl World {
    /// Creates Services 1 and 2 that share a load balancer, which another controller has made for
    /// the first one, and whose annotation is lost; 3 is on one that a person has made. No process
    /// of this program runs.
    async fn shared(variant: Variant) -> Self {
        let mut world = Self::start(variant).await;
        world.stop();
        let mut shared = world.cloud.balancers().get(BY_HAND).unwrap();
        SHARED.clone_into(&mut shared.id);
        shared.addresses = vec!["192.0.2.99".parse().unwrap()];
        shared.owners = vec![named(1), named(2)];
        world.cloud.balancers().add(shared);
        for (number, address, id) in [
            (1, "192.0.2.99", None),
            (2, "192.0.2.99", Some(SHARED)),
            (3, "192.0.2.0", Some(BY_HAND)),
        ] {
            world.create_with(number, json!({NAMED: id}));
            world.patch(number, json!({"metadata": {"finalizers": [FINALIZER]}}));
            let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}});
            let key = Self::service_key(number);
            world.api.patch("services", &key, "status", PatchKind::Merge, status).unwrap();
        }
        world.cloud.reset_calls();
        world
    }

    fn ingress(&self, number: usize) -> Value {
        self.service(number).unwrap()["status"]["loadBalancer"]["ingress"].clone()
    }

    /// Returns reason and message of the condition.
    fn says(&self, number: usize) -> String {
        let (reason, message) = self.provisioning(number);
        format!("{reason}: {message}")
    }
}

const ON_FOREIGN: [usize; 3] = [1, 2, 3];

#[tokio::test(start_paused = true)]
async fn a_service_on_a_load_balancer_of_others_keeps_it_and_gets_no_second_one() {
    for variant in [Variant::default(), Variant::with(&["--adopt-load-balancers=true"])] {
        let mut world = World::shared(variant).await;
        let (before, shown) =
            (world.cloud.balancers().all(), ON_FOREIGN.map(|at| world.ingress(at)));
        world.restart().await;
        sleep(SOON).await;
        let calls = world.cloud.calls().load_balancers;
        assert_eq!((calls.list, calls.total()), (2, 2), "this cluster's and everything");
        world.add_node(NODES);
        sleep(Duration::from_hours(1)).await;
        let calls = world.cloud.calls().load_balancers;
        assert_eq!(calls.total(), calls.list, "{calls:?}");
        assert!(calls.list <= 2 + 2 * 12, "two lists for each audit, for all of them: {calls:?}");
        assert_eq!(world.cloud.balancers().all(), before);
        assert_eq!(ON_FOREIGN.map(|at| world.ingress(at)), shown);
        let plans = world.plans();
        for (number, names) in [
            (1, vec![SHARED, "shared by 2 Services", "no other one is created"]),
            (2, vec![SHARED, "shared by 2 Services", "annotation sim/load-balancer-id: "]),
            (3, vec![BY_HAND, "belongs to this cluster", "annotation sim/load-balancer-id: "]),
        ] {
            let says = world.says(number);
            assert!(says.starts_with("Conflict: "), "{number}: {says}");
            assert!(names.iter().all(|name| says.contains(name)), "{number}: {says}");
            assert!(plans.contains(&world.provisioning(number).1), "{plans}");
        }
        // Without the annotation it gets its own, at once.
        world.patch(2, json!({"metadata": {"annotations": {NAMED: null}}}));
        sleep(SOON).await;
        assert_eq!(world.ours().len(), 1);
        assert_ne!(world.ingress(2), shown[1]);
        // The other Service is then alone.
        world.cloud.balancers().update(SHARED, |shared| {
            shared.owners.clear();
            shared.made_for = Some(named(1));
        });
        sleep(Duration::from_mins(6)).await;
        let adopts = !variant.arguments.is_empty();
        let says = world.says(1);
        assert_eq!(says.starts_with("WaitingForAdoption: "), !adopts, "{says}");
        assert_eq!(world.ours().len(), if adopts { 2 } else { 1 });
        assert_eq!(world.ingress(1), shown[0]);
        // A person deletes what a Service names: the Service gets its own.
        world.cloud.balancers().remove(BY_HAND);
        sleep(Duration::from_mins(6)).await;
        assert_ne!(world.ingress(3), shown[2]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_shared_one_of_its_name_holds_no_service_without_an_address() {
    let mut world = World::shared(Variant::default()).await;
    let status = json!({"status": {"loadBalancer": {"ingress": null}}});
    world
        .api
        .patch("services", &World::service_key(1), "status", PatchKind::Merge, status)
        .unwrap();
    world.restart().await;
    sleep(SOON).await;
    assert!(world.has_address(1), "{}", world.says(1));
    assert_eq!(world.ours().len(), 1);
}

/// The cloud is not asked, and nothing has to be protected.
#[tokio::test(start_paused = true)]
async fn a_new_service_that_names_a_load_balancer_is_refused_until_the_annotation_goes() {
    let world = World::new().await;
    for (number, id) in [(0, BY_HAND), (1, "lb-of-another-project")] {
        world.create_with(number, json!({NAMED: id}));
    }
    sleep(Duration::from_hours(1)).await;
    let calls = world.cloud.calls().load_balancers;
    assert_eq!((calls.ensure, world.ours().len()), (0, 0), "{calls:?}");
    for (number, id) in [(0, BY_HAND), (1, "lb-of-another-project")] {
        let says = world.says(number);
        assert!(says.starts_with("InvalidConfiguration: "), "{says}");
        let names = ["annotation sim/load-balancer-id: ", id, "remove the annotation"];
        assert!(names.iter().all(|name| says.contains(name)), "{says}");
        assert!(world.service(number).unwrap()["metadata"]["finalizers"].is_null());
    }
    world.patch(0, json!({"metadata": {"annotations": {NAMED: null}}}));
    // It names the one to adopt, so the other annotation does not count as a mistake.
    world.patch(1, json!({"metadata": {"annotations": {ADOPT: "lb-of-another-project"}}}));
    sleep(2 * SOON).await;
    assert!(world.has_address(0));
    let says = world.says(1);
    assert!(says.contains("annotation quartet.dev/adopt-load-balancer: "), "{says}");
    // The same Service goes to another type and back, also by another process.
    let mut world = world;
    world.restart().await;
    world.set_type(0, "ClusterIP");
    sleep(SOON).await;
    let annotations = &world.service(0).unwrap()["metadata"]["annotations"];
    assert!(annotations[NAMED].is_null(), "{annotations}");
    world.set_type(0, "LoadBalancer");
    sleep(SOON).await;
    assert!(world.has_address(0), "{}", world.says(0));
}
