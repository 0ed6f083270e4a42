//! Load balancers without a Service, and those that no list shows.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    apiserver::{Action, Fault as ApiFault, PatchKind, Verb},
    cloud::{
        Operation,
        balancers::{SimBalancer, Times},
    },
    faults::{Effect, Fault, Trouble},
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    cases::SOON,
    world::{Variant, World},
};

const DELETES: Variant = Variant::with(&["--orphaned-load-balancers=delete"]);
const DELETED: &str = "ccm_service_orphans_deleted_total ";
const HELD: &str = "ccm_service_orphans_held ";

impl World {
    /// These Services have load balancers, and all others are gone without the finalizer.
    async fn with_orphans(variant: Variant, services: usize, orphans: usize) -> Self {
        let world = Self::start(1, variant).await;
        for number in 0..services {
            world.create(number);
        }
        sleep(SOON).await;
        let model = world.ours().remove(0);
        for number in 0..orphans {
            world.add_orphan(&model, &format!("orphan-{number}"));
        }
        world
    }

    /// A load balancer like this one, whose Service has gone.
    fn add_orphan(&self, model: &SimBalancer, name: &str) {
        let mut orphan = model.clone();
        orphan.id = name.to_owned();
        name.clone_into(&mut orphan.owners[0].name);
        orphan.owners[0].uid = format!("uid-of-{name}");
        self.cloud.balancers().add(orphan);
    }

    fn orphans(&self) -> usize {
        self.ours().iter().filter(|one| one.id.starts_with("orphan")).count()
    }
}

async fn minutes(count: u64) {
    sleep(Duration::from_mins(count)).await;
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_deleted_after_a_quarter_of_an_hour_and_no_sooner() {
    let world = World::with_orphans(DELETES, 2, 1).await;
    minutes(14).await;
    assert_eq!((world.orphans(), world.metric::<u32>(DELETED)), (1, 0));
    minutes(12).await;
    assert_eq!((world.orphans(), world.metric::<u32>(DELETED)), (0, 1));
    assert_eq!(world.ours().len(), 2, "what has a Service stays");
    minutes(6).await;
    assert_eq!(world.metric::<u32>("ccm_service_orphans "), 0);
    assert_eq!(world.metric::<u32>("ccm_plan_objects "), 0, "the page is empty again");
}

#[tokio::test(start_paused = true)]
async fn by_default_an_orphan_is_reported_and_kept() {
    let world = World::with_orphans(Variant::default(), 1, 1).await;
    minutes(60).await;
    assert_eq!((world.orphans(), world.metric("ccm_service_orphans ")), (1, 1));
    assert_eq!(world.metric::<u32>("ccm_plan_objects "), 1, "the page says what would be deleted");
    // The setting is live, and the proof is there.
    world.reload(|settings| *settings = settings_of(DELETES));
    minutes(6).await;
    assert_eq!(world.orphans(), 0);
}

fn settings_of(variant: Variant) -> service_ccm::ServiceSettings {
    crate::world::settings(variant).own.as_ref().clone()
}

/// A new leader has seen nothing twice.
#[tokio::test(start_paused = true)]
async fn a_change_of_leader_begins_the_proof_anew() {
    let mut world = World::with_orphans(DELETES, 1, 1).await;
    for _ in 0..4 {
        minutes(14).await;
        world.restart().await;
    }
    assert_eq!(world.orphans(), 1);
    minutes(26).await;
    assert_eq!(world.orphans(), 0);
}

/// The watch lacks a Service that the API server has.
#[tokio::test(start_paused = true)]
async fn a_load_balancer_stays_whose_service_only_the_api_server_has() {
    let mut world = World::start(1, DELETES).await;
    world.create(0);
    sleep(SOON).await;
    let instead = r#"{"kind": "Service", "metadata": 7}"#.into();
    let nonsense = Action::Malformed { name: Some("web-0".to_owned()), instead };
    let fault = || ApiFault::new(nonsense.clone()).resource("services");
    world.api.faults().add(fault().verb(Verb::List).verb(Verb::Watch));
    world.restart().await;
    minutes(6).await;
    assert_eq!(world.metric::<u32>("ccm_service_orphans "), 1, "the store does not have it");
    minutes(120).await;
    assert_eq!((world.ours().len(), world.metric::<u32>(DELETED)), (1, 0));
}

/// The API server has lost all Services, and its own.
#[tokio::test(start_paused = true)]
async fn without_any_service_nothing_is_deleted() {
    let world = World::start(1, DELETES).await;
    world.create(0);
    sleep(SOON).await;
    for service in world.api.list("services") {
        let name = service["metadata"]["name"].as_str().unwrap();
        let (key, none) = (format!("default/{name}"), json!({"metadata": {"finalizers": null}}));
        world.api.patch("services", &key, "", PatchKind::Merge, none).unwrap();
        world.api.delete("services", &key).ok();
    }
    assert!(world.api.list("services").is_empty());
    minutes(120).await;
    assert_eq!((world.ours().len(), world.metric::<u32>(DELETED)), (1, 0));
    assert_eq!(world.metric::<u32>("ccm_service_orphans "), 1);
}

#[tokio::test(start_paused = true)]
async fn most_load_balancers_without_a_service_are_held() {
    let world = World::with_orphans(DELETES, 2, 3).await;
    minutes(60).await;
    assert_eq!((world.orphans(), world.metric::<u32>(HELD)), (3, 3));
    world.create(2);
    minutes(12).await;
    assert_eq!((world.orphans(), world.metric::<u32>(HELD)), (0, 0), "now half of them have one");
}

#[tokio::test(start_paused = true)]
async fn three_orphans_are_deleted_in_six_hours_over_changes_of_leader() {
    let soon = Variant {
        arguments: &[
            "--orphaned-load-balancers=delete",
            "--orphan-confirmation-period=1m",
            "--load-balancer-audit-period=30s",
        ],
        ..DELETES
    };
    let mut world = World::with_orphans(soon, 4, 4).await;
    minutes(3).await;
    assert_eq!((world.orphans(), world.metric::<u32>(HELD)), (1, 1));
    world.restart().await;
    minutes(5).await;
    assert_eq!((world.orphans(), world.metric::<u32>(HELD)), (1, 1), "the next leader knows");
    minutes(350).await;
    assert_eq!((world.orphans(), world.metric::<u32>(HELD)), (1, 1), "nor after hours");
    minutes(10).await;
    assert_eq!((world.orphans(), world.metric::<u32>(HELD)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_of_the_api_server_nothing_is_deleted() {
    for code in [403, 404, 500] {
        let world = World::with_orphans(DELETES, 1, 1).await;
        let status = Action::Status { code, retry_after: None };
        let fault = ApiFault::new(status).verb(Verb::Get).resource("services");
        world.api.faults().add(fault.lasting(Duration::from_mins(60)));
        minutes(50).await;
        let delete = world.cloud.calls().load_balancers.delete;
        assert_eq!((world.orphans(), delete), (1, 0), "{code}");
        assert_eq!(world.metric::<u32>(HELD), 1, "{code}");
        minutes(60).await;
        assert_eq!(world.orphans(), 0, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_goes_on_until_nothing_is_left() {
    let world = World::start(1, DELETES).await;
    world.create(0);
    world.create(1);
    world.patch(0, json!({"metadata": {"annotations": {"sim/floating": "true"}}}));
    sleep(SOON).await;
    assert_eq!(world.cloud.balancers().floating().len(), 1);
    let delete = Duration::from_mins(7);
    world
        .cloud
        .balancers()
        .configure(|settings| settings.times = Times { delete, ..Times::default() });
    world.patch(0, json!({"metadata": {"finalizers": null}}));
    world.delete(0);
    let error = CloudError::new(ErrorKind::Unavailable, "down");
    let key = World::service_key(0);
    let down = Fault::new(Effect::LoadBalancers(vec![key], Trouble::Fail(error)));
    world.cloud.faults().add(down.on(Operation::DeleteLoadBalancers).times(2));
    minutes(50).await;
    assert_eq!((world.ours().len(), world.metric::<u32>(DELETED)), (1, 1));
    // The Service's annotations are not known any more, so the cloud keeps the address.
    let floating = world.cloud.balancers().floating();
    assert!(matches!(floating.values().collect::<Vec<_>>()[..], [None]), "{floating:?}");
}

/// A Service that was created again has a load balancer of its own.
#[tokio::test(start_paused = true)]
async fn the_load_balancer_of_an_earlier_service_of_the_name_is_deleted() {
    let world = World::start(1, DELETES).await;
    world.create(0);
    sleep(SOON).await;
    let before = world.ours().remove(0).id;
    world.patch(0, json!({"metadata": {"finalizers": null}}));
    world.delete(0);
    world.create(0);
    minutes(30).await;
    let now: Vec<String> = world.ours().into_iter().map(|one| one.id).collect();
    assert!(now.len() == 1 && now[0] != before && world.has_address(0), "{now:?}");
}

/// A provider without a list: one call for each load balancer and period, spread over the period.
#[tokio::test(start_paused = true)]
async fn what_no_list_shows_is_looked_at_once_a_period() {
    let hourly: &[&str] = &["--load-balancer-look-period=1h"];
    for (arguments, looks) in [(hourly, 3), (&["--load-balancer-look-period=0s"], 0)] {
        let mut world = World::start(1, Variant::with(arguments)).await;
        world.cloud.balancers().configure(|settings| {
            (settings.traits.lists, settings.traits.stores_digest) = (false, false);
        });
        world.restart().await;
        (0..3).for_each(|number| world.create(number));
        sleep(SOON).await;
        minutes(60).await;
        world.cloud.reset_calls();
        let writes = world.cloud.balancers().reset_writes();
        assert_eq!(writes.len(), 3, "a look changes nothing: {writes:?}");
        world.restart().await;
        // The time between two passes varies by a tenth.
        minutes(66).await;
        let calls = world.cloud.calls().load_balancers;
        assert!((looks..=2 * looks).contains(&calls.items) && calls.list == 0, "{calls:?}");
        // What a person has deleted is found by its next look.
        let lost = world.ours().remove(0).id;
        world.cloud.balancers().remove(&lost);
        minutes(66).await;
        assert_eq!(world.ours().len() == 3, looks > 0);
    }
}
