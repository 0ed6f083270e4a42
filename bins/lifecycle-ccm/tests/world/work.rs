//! Work for which lifecycle-ccm needs each of its rights.

use anyhow::Result;
use ccm_cloud::PowerState;
use ccm_tests::{nodes, rights::manifest::Grant, scenarios::Env};
use serde_json::json;

/// The approval of a deletion, which a Ready node loses.
const APPROVED: &str = "quartet.dev/deletion-approved";

/// Removes one node's instance, and stops and starts another one's machine.
pub async fn step(env: &Env, round: u32) -> Result<()> {
    if round == 0 {
        env.add_initialised(&["node-0", "node-1", "node-2"]).await?;
        let approved = json!({"metadata": {"annotations": {APPROVED: "yes"}}});
        nodes::patch(&env.client, "node-0", approved).await?;
        env.lose("node-2").await?;
        return nodes::set_ready(&env.client, "node-1", "Unknown").await;
    }
    let power = if is_tainted(env).await? { PowerState::Running } else { PowerState::Stopped };
    env.cloud().set_power("i-node-1", power);
    Ok(())
}

/// Returns true while the approval is on a Ready node, the node exists, or it is not tainted as
/// shut down.
pub async fn is_undone(env: &Env, grant: &Grant) -> Result<bool> {
    if grant.verb == "mark" {
        let node = nodes::get(&env.client, "node-0").await?;
        return Ok(node.metadata.annotations.is_some_and(|all| all.contains_key(APPROVED)));
    }
    if grant.verb == "delete" || grant.resource == "leases" {
        return Ok(nodes::names(&env.client).await?.contains("node-2"));
    }
    Ok(!is_tainted(env).await?)
}

async fn is_tainted(env: &Env) -> Result<bool> {
    Ok(nodes::has_taint(&nodes::get(&env.client, "node-1").await?, nodes::SHUTDOWN))
}
