//! The cloud answers badly, and nothing is lost.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Env, SOON};
use crate::{cloud::{self, Fault}, nodes, poll};

pub(super) async fn a_throttling_cloud_is_waited_for(env: Env) -> Result<()> {
    let program = env.start(&env.node_ccm()).await?;
    env.cloud.fail_lookups(Fault::Throttled { retry_after: Duration::from_secs(3) });
    let before = env.cloud.calls();
    env.add_node("node-1").await?;
    nodes::event(&env.client, "node-1", "throttled", SOON).await?;
    ensure!(nodes::is_tainted(&nodes::get(&env.client, "node-1").await?), "it waits");
    tokio::time::sleep(Duration::from_secs(1)).await;
    ensure!(env.cloud.calls() <= before + 2, "{} calls while the cloud asked for silence", env.cloud.calls() - before);
    env.cloud.heal();
    nodes::wait_for(&env.client, "node-1", "initialised", 2 * SOON, |node| !nodes::is_tainted(node)).await?;
    let throttled = program.metric("ccm_cloud_requests_total{").await?;
    ensure!(throttled > 0.0, "cloud requests are counted");
    Ok(())
}

pub(super) async fn errors_of_the_cloud_are_told_and_survived(env: Env) -> Result<()> {
    let program = env.start(&env.node_ccm()).await?;
    for (number, fault) in [Fault::Unavailable, Fault::Unauthorized, Fault::Forbidden].into_iter().enumerate() {
        let name = format!("node-{number}");
        let word = fault.word();
        env.cloud.fail_lookups(fault);
        env.add_node(&name).await?;
        nodes::event(&env.client, &name, word, SOON).await?;
        ensure!(nodes::is_tainted(&nodes::get(&env.client, &name).await?), "{name} waits");
        env.cloud.heal();
        nodes::wait_for(&env.client, &name, "initialised", 2 * SOON, |node| !nodes::is_tainted(node)).await?;
    }
    ensure!(program.leads().await?, "the program went on all the time");
    Ok(())
}

pub(super) async fn a_hanging_cloud_does_not_stop_the_rest(env: Env) -> Result<()> {
    let program = env.start(&env.node_ccm().arg("--cloud-call-timeout=2s")).await?;
    env.cloud.hang_next_lookup();
    env.add_node("node-0").await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    env.add_node("node-1").await?;
    env.initialised("node-1").await?;
    nodes::wait_for(&env.client, "node-0", "initialised", 2 * SOON, |node| !nodes::is_tainted(node)).await?;
    ensure!(program.leads().await?, "and the lease was kept");
    Ok(())
}

pub(super) async fn one_malformed_instance_does_not_stop_the_rest(env: Env) -> Result<()> {
    let _program = env.start(&env.node_ccm()).await?;
    env.cloud.malform("node-bad");
    env.add_node("node-bad").await?;
    for number in 0..5 {
        env.add_node(&format!("node-{number}")).await?;
    }
    for number in 0..5 {
        env.initialised(&format!("node-{number}")).await?;
    }
    nodes::event(&env.client, "node-bad", "malformed", SOON).await?;
    ensure!(nodes::is_tainted(&nodes::get(&env.client, "node-bad").await?), "what cannot be read is not guessed");
    Ok(())
}

pub(super) async fn a_cloud_that_is_down_at_start_is_not_ready(env: Env) -> Result<()> {
    env.cloud.stop_serving().await?;
    let mut program = env.start_only(&env.node_ccm())?;
    nodes::register(&env.client, &nodes::fresh("node-1")).await?;
    env.cloud.add(cloud::instance("node-1"));
    poll::until("the program to answer that it is not ready", SOON, || async {
        Ok((program.get("/readyz").await?.0 == 500).then_some(()))
    })
    .await?;
    let (_, page) = program.get("/readyz?verbose").await?;
    ensure!(page.contains("cloud"), "it says why: {page}");
    ensure!(program.get("/livez").await?.0 == 200, "it lives");
    env.cloud.serve_again().await?;
    program.ready().await?;
    env.initialised("node-1").await?;
    Ok(())
}
