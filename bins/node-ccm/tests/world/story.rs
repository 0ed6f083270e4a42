//! Everything that the dashboard of node-ccm shows.

use anyhow::{Context as _, Result};
use ccm_cloud::{AddressKind, NodeAddress};
use ccm_sim::program::Launch;
use ccm_tests::{
    nodes,
    prometheus::{SETTLE, Stage},
    scenarios::{Env, SOON},
};
use serde_json::json;
use tokio::time::sleep;

pub fn launch(env: &Env) -> Launch {
    env.node_ccm().arg("--node-status-update-frequency=10s").arg("--cloud-call-timeout=2s")
}

pub async fn play(stage: &mut Stage) -> Result<()> {
    register(&stage.env).await.context("nodes register")?;
    follow(&stage.env).await.context("an instance changes")?;
    claim(&stage.env).await.context("a kubelet claims another's instance")?;
    throttle(stage).await.context("the cloud throttles")?;
    refuse(stage).await.context("the API server refuses")?;
    stage.hand_over().await.context("the leader is stopped")?;
    let env = &stage.env;
    env.add_node("node-new").await?;
    env.initialised("node-new").await?;
    // In the end one node waits for an instance that the cloud does not know.
    nodes::register(&env.client, &nodes::fresh("node-unknown")).await?;
    nodes::event(&env.client, "node-unknown", "instance", SOON).await?;
    sleep(SETTLE).await;
    Ok(())
}

/// Registers new nodes. One of them belongs to another provider, and one instance has an illegal
/// label.
async fn register(env: &Env) -> Result<()> {
    let mut instance = nodes::instance("node-0");
    instance.labels.insert("example.com/bad".to_owned(), "not a legal value!".to_owned());
    env.cloud().add(instance);
    nodes::register(&env.client, &nodes::fresh("node-0")).await?;
    for number in 1..8 {
        env.add_node(&format!("node-{number}")).await?;
    }
    nodes::all_initialised(&env.client, SOON).await?;
    let mut foreign = nodes::initialised("foreign");
    foreign["spec"] = json!({"providerID": "elsewhere://i-1"});
    nodes::register(&env.client, &foreign).await
}

/// Changes the first InternalIP of a Ready node.
async fn follow(env: &Env) -> Result<()> {
    let mut instance = nodes::instance("node-0");
    instance.addresses = vec![NodeAddress::new(AddressKind::InternalIp, "10.200.0.1")];
    env.cloud().add(instance);
    let follows = |node: &_| nodes::addresses(node).contains(&"InternalIP=10.200.0.1".into());
    nodes::wait_for(&env.client, "node-0", "follows", 2 * SOON, follows).await?;
    Ok(())
}

/// A kubelet gives its Node the provider ID of another Node, until an operator deletes the Node.
async fn claim(env: &Env) -> Result<()> {
    let mut rogue = nodes::fresh("rogue");
    rogue["spec"]["providerID"] = json!(nodes::instance("node-1").provider_id().as_str());
    nodes::register(&env.client, &rogue).await?;
    nodes::event(&env.client, "rogue", "is the instance of node-1", SOON).await?;
    nodes::delete(&env.client, "rogue").await
}

async fn throttle(stage: &Stage) -> Result<()> {
    let late =
        async |env: &Env, number| env.add_node(&format!("node-late-{number}")).await.map(drop);
    stage.throttle_cloud(late).await?;
    nodes::all_initialised(&stage.env.client, 2 * SOON).await.map(drop)
}

async fn refuse(stage: &Stage) -> Result<()> {
    stage.refuse_writes("nodes")?;
    stage.env.add_node("node-refused").await?;
    nodes::all_initialised(&stage.env.client, 4 * SOON).await?;
    sleep(SETTLE).await;
    Ok(())
}
