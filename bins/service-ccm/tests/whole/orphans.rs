//! Load balancers without a Service, and load balancers that no list shows.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    apiserver::{Action, Fault as ApiFault, Verb},
    cloud::{
        Operation,
        balancers::{SimBalancer, Times},
    },
    faults::{Fault, FaultEffect, Trouble},
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    cases::SOON,
    world::{Variant, World},
};

const DELETES: Variant = Variant::with(&["--orphaned-load-balancers=delete"]);
const DELETED: &str = "ccm_service_orphans_deleted_total ";

impl World {
    /// Creates a world in which these Services have load balancers, and all others are gone without
    /// the finalizer.
    async fn with_orphans(variant: Variant, services: usize, orphans: usize) -> Self {
        let world = Self::start(variant).await;
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

    /// Adds a load balancer like this one, whose Service has gone.
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

/// Three may be deleted in six hours, and the leader ends as soon as it has deleted them.
#[tokio::test(start_paused = true)]
async fn a_leader_that_ends_leaves_the_deletions_to_the_next_one_before_it_makes_them() {
    let soon = &[
        "--orphaned-load-balancers=delete",
        "--orphan-confirmation-period=1m",
        "--load-balancer-audit-period=30s",
    ];
    let mut world = World::with_orphans(Variant::with(soon), 4, 4).await;
    while world.orphans() == 4 {
        sleep(Duration::from_millis(5)).await;
    }
    world.restart().await;
    minutes(5).await;
    assert_eq!(world.orphans(), 1);
}

/// The watch lacks a Service that the API server has.
#[tokio::test(start_paused = true)]
async fn a_load_balancer_stays_whose_service_only_the_api_server_has() {
    let mut world = World::start(DELETES).await;
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

#[tokio::test(start_paused = true)]
async fn a_deletion_goes_on_until_nothing_is_left() {
    let world = World::start(DELETES).await;
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
    let down = Fault::new(FaultEffect::LoadBalancers(vec![key], Trouble::Fail(error)));
    world.cloud.faults().add(down.on(Operation::DeleteLoadBalancers).times(2));
    minutes(50).await;
    assert_eq!((world.ours().len(), world.metric::<u32>(DELETED)), (1, 1));
    // The Service's annotations are not known any more, so the cloud keeps the address.
    let floating = world.cloud.balancers().floating();
    assert!(matches!(floating.values().collect::<Vec<_>>()[..], [None]), "{floating:?}");
}

/// A provider without a list: one call for each load balancer and period, spread over the period.
#[tokio::test(start_paused = true)]
async fn what_no_list_shows_is_looked_at_once_a_period() {
    let hourly: &[&str] = &["--load-balancer-look-period=1h"];
    for (arguments, looks) in [(hourly, 3), (&["--load-balancer-look-period=0s"], 0)] {
        let mut world = World::start(Variant::with(arguments)).await;
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
        // The next check finds a load balancer that a person has deleted.
        let lost = world.ours().remove(0).id;
        world.cloud.balancers().remove(&lost);
        minutes(66).await;
        assert_eq!(world.ours().len() == 3, looks > 0);
    }
}
