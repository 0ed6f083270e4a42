//! With `--mode=observe` programs beside a leader write nothing.

use anyhow::{Result, ensure};
use ccm_cloud::PowerState;
use ccm_sim::program::Program;
use ccm_tests::{
    nodes,
    scenarios::{
        Env, SOON,
        observe::{decided, nothing_written, observe},
        past_grace, quick_lifecycle,
    },
};
use serde_json::json;

pub(super) async fn nothing_is_written_beside_a_leader(env: Env) -> Result<()> {
    let leaders = [env.start(&env.node_ccm()).await?, env.start(&quick_lifecycle(&env)).await?];
    let (node, lifecycle) =
        (observe(&env, env.node_ccm()).await?, observe(&env, quick_lifecycle(&env)).await?);
    for name in ["node-0", "node-1", "node-2", "node-3"] {
        env.add_node(name).await?;
        env.initialised(name).await?;
    }
    past_grace().await;
    env.cloud().set_power("i-node-0", PowerState::Stopped);
    nodes::set_ready(&env.client, "node-0", "Unknown").await?;
    env.lose("node-1").await?;
    nodes::gone(&env.client, "node-1", 2 * SOON).await?;
    let edit = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "elsewhere"}}});
    nodes::patch(&env.client, "node-2", edit).await?;
    let instance = nodes::instance("node-2");
    nodes::wait_for(&env.client, "node-2", "zone put back", SOON, |node| {
        nodes::label(node, "topology.kubernetes.io/zone") == instance.zone.as_deref()
    })
    .await?;
    nodes::wait_for(&env.client, "node-0", "tainted as shut down", SOON, |node| {
        nodes::has_taint(node, nodes::SHUTDOWN)
    })
    .await?;
    for observer in [&node, &lifecycle] {
        decided(observer, json!({}), json!({})).await?;
    }
    nothing_written(&env, &[&node, &lifecycle]).await?;
    let leads = futures::future::try_join_all(leaders.iter().map(Program::leads)).await?;
    ensure!(leads == [true, true], "an observer disturbs the leaders: {leads:?}");
    Ok(())
}
