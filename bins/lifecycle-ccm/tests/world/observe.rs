//! With `--mode=observe` the program decides like a leader, but writes nothing.

use anyhow::{Result, ensure};
use ccm_cloud::PowerState;
use ccm_tests::{
    nodes,
    scenarios::{
        Env, LIFECYCLE_AGENT,
        observe::{decided, due, observe, the_leader_does},
        past_grace, with_short_terms,
    },
};
use serde_json::json;

use super::lifecycle;

/// Prepares a cluster with work of every kind for lifecycle-ccm.
async fn prepare_lifecycle(env: &Env) -> Result<()> {
    env.add_initialised(&["gone-0", "gone-1", "gone-2", "stopped", "back", "node-0", "node-1"])
        .await?;
    env.add_initialised(&["node-2", "node-3", "node-4"]).await?;
    let shutdown = json!({"spec": {"taints": [{"key": nodes::SHUTDOWN, "effect": "NoSchedule"}]}});
    nodes::patch(&env.client, "back", shutdown).await?;
    let approved = json!({"metadata": {"annotations": {"quartet.dev/deletion-approved": "yes"}}});
    nodes::patch(&env.client, "node-0", approved).await?;
    past_grace().await;
    env.cloud().set_power("i-stopped", PowerState::Stopped);
    nodes::set_ready(&env.client, "stopped", "Unknown").await?;
    for name in ["gone-0", "gone-1", "gone-2"] {
        env.lose(name).await?;
    }
    Ok(())
}

pub(super) async fn the_leaders_steps_are_the_plan_of_lifecycle_ccm(mut env: Env) -> Result<()> {
    prepare_lifecycle(&env).await?;
    env.forget_requests().await?;
    let launch = |env: &Env| lifecycle::quick(env).arg("--node-deletion-budget=2");
    let observer = observe(&env, launch(&env)).await?;
    let expected =
        json!({"delete": 2, "end-approval": 1, "shutdown-taint": 1, "shutdown-untaint": 1});
    let page = decided(&observer, expected, json!({"delete": 1})).await?;
    let names: Vec<_> = due(&page)?.into_keys().collect();
    ensure!(names == ["back", "gone-0", "gone-1", "node-0", "stopped"], "{names:?}");
    let told = nodes::events(&env.client, "gone-0").await?;
    ensure!(told.is_empty(), "an observer writes no events: {told:?}");
    let leader = with_short_terms(launch(&env));
    the_leader_does(&mut env, leader, LIFECYCLE_AGENT, &observer, &page).await
}
