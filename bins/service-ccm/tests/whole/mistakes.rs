//! Mistakes that come together: another client, an edit or a new leader at the wrong moment.

use std::time::Duration;

use ccm_sim::apiserver::PatchKind;
use serde_json::json;
use tokio::time::sleep;

use crate::{
    cases::SOON,
    world::{NODES, World},
};

const MINUTE: Duration = Duration::from_mins(1);

impl World {
    fn set_port(&self, number: usize, port: u16) {
        let ports = json!([{"port": port, "protocol": "TCP", "nodePort": 31000 + number}]);
        self.patch(number, json!({"spec": {"ports": ports}}));
    }
}

/// `node-selector` is wrong, and the brake holds the members. Then another client writes to all load balancers (a
/// fail-over of all amphorae, a tag): their members are forgotten, and the full call names all nodes with their labels.
#[tokio::test(start_paused = true)]
async fn a_write_of_another_client_does_not_empty_what_is_held() {
    let world = World::with_services(0..2).await;
    world.cloud.balancers().configure(|settings| settings.traits.member_labels = true);
    sleep(SOON).await;
    world.cloud.balancers().configure(|settings| settings.node_selector = "pool=egde".into());
    sleep(MINUTE).await;
    assert_eq!([0, 1].map(|number| world.members(number)), [NODES - 3; 2]);
    // A list takes as long as with some hundred load balancers.
    world.lies.lock().late_lists = Duration::from_secs(5);
    for balancer in world.ours() {
        world.cloud.balancers().update(&balancer.id, |_| {});
    }
    sleep(20 * MINUTE).await;
    assert_eq!([0, 1].map(|number| world.members(number)), [NODES - 3; 2]);
}

/// The new `cloud.conf` comes with a restart, and a user edits a Service within half an hour.
#[tokio::test(start_paused = true)]
async fn an_edit_after_a_restart_with_another_default_selector_empties_nothing() {
    for wait in [0, 10] {
        let mut world = World::with_services(0..2).await;
        world.cloud.balancers().configure(|settings| settings.traits.member_labels = true);
        // Everything is settled, and the next leader does not read members at once.
        sleep(20 * MINUTE).await;
        world.lies.lock().late_lists = Duration::from_secs(5);
        let last = world.stop();
        assert!(last.is_some());
        world.cloud.balancers().configure(|settings| settings.node_selector = "pool=egde".into());
        world.lead_after(last.as_ref()).await;
        sleep(wait * MINUTE).await;
        (0..2).for_each(|number| world.set_port(number, 8080));
        sleep(2 * MINUTE).await;
        let members = [0, 1].map(|number| world.members(number));
        assert!(members.iter().all(|count| *count >= NODES - 3), "{members:?} after {wait} min");
    }
}

/// All nodes show another address (a wrong --node-ip, a lie), after a restart, and a user edits a Service.
#[tokio::test(start_paused = true)]
async fn an_edit_after_a_restart_replaces_no_more_addresses_than_the_brake_allows() {
    for edits in [false, true] {
        let mut world = World::with_services(0..1).await;
        world.lies.lock().late_lists = Duration::from_secs(5);
        let last = world.stop();
        for number in 0..NODES {
            let addresses =
                json!([{"type": "InternalIP", "address": format!("10.9.0.{}", number + 1)}]);
            let patch = json!({"status": {"addresses": addresses}});
            let name = World::node_name(number);
            world.api.patch("nodes", &name, "status", PatchKind::Merge, patch).unwrap();
        }
        world.lead_after(last.as_ref()).await;
        if edits {
            world.set_port(0, 8080);
        }
        sleep(30 * MINUTE).await;
        let all = world.ours();
        let moved =
            all[0].members.iter().filter(|one| one.addresses[0].address.starts_with("10.9."));
        let moved = moved.count();
        assert!(moved <= 3, "{moved} of {NODES} were replaced, edit: {edits}");
    }
}
