//! Everything that the dashboard of lifecycle-ccm shows.

use anyhow::{Context as _, Result};
use ccm_cloud::PowerState;
use ccm_sim::{
    faults::{Fault, FaultEffect},
    poll,
    program::Launch,
};
use ccm_tests::{
    nodes,
    prometheus::{SETTLE, Stage},
    scenarios::{Env, SOON, past_grace, quick_lifecycle},
};
use serde_json::json;
use tokio::time::sleep;

pub fn launch(env: &Env) -> Launch {
    quick_lifecycle(env).arg("--cloud-call-timeout=2s")
}

pub async fn play(stage: &mut Stage) -> Result<()> {
    register(&stage.env).await.context("nodes register")?;
    throttle(stage).await.context("the cloud throttles")?;
    remove(stage).await.context("an instance is terminated, and the API server refuses")?;
    shut_down(&stage.env).await.context("a machine is stopped")?;
    open_breaker(stage).await.context("the cloud shows another project")?;
    stage.hand_over().await.context("the leader is stopped")?;
    sleep(SETTLE).await;
    Ok(())
}

/// The fleet is so large that one missing instance does not keep the breaker open.
const FLEET: usize = 12;

/// Registers nodes, one of them another provider's.
async fn register(env: &Env) -> Result<()> {
    let names: Vec<_> = (0..FLEET).map(|number| format!("node-{number}")).collect();
    env.add_initialised(&names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let mut foreign = nodes::initialised("foreign");
    foreign["spec"] = json!({"providerID": "elsewhere://i-1"});
    nodes::register(&env.client, &foreign).await?;
    past_grace().await;
    Ok(())
}

async fn throttle(stage: &Stage) -> Result<()> {
    // A silent node is asked about again and again.
    let silence = async |env: &Env, number| match number {
        0 => nodes::set_ready(&env.client, "node-1", "Unknown").await,
        _ => Ok(()),
    };
    stage.throttle_cloud(silence).await?;
    nodes::set_ready(&stage.env.client, "node-1", "True").await
}

/// Terminates one instance, and silences another node although its instance runs. The first
/// deletion is refused.
async fn remove(stage: &Stage) -> Result<()> {
    let env = &stage.env;
    stage.refuse_writes("nodes")?;
    nodes::set_ready(&env.client, "node-2", "Unknown").await?;
    env.lose("node-1").await?;
    nodes::gone(&env.client, "node-1", 4 * SOON).await?;
    nodes::set_ready(&env.client, "node-2", "True").await
}

async fn shut_down(env: &Env) -> Result<()> {
    let id = nodes::instance("node-3").id;
    for (power, tainted) in [(PowerState::Stopped, true), (PowerState::Running, false)] {
        env.cloud().set_power(&id, power);
        nodes::set_ready(&env.client, "node-3", "Unknown").await?;
        nodes::wait_for(&env.client, "node-3", "taint", SOON, |node| {
            nodes::has_taint(node, nodes::SHUTDOWN) == tainted
        })
        .await?;
    }
    nodes::set_ready(&env.client, "node-3", "True").await
}

/// Makes all instances seem gone: the breaker opens, and closes when the fleet is back.
async fn open_breaker(stage: &Stage) -> Result<()> {
    let env = &stage.env;
    env.cloud().faults().add(Fault::new(FaultEffect::WrongProject));
    env.lose("node-4").await?;
    for name in ["node-5", "node-6"] {
        nodes::set_ready(&env.client, name, "Unknown").await?;
    }
    breaker(stage, true).await?;
    sleep(SETTLE).await;
    env.cloud().faults().clear();
    breaker(stage, false).await?;
    nodes::gone(&env.client, "node-4", 2 * SOON).await?;
    for name in ["node-5", "node-6"] {
        nodes::set_ready(&env.client, name, "True").await?;
    }
    Ok(())
}

async fn breaker(stage: &Stage, open: bool) -> Result<()> {
    poll::until(&format!("the breaker to be open: {open}"), 2 * SOON, || async {
        let mut shown = 0.0;
        for program in &stage.replicas {
            let metrics = program.metrics().await?;
            shown += metrics.get("ccm_lifecycle_breaker_open").copied().unwrap_or_default();
        }
        Ok(((shown > 0.0) == open).then_some(()))
    })
    .await
}
