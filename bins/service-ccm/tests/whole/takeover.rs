//! A new leader whose watch was silent for a while plans with the current state of the API server.

use std::time::Duration;

use ccm_sim::apiserver::{Action, Fault, Verb};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    cases::SOON,
    world::{NODES, Standby, World},
};

/// The user agent of a standby.
const AGENT: &str = "service-ccm/standby";

impl World {
    /// Starts a standby whose watch of this resource worked and is silent now.
    async fn deaf_standby(&self, resource: &str) -> Standby {
        let standby = self.stand_by().await;
        sleep(Duration::from_mins(1)).await;
        let silent = Fault::new(Action::SilentWatch).verb(Verb::Watch).resource(resource);
        self.api.faults().add(silent.user_agent(AGENT).times(1));
        self.api.cut_watches(AGENT, false);
        sleep(Duration::from_secs(2)).await;
        standby
    }

    fn port(&self) -> u16 {
        self.ours()[0].configuration.listeners.keys().map(|(_, port)| *port).max().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_service_that_the_standby_did_not_see_is_not_taken_back() {
    let mut world = World::new().await;
    world.create(0);
    sleep(SOON).await;
    let standby = world.deaf_standby("services").await;
    let before = world.port();
    let ports = json!([{"port": before + 1, "protocol": "TCP", "nodePort": 30001}]);
    world.patch(0, json!({"spec": {"ports": ports}}));
    sleep(Duration::from_secs(4)).await;
    assert_eq!(world.port(), before + 1, "the leader has seen it");
    world.take_over(standby);
    for second in 0..120 {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.port(), before + 1, "after {second} s");
    }
}

/// While the API server does not return its version, the leader does not plan, and says so.
#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_compare_its_store_says_so_and_goes_on_later() {
    let mut world = World::new().await;
    world.create(0);
    sleep(SOON).await;
    let standby = world.deaf_standby("nodes").await;
    world.add_node(NODES);
    sleep(Duration::from_secs(4)).await;
    let fault = Fault::new(Action::Stall).verb(Verb::List).resource("nodes").user_agent(AGENT);
    let fault = world.api.faults().add(fault);
    world.take_over(standby);
    sleep(Duration::from_secs(12)).await;
    let line = world.line("stores");
    assert!(line.starts_with("[!]") && line.contains("nodes"), "{line}");
    assert_eq!(world.members(0), NODES + 1);
    world.api.faults().remove(fault);
    world.add_node(NODES + 1);
    sleep(2 * SOON).await;
    let line = world.line("stores");
    assert!(line.starts_with("[+]"), "{line}");
    assert_eq!(world.members(0), NODES + 2);
}
