//! Leader election, and the time without a leader.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::program::{Launch, Program, Signal};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::DeleteParams};
use tokio::time::Instant;

use ccm_tests::nodes;
use ccm_tests::scenarios::{Env, NODE_AGENT, SOON, lease, with_short_terms};

/// A node-ccm with short terms.
pub(super) fn quick(env: &Env) -> Launch {
    with_short_terms(env.node_ccm())
}

/// A leader that works and a standby.
async fn two(env: &Env, launch: &Launch) -> Result<(Program, Program)> {
    let leader = env.start(launch).await?;
    let standby = env.start_standby(launch).await?;
    ensure!(!standby.leads().await?, "two leaders");
    env.add_node("node-0").await?;
    env.initialised("node-0").await?;
    Ok((leader, standby))
}

/// Registers a node and says how long after `since` it was initialised.
async fn first_write(env: &Env, since: Instant) -> Result<Duration> {
    nodes::wait_for(&env.client, "node-1", "initialised", 2 * SOON, |node| {
        !nodes::is_tainted(node)
    })
    .await?;
    Ok(since.elapsed())
}

pub(super) async fn a_released_lease_is_taken_over_at_once(env: Env) -> Result<()> {
    // The terms are the defaults: an unreleased Lease would be respected for 15 s, which no
    // busy machine takes for a released one.
    let (leader, standby) = two(&env, &env.node_ccm()).await?;
    let start = Instant::now();
    let ended = leader.terminate().await?;
    ensure!(ended.success(), "the leader ends well, not with {ended}");
    env.add_node("node-1").await?;
    let took = first_write(&env, start).await?;
    ensure!(standby.leads().await?, "the standby leads");
    ensure!(took < Duration::from_secs(10), "took {took:?}; the benchmark prints the figure");
    Ok(())
}

/// A leader that freezes ends when it wakes; the next one is killed.
pub(super) async fn a_frozen_and_a_killed_leader_are_replaced(env: Env) -> Result<()> {
    let (mut leader, mut next) = two(&env, &quick(&env)).await?;
    leader.signal(Signal::STOP)?;
    next.leading(2 * SOON).await?;
    env.add_node("node-1").await?;
    env.initialised("node-1").await?;
    let writes = env.node_writes(NODE_AGENT).await?.len();
    leader.signal(Signal::CONT)?;
    let ended = leader.wait(SOON).await?;
    ensure!(ended.code() == Some(1), "the deposed leader ends with 1, not with {ended}");
    ensure!(env.node_writes(NODE_AGENT).await?.len() == writes, "and wrote nothing more");
    ensure!(next.leads().await?, "the new leader keeps the lease");

    let last = env.start_standby(&quick(&env)).await?;
    next.signal(Signal::KILL)?;
    next.wait(SOON).await?;
    let renewed = lease(&env, "node-ccm").await?.renew_time.context("it is held")?;
    env.add_node("node-2").await?;
    env.initialised("node-2").await?;
    ensure!(last.leads().await?, "the standby leads");
    let taken = lease(&env, "node-ccm").await?.acquire_time.context("it is held")?;
    let took = Duration::try_from(taken.0.duration_since(renewed.0))?;
    ensure!(took < Duration::from_secs(5 + 4), "took {took:?}");
    Ok(())
}

pub(super) async fn a_deleted_lease_never_makes_two_leaders(env: Env) -> Result<()> {
    let (leader, standby) = two(&env, &quick(&env)).await?;
    let api = Api::<Lease>::namespaced(env.client.clone(), "kube-system");
    api.delete("node-ccm", &DeleteParams::default()).await?;
    for _ in 0..60 {
        // A leader that could not renew in time has ended: its page does not answer.
        let leading =
            [leader.leads().await.unwrap_or(false), standby.leads().await.unwrap_or(false)];
        ensure!(leading != [true, true], "two leaders");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    env.add_node("node-1").await?;
    nodes::wait_for(&env.client, "node-1", "initialised", 2 * SOON, |node| {
        !nodes::is_tainted(node)
    })
    .await?;
    Ok(())
}
