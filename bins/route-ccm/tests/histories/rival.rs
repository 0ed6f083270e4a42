//! Another controller writes the condition, as cilium-operator does.

use std::time::Duration;

use ccm_sim::apiserver::PatchKind;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::{truth, without::Without, world::World};

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
                if node.unavailable.as_deref() != Some("True") {
                    continue;
                }
                let condition =
                    json!({"type": "NetworkUnavailable", "status": "False", "reason": REASON});
                let mut status = json!({"conditions": [condition]});
                if voids_pauses {
                    // As if the program took it for a change of the node.
                    let mut addresses: Vec<Value> = node
                        .addresses
                        .iter()
                        .map(|one| json!({"type": "InternalIP", "address": one.to_string()}))
                        .collect();
                    addresses.push(json!({"type": "Hostname", "address": format!("turn-{turn}")}));
                    status["addresses"] = json!(addresses);
                }
                api.patch(
                    "nodes",
                    &node.name,
                    "status",
                    PatchKind::Merge,
                    json!({"status": status}),
                )
                .ok();
            }
            sleep(LOOK).await;
        }
    });
}
