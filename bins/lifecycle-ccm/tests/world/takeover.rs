//! A standby with an old store takes over.

use anyhow::{Result, ensure};
use ccm_tests::{
    nodes,
    scenarios::{Env, LIFECYCLE_AGENT, SOON, past_grace, takeover::Pair, with_short_terms},
};
use serde_json::json;

use super::lifecycle::{DELETION, quick};

/// A node that is not Ready registers again with another instance, and another node is protected
/// before its instance is gone. According to the old store both should be deleted.
pub(super) async fn an_old_store_costs_no_node(mut env: Env) -> Result<()> {
    env.add_initialised(&["node-0", "again", "protected", "gone"]).await?;
    for name in ["again", "protected"] {
        nodes::set_ready(&env.client, name, "False").await?;
    }
    let mut pair = Pair::start(&env, "lifecycle-ccm", |env| with_short_terms(quick(env))).await?;
    past_grace().await;
    pair.silence();
    let mark = json!({"metadata": {"annotations": {"quartet.dev/deletion-protected": "yes"}}});
    nodes::patch(&env.client, "protected", mark).await?;
    nodes::delete(&env.client, "again").await?;
    let (mut machine, mut node) = (nodes::instance("again"), nodes::initialised("again"));
    machine.id.push_str("-new");
    node["spec"]["providerID"] = json!(machine.provider_id().as_str());
    env.cloud().add(machine);
    nodes::register(&env.client, &node).await?;
    for name in ["again", "protected"] {
        env.cloud().remove(&nodes::instance(name).id);
    }
    nodes::event(&env.client, "protected", "NodeDeletionHeld", SOON).await?;
    env.forget_requests().await?;
    pair.take_over().await?;

    nodes::stay(&env.client, &["node-0", "again", "protected"], 2 * DELETION).await?;
    let writes = env.node_writes(LIFECYCLE_AGENT).await?;
    ensure!(writes.is_empty(), "{writes:?}");
    let told = nodes::events(&env.client, "again").await?;
    ensure!(told.is_empty(), "it was suspected: {told:?}");
    env.lose("gone").await?;
    nodes::gone(&env.client, "gone", SOON).await
}
