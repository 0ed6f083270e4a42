//! Leader election, and the time without a leader.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::program::{Launch, Program, Signal};
use ccm_tests::scenarios::{Env, NODE_AGENT, SOON, lease, with_short_terms};

/// Returns a node-ccm with short terms.
pub(super) fn quick(env: &Env) -> Launch {
    with_short_terms(env.node_ccm())
}

/// Returns a leader that works and a standby.
async fn two(env: &Env, launch: &Launch) -> Result<(Program, Program)> {
    let leader = env.start(launch).await?;
    let standby = env.start_standby(launch).await?;
    ensure!(!standby.leads().await?, "two leaders");
    env.add_node("node-0").await?;
    env.initialised("node-0").await?;
    Ok((leader, standby))
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
