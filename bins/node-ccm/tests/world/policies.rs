//! A policy of a real API server undoes what the program writes.

use anyhow::{Result, ensure};
use ccm_tests::{
    nodes,
    policies::{Contested, Policy, no_label, patience},
    scenarios::{Env, NODE_AGENT, SOON},
};
use tokio::time::{Instant, sleep};

use super::leadership::quick;

/// New nodes, which keep their taint, and nodes that were initialised before. All lose their labels.
const FRESH: [&str; 3] = ["fresh-0", "fresh-1", "fresh-2"];
const SETTLED: [&str; 3] = ["settled-0", "settled-1", "settled-2"];
const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Taints cannot be removed.
const KEEPS_TAINTS: &str = "(has(oldObject.spec.taints) \
    ? [JSONPatch{op: \"add\", path: \"/spec/taints\", value: oldObject.spec.taints}] : [])";

/// A policy does not make the program write without end, and each kind of write is reported once.
pub(super) async fn what_is_taken_back_costs_a_write_a_minute(env: Env) -> Result<()> {
    env.add_initialised(&SETTLED).await?;
    let labels = LABELS.map(no_label).join(" + ");
    let policy =
        Policy::of_nodes(&env.client, "takes-back", &format!("{KEEPS_TAINTS} + {labels}")).await?;
    for name in FRESH {
        env.add_node(name).await?;
    }
    let began = Instant::now();
    let program = env.start(&quick(&env)).await?;
    sleep(patience()).await;
    let time = began.elapsed();
    let contested = Contested { env: &env, agent: NODE_AGENT, program: &program, time };
    let [zone, region] = LABELS.map(|key| ("RepeatedWrite", key));
    let taints = ("RepeatedWrite", "write taints ");
    for name in FRESH {
        contested.costs_little(name, &[taints, zone, region]).await?;
        let events = nodes::events(&env.client, name).await?;
        ensure!(!events.iter().any(|event| event.starts_with("Synced")), "{name}: {events:?}");
    }
    for name in SETTLED {
        contested.costs_little(name, &[zone, region]).await?;
    }
    for write in ["taints", "zone", "region"] {
        contested.alerts_of_repeated(write).await?;
    }
    policy.remove().await?;
    for name in FRESH.into_iter().chain(SETTLED) {
        nodes::wait_for(&env.client, name, "as its instance", 5 * SOON, |node| {
            !nodes::is_tainted(node) && LABELS.iter().all(|key| nodes::label(node, key).is_some())
        })
        .await?;
    }
    Ok(())
}
