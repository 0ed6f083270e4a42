//! Confirmed writes that are due again: other clients, policies and clouds that undo them cause few
//! calls, and nodes with several addresses of a family cause no calls.

use std::time::Duration;

use ccm_sim::apiserver::PatchKind;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    cases::{FINALIZER, SOON},
    world::World,
};

const REPEATED: &str = "ccm_repeated_writes_total";
/// The maximum number of equal writes to one object within ten minutes.
const MOST: usize = 9;

impl World {
    fn set_members(&self) -> u32 {
        self.metric("ccm_service_operations_total{operation=\"set_members\",result=\"done\"} ")
    }

    fn ensured(&self) -> u32 {
        self.metric("ccm_service_operations_total{operation=\"ensure\",result=\"done\"} ")
    }

    fn deleted(&self) -> u32 {
        self.metric("ccm_service_operations_total{operation=\"delete\",result=\"done\"} ")
    }

    fn written(&self, kind: &str) -> u32 {
        self.metric(&format!("ccm_service_writes_total{{kind=\"{kind}\",result=\"ok\"}} "))
    }

    fn repeats(&self, write: &str) -> u32 {
        self.metric(&format!("{REPEATED}{{object=\"Service\",write=\"{write}\"}} "))
    }

    /// Writes this change as another client every 100 ms, for this time.
    async fn taken_back(&self, patch: Value, lasting: Duration) {
        let part = if patch["status"].is_null() { "" } else { "status" };
        for _ in 0..lasting.as_millis() / 100 {
            self.api
                .patch("services", &Self::service_key(0), part, PatchKind::Merge, patch.clone())
                .ok();
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// The change that another client writes every 100 ms, the kind of the program's write, and the
/// name of that write in the metric.
#[tokio::test(start_paused = true)]
async fn a_writer_that_takes_changes_back_costs_few_writes() {
    let id = "quartet.dev/load-balancer-id";
    let other = json!({"ingress": [{"ip": "192.0.2.99"}]});
    for (patch, kind, write) in [
        (json!({"metadata": {"annotations": {id: null}}}), "status", "annotations"),
        (json!({"metadata": {"annotations": {id: "another"}}}), "status", "annotations"),
        (json!({"metadata": {"finalizers": []}}), "protect", "finalizer"),
        (json!({"status": {"loadBalancer": null}}), "status", "addresses"),
        (json!({"status": {"loadBalancer": other}}), "status", "addresses"),
        (json!({"status": {"conditions": []}}), "status", "LoadBalancerServing"),
    ] {
        let world = World::with_services(0..1).await;
        let (before, calls) = (world.written(kind), world.ensured() + world.set_members());
        let lasting = Duration::from_mins(10);
        world.taken_back(patch.clone(), lasting).await;
        let count = (world.written(kind) - before) as usize;
        assert!((3..=2 * MOST).contains(&count), "{patch}: {count} writes");
        assert!(world.repeats(write) > 0, "{patch}");
        let events = world.events("RepeatedWrite");
        let told = events.iter().filter(|text| text.contains(&format!(" {write} ")));
        assert_eq!(told.count(), 1, "{patch}: {events:?}");
        // The load balancer has kept its address.
        assert!(world.events("LoadBalancerAddressChanged").is_empty(), "{patch}");
        let made = world.ensured() + world.set_members() - calls;
        assert!(made <= 9, "{patch}: {made} calls");
        // The other client stops, and everything is restored within the longest pause.
        sleep(Duration::from_mins(6)).await;
        let service = world.service(0).unwrap();
        assert_eq!(service["metadata"]["finalizers"], json!([FINALIZER]), "{patch}");
        assert!(world.has_address(0) && service["metadata"]["annotations"][id] != "another");
    }
}

/// Another client adds the finalizer again and again: service-ccm does not repeat the deletion and
/// the removal at that rate.
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_comes_back_costs_few_deletions() {
    let world = World::with_services(0..1).await;
    world.set_type(0, "ClusterIP");
    sleep(SOON).await;
    let patch = json!({"metadata": {"finalizers": [FINALIZER]}});
    world.taken_back(patch, Duration::from_mins(10)).await;
    let (released, deleted) = (world.written("release") as usize, world.deleted() as usize);
    // The Service does not show any more that the finalizer belongs to this program.
    assert_eq!((released, deleted), (1, 1));
    assert_eq!(world.events("UnclaimedFinalizer").len(), 1);
}
