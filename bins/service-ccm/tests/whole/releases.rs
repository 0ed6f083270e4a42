//! Load balancers whose Services the settings exclude.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{cloud::Operation, faults::Trouble};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    cases::{SOON, on},
    world::{NODES, Served, Variant, World},
};

const MINUTE: Duration = Duration::from_mins(1);

impl World {
    fn release_held(&self) -> f64 {
        self.metric("ccm_service_releases_held ")
    }

    fn approve(&self, number: usize) {
        let approval = json!({"quartet.dev/release-approved": "yes"});
        self.patch(number, json!({"metadata": {"annotations": approval}}));
    }
}

/// One wrong setting excludes all Services at once.
#[tokio::test(start_paused = true)]
async fn a_setting_that_excludes_all_services_deletes_no_load_balancer() {
    let without_lists = Variant { no_lists: true, ..Variant::default() };
    for (variant, reloads) in [
        (Variant::default(), false),
        (Variant::default(), true),
        (without_lists, false),
        (without_lists, true),
    ] {
        let mut world = World::start(variant).await;
        (0..4).for_each(|number| world.create(number));
        sleep(SOON).await;
        if reloads {
            world.reload(|settings| settings.serve_classless_services = false);
        } else {
            world.classes = Some(Served { ours: false, classless: false });
            world.restart().await;
        }
        sleep(SOON).await;
        assert_eq!(world.events("LoadBalancerReleaseHeld").len(), 4, "{reloads}");
        assert!(world.release_held() > 3.5);
        let line = world.line("classes");
        assert!(line.starts_with("[!]") && line.contains("of these, 4 with load"), "{line}");
        assert!(world.plans().contains("quartet.dev/release-approved=yes"));
        // The members follow the nodes, and nothing else changes.
        world.cloud.balancers().reset_writes();
        world.add_node(NODES);
        sleep(6 * 60 * MINUTE).await;
        assert_eq!((world.ours().len(), world.cloud.balancers().writes().len()), (4, 4));
        (0..4).for_each(|number| assert_eq!(world.members(number), NODES + 1));
        (0..4).for_each(|number| assert!(world.has_address(number)));
        // A user approves one deletion. Then the class is served again.
        world.approve(0);
        sleep(SOON).await;
        assert_eq!(world.ours().len(), 3);
        assert!(world.is_clean(0), "{}", world.traces(0));
        world.reload(|settings| settings.serve_classless_services = true);
        sleep(MINUTE).await;
        assert_eq!(world.ours().len(), 4, "the one that was released gets another one");
        assert!(world.release_held() < 0.5 && world.line("classes").starts_with("[+]"));
    }
}

#[tokio::test(start_paused = true)]
async fn only_changes_of_members_of_a_load_balancer_that_stays_are_repeated() {
    let world = World::with_services(0..1).await;
    let error = || Trouble::Fail(CloudError::new(ErrorKind::QuotaExceeded, "no more"));
    world.cloud.faults().add(on(Operation::EnsureLoadBalancers, 0, error()));
    world.cloud.faults().add(on(Operation::SetMembers, 0, error()));
    world.patch(0, json!({"metadata": {"annotations": {"sim/note": "other"}}}));
    sleep(SOON).await;
    assert!(world.line("provisioning").starts_with("[!]"));
    world.reload(|settings| settings.serve_classless_services = false);
    sleep(SOON).await;
    assert!(world.line("provisioning").starts_with("[+]"));
    world.add_node(NODES);
    sleep(SOON).await;
    assert!(world.line("provisioning").starts_with("[!]"));
    assert!(world.plans().contains("set-members") && !world.plans().contains(" ensure"));
    world.cloud.faults().clear();
    sleep(5 * MINUTE).await;
    assert_eq!(world.members(0), NODES + 1);
    assert!(world.line("provisioning").starts_with("[+]"));
}
