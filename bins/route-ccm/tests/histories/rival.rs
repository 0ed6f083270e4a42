//! Another controller writes the condition, as cilium-operator does.

use std::time::Duration;

use ccm_sim::apiserver::PatchKind;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    truth::{self, TrueNode},
    without::Without,
    world::World,
};

/// The time between two looks of the rival.
const LOOK: Duration = Duration::from_secs(1);
/// Its reason.
pub(crate) const REASON: &str = "CiliumIsUp";

/// The controller, if it runs.
#[derive(Default)]
pub(crate) struct Rival {
    running: JoinSet<()>,
}

impl Rival {
    /// Ends it.
    pub(crate) fn end(&mut self) {
        self.running.abort_all();
    }
}

/// Starts it, or ends it.
pub(crate) fn toggle(world: &mut World) {
    if !world.rival.running.is_empty() {
        world.rival = Rival::default();
        return;
    }
    let api = std::sync::Arc::clone(&world.api);
    let voids_pauses = world.variant.without == Some(Without::Pause);
    world.rival.running.spawn(async move {
        for turn in 0_u32.. {
            for node in truth::nodes(&api) {
                let mut status = json!({});
                if voids_pauses {
                    // As if the program took each heartbeat for a change of the node.
                    status["addresses"] = addresses(&node, turn);
                }
                if node.unavailable.as_deref() == Some("True") {
                    status["conditions"] = json!([
                        {"type": "NetworkUnavailable", "status": "False", "reason": REASON}
                    ]);
                }
                let patch = json!({"status": status});
                api.patch("nodes", &node.name, "status", PatchKind::Merge, patch).ok();
            }
            sleep(LOOK).await;
        }
    });
}

/// The addresses of the node, with a name that changes.
fn addresses(node: &TrueNode, turn: u32) -> Value {
    let ips = node.addresses.iter();
    let ips = ips.map(|one| json!({"type": "InternalIP", "address": one.to_string()}));
    let name = json!({"type": "Hostname", "address": format!("turn-{turn}")});
    ips.chain([name]).collect()
}
