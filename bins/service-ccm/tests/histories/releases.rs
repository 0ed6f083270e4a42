//! Load balancers whose Services the settings exclude.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::{
    cases::SOON,
    world::{NODES, Served, World},
};

const MINUTE: Duration = Duration::from_mins(1);

/// One wrong setting excludes all Services at once.
#[tokio::test(start_paused = true)]
async fn a_setting_that_excludes_all_services_deletes_no_load_balancer() {
    let mut world = World::with_services(0..4).await;
    world.classes = Some(Served { ours: false, classless: false });
    world.restart().await;
    sleep(SOON).await;
    world.cloud.balancers().reset_writes();
    // The members follow the nodes, and nothing else changes.
    world.add_node(NODES);
    sleep(6 * 60 * MINUTE).await;
    assert_eq!((world.ours().len(), world.cloud.balancers().writes().len()), (4, 4));
    (0..4).for_each(|number| assert_eq!(world.members(number), NODES + 1));
    (0..4).for_each(|number| assert!(world.has_address(number)));
    assert_eq!(world.events("LoadBalancerReleaseHeld").len(), 4);
    assert!(world.metric::<f64>("ccm_service_releases_held ") > 3.5);
    let line = world.line("classes");
    assert!(line.starts_with("[!]") && line.contains("4 load balancers stay"), "{line}");
    assert!(world.plans().contains("quartet.dev/release-approved=yes"));
    // A user approves one; another one is served again.
    world.patch(0, json!({"metadata": {"annotations": {"quartet.dev/release-approved": "yes"}}}));
    sleep(SOON).await;
    assert_eq!(world.ours().len(), 3);
    assert!(world.is_clean(0), "{}", world.traces(0));
    world.reload(|settings| settings.serve_classless_services = true);
    sleep(MINUTE).await;
    assert_eq!(world.ours().len(), 4, "the one that was released gets another one");
    assert!(world.metric::<f64>("ccm_service_releases_held ") < 0.5);
    assert!(world.line("classes").starts_with("[+]"));
}

/// The user changes the class in two writes with nothing between them.
#[tokio::test(start_paused = true)]
async fn a_class_that_a_user_changes_takes_the_load_balancer_along() {
    for is_down in [false, true] {
        let mut world = World::with_services(0..1).await;
        if is_down {
            world.stop();
        }
        world.patch(0, json!({"spec": {"type": "ClusterIP"}}));
        world
            .patch(0, json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "other.io/x"}}));
        if is_down {
            // The new process does not know which class the Service had.
            world.restart().await;
        }
        sleep(SOON).await;
        assert_eq!(world.ours().len(), usize::from(is_down));
        assert_eq!(world.events("LoadBalancerReleaseHeld").len(), usize::from(is_down));
    }
}
