//! Answers of the cloud that would replace the load balancers of all Services.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::Operation,
    faults::{Fault, FaultEffect, Trouble},
};
use tokio::time::sleep;

use crate::{
    cases::SOON,
    world::{Variant, World},
};

const MINUTE: Duration = Duration::from_mins(1);
/// The time in which nobody looks.
const NIGHT: Duration = Duration::from_hours(3);
const SERVICES: usize = 20;

impl World {
    async fn fleet(variant: Variant) -> Self {
        let world = Self::start(variant).await;
        (0..SERVICES).for_each(|number| world.create(number));
        sleep(MINUTE).await;
        assert_eq!(world.ours().len(), SERVICES);
        world
    }

    fn ids(&self) -> Vec<String> {
        self.ours().into_iter().map(|one| one.id).collect()
    }

    fn replacements_held(&self) -> f64 {
        self.metric("ccm_service_replacements_held ")
    }

    /// Hides everything of this cluster in the cloud from now on.
    fn show_nothing(&self) {
        let overlook = FaultEffect::LoadBalancers(Vec::new(), Trouble::Overlook { by_id: true });
        for (operation, effect) in [
            (Operation::ListLoadBalancers, FaultEffect::EmptyList),
            (Operation::EnsureLoadBalancers, overlook),
            (Operation::Lookup, FaultEffect::WrongProject),
        ] {
            self.cloud.faults().add(Fault::new(effect).on(operation));
        }
    }
}

/// The credentials of another project.
#[tokio::test(start_paused = true)]
async fn a_cloud_that_shows_nothing_gets_no_new_load_balancer() {
    let without_lists = Variant { no_lists: true, ..Variant::default() };
    for (variant, restarts) in
        [(Variant::default(), false), (Variant::default(), true), (without_lists, true)]
    {
        let has_lists = !variant.no_lists;
        let mut world = World::fleet(variant).await;
        let before = world.ids();
        world.show_nothing();
        if restarts {
            world.restart().await;
        }
        if has_lists {
            sleep(6 * MINUTE).await;
            assert!(world.replacements_held() > 19.5, "{}", world.replacements_held());
            assert!(world.line("replacements").starts_with("[!]20 load"));
            assert!(world.plans().contains("quartet.dev/replacement-approved=yes"));
            assert_eq!(world.events("LoadBalancerReplacementHeld").len(), SERVICES);
        }
        sleep(NIGHT).await;
        let new = world.ids().iter().filter(|id| !before.contains(id)).count();
        assert!(new == 0 || !has_lists && new <= 3, "{new} new, {restarts}");
        (0..SERVICES).for_each(|number| assert!(world.has_address(number)));
        // The credentials are right again.
        world.cloud.faults().clear();
        sleep(NIGHT).await;
        assert!(world.replacements_held() < 0.5 && world.line("replacements").starts_with("[+]"));
        assert_eq!(world.ids().len(), SERVICES + new);
    }
}

/// All load balancers are deleted in the cloud, and nobody is on duty.
#[tokio::test(start_paused = true)]
async fn load_balancers_that_are_really_gone_are_made_again_within_an_hour() {
    for kept in [0, 1] {
        let world = World::fleet(Variant::default()).await;
        let before = world.ids();
        for id in before.iter().skip(kept) {
            world.cloud.balancers().remove(id).unwrap();
        }
        let mut counts = Vec::new();
        for _ in 0..60 {
            sleep(MINUTE).await;
            counts.push(world.ids().len() - kept);
        }
        assert_eq!(counts[9], 0, "not before the loss is proved: {counts:?}");
        let steps = counts.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(steps.max() <= Some(12), "in the pace of the brake: {counts:?}");
        let until = counts.iter().position(|count| *count == SERVICES - kept);
        assert!(until.is_some(), "{counts:?}");
        println!("the last of {} after {until:?} minutes: {counts:?}", SERVICES - kept);
        sleep(SOON).await;
        (0..SERVICES).for_each(|number| assert!(world.has_address(number)));
        assert!(world.replacements_held() < 0.5);
    }
}

/// A cloud that did not say before which one it is may be another project.
#[tokio::test(start_paused = true)]
async fn without_a_recorded_identity_no_loss_is_proved() {
    let world = World::fleet(Variant::default()).await;
    let lease = world.running().context.leadership.annotations();
    lease.annotate("quartet.dev/cloud-identity", None);
    for id in world.ids().iter().skip(1) {
        world.cloud.balancers().remove(id).unwrap();
    }
    sleep(NIGHT).await;
    assert_eq!(world.ids().len(), 1);
}

/// A planned deletion does not count as a loss, so it does not hold back a real one.
#[tokio::test(start_paused = true)]
async fn services_that_are_being_deleted_have_lost_nothing() {
    let world = World::fleet(Variant::default()).await;
    let error = CloudError::new(ErrorKind::Unavailable, "down");
    let fault = Fault::new(FaultEffect::Error(error)).on(Operation::DeleteLoadBalancers);
    world.cloud.faults().add(fault);
    (0..10).for_each(|number| drop(world.api.delete("services", &World::service_key(number))));
    let uid =
        |number| world.service(number).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    for number in 0..11 {
        let lost = world.balancers_of(&uid(number)).remove(0);
        world.cloud.balancers().remove(&lost.id).unwrap();
    }
    sleep(6 * MINUTE).await;
    assert_eq!(world.balancers_of(&uid(10)).len(), 1);
    assert_eq!(world.ids().len(), SERVICES - 10);
}

#[tokio::test(start_paused = true)]
async fn a_user_approves_all_replacements_on_the_lease() {
    let world = World::fleet(Variant::default()).await;
    world.show_nothing();
    sleep(6 * MINUTE).await;
    assert_eq!(world.ids().len(), SERVICES);
    let lease = world.running().context.leadership.annotations();
    // This approves something else.
    lease.annotate("quartet.dev/approved-selector", Some("*"));
    lease.annotate("quartet.dev/approved-until", Some("2999-01-01T00:00:00Z"));
    sleep(10 * MINUTE).await;
    assert_eq!(world.ids().len(), SERVICES);
    lease.annotate("quartet.dev/replacements-approved-selector", Some("*"));
    lease.annotate("quartet.dev/replacements-approved-until", Some("2999-01-01T00:00:00Z"));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.ids().len(), 2 * SERVICES, "no Service waits for its next look");
}

/// A wrong setting on which all load balancers depend, for a night.
#[tokio::test(start_paused = true)]
async fn one_wrong_setting_changes_no_load_balancer() {
    for wrong in [
        "--cluster-uid=another",
        "--cluster-name=another",
        "--leader-elect-resource-name=another",
        "--leader-elect-resource-namespace=another",
    ] {
        let mut world = World::fleet(Variant::default()).await;
        let all = |world: &World| {
            let all = world.cloud.balancers().all();
            all.into_iter().map(|one| (one.id, one.addresses, one.members)).collect::<Vec<_>>()
        };
        let before = all(&world);
        for wrong in [Some(wrong), None] {
            world.wrong = wrong;
            world.restart().await;
            sleep(NIGHT).await;
            assert_eq!(all(&world), before, "{wrong:?}");
            (0..SERVICES).for_each(|number| assert!(world.has_address(number), "{wrong:?}"));
        }
        assert!(world.line("provisioning").starts_with("[+]"), "{}", world.line("provisioning"));
    }
}
