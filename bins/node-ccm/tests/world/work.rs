//! Work for which node-ccm needs each of its rights.

use anyhow::Result;
use ccm_tests::{nodes, scenarios::Env};
use serde_json::json;

/// Registers a node, and taints it again whenever it was initialised: each initialisation repeats
/// the same event.
pub async fn step(env: &Env, round: u32) -> Result<()> {
    if round == 0 {
        let mut instance = nodes::instance("node-1");
        // A record names the labels that node-ccm has set.
        instance.labels.insert("example.com/rack".to_owned(), "r1".to_owned());
        env.cloud().add(instance);
        return nodes::register(&env.client, &nodes::fresh("node-1")).await;
    }
    if !is_undone(env).await? {
        let taint = json!([{"key": nodes::UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]);
        nodes::patch(&env.client, "node-1", json!({"spec": {"taints": taint}})).await?;
    }
    Ok(())
}

/// Returns true while the node is tainted.
pub async fn is_undone(env: &Env) -> Result<bool> {
    Ok(nodes::is_tainted(&nodes::get(&env.client, "node-1").await?))
}
