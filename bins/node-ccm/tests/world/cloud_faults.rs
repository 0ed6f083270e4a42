//! The cloud answers badly, and nothing is lost.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::Operation,
    faults::{Effect, Fault},
    poll,
};

use ccm_tests::nodes;
use ccm_tests::scenarios::{Env, SOON};

pub(super) async fn a_throttling_cloud_is_retried_after_its_pause(env: Env) -> Result<()> {
    let program = env.start(&env.node_ccm()).await?;
    let throttle = Effect::Throttle { retry_after: Some(Duration::from_secs(3)) };
    env.cloud().faults().add(Fault::new(throttle).on(Operation::Lookup));
    let before = env.cloud_calls();
    env.add_node("node-1").await?;
    nodes::event(&env.client, "node-1", "throttled", SOON).await?;
    ensure!(nodes::is_tainted(&nodes::get(&env.client, "node-1").await?), "it waits");
    tokio::time::sleep(Duration::from_secs(1)).await;
    ensure!(
        env.cloud_calls() <= before + 2,
        "{} calls while the cloud asked for silence",
        env.cloud_calls() - before
    );
    env.cloud().faults().clear();
    nodes::wait_for(&env.client, "node-1", "initialised", 2 * SOON, |node| {
        !nodes::is_tainted(node)
    })
    .await?;
    let throttled = program.metric("ccm_cloud_requests_total{").await?;
    ensure!(throttled > 0.0, "cloud requests are counted");
    Ok(())
}

pub(super) async fn cloud_errors_are_reported_and_retried(env: Env) -> Result<()> {
    let program = env.start(&env.node_ccm()).await?;
    for (number, kind) in [ErrorKind::Unavailable, ErrorKind::Unauthorized, ErrorKind::Forbidden]
        .into_iter()
        .enumerate()
    {
        let name = format!("node-{number}");
        let error = CloudError::new(kind, "the cloud's own words").with_request_id("req-7");
        env.cloud().faults().add(Fault::new(Effect::Error(error)).on(Operation::Lookup));
        env.add_node(&name).await?;
        let told = nodes::event(&env.client, &name, kind.reason(), SOON).await?;
        ensure!(
            told.contains("the cloud's own words") && told.contains("req-7"),
            "the event says {told:?}"
        );
        ensure!(nodes::is_tainted(&nodes::get(&env.client, &name).await?), "{name} waits");
        env.cloud().faults().clear();
        nodes::wait_for(&env.client, &name, "initialised", 2 * SOON, |node| {
            !nodes::is_tainted(node)
        })
        .await?;
    }
    ensure!(program.leads().await?, "the program went on all the time");
    Ok(())
}

pub(super) async fn a_hanging_cloud_does_not_block_other_nodes(env: Env) -> Result<()> {
    let program = env.start(&env.node_ccm().arg("--cloud-call-timeout=2s")).await?;
    env.cloud().faults().add(Fault::new(Effect::Hang).on(Operation::Lookup).times(1));
    env.add_node("node-0").await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    env.add_node("node-1").await?;
    env.initialised("node-1").await?;
    nodes::wait_for(&env.client, "node-0", "initialised", 2 * SOON, |node| {
        !nodes::is_tainted(node)
    })
    .await?;
    ensure!(program.leads().await?, "and the lease was kept");
    Ok(())
}

pub(super) async fn a_malformed_instance_does_not_block_other_nodes(env: Env) -> Result<()> {
    let _program = env.start(&env.node_ccm()).await?;
    env.cloud().faults().add(Fault::new(Effect::MalformedInstances(vec!["node-bad".to_owned()])));
    env.add_node("node-bad").await?;
    for number in 0..5 {
        env.add_node(&format!("node-{number}")).await?;
    }
    for number in 0..5 {
        env.initialised(&format!("node-{number}")).await?;
    }
    nodes::event(&env.client, "node-bad", "malformed", SOON).await?;
    ensure!(
        nodes::is_tainted(&nodes::get(&env.client, "node-bad").await?),
        "what cannot be read is not guessed"
    );
    Ok(())
}

pub(super) async fn a_cloud_that_is_down_at_start_is_not_ready(env: Env) -> Result<()> {
    env.served.pause().await?;
    let mut program = env.start_only(&env.node_ccm())?;
    nodes::register(&env.client, &nodes::fresh("node-1")).await?;
    env.cloud().add(nodes::instance("node-1"));
    poll::until("the program to answer that it is not ready", SOON, || async {
        Ok((program.get("/readyz").await?.0 == 500).then_some(()))
    })
    .await?;
    let (_, page) = program.get("/readyz?verbose").await?;
    ensure!(page.contains("cloud"), "it says why: {page}");
    ensure!(program.get("/livez").await?.0 == 200, "it lives");
    env.served.resume().await?;
    program.ready().await?;
    env.initialised("node-1").await?;
    Ok(())
}
