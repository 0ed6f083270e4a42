//! The API server gives bad answers, goes away and comes back.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_sim::apiserver::{Action, Fault, Verb};

use ccm_tests::nodes;
use ccm_tests::scenarios::{Env, NODE_AGENT, SOON};

use super::leadership::quick;

/// Returns a fault that hits node-ccm alone, not this test's own client.
fn fault(action: Action) -> Fault {
    Fault::new(action).user_agent(NODE_AGENT)
}

pub(super) async fn a_lost_response_to_a_write_is_harmless(env: Env) -> Result<()> {
    let _program = env.start(&env.node_ccm()).await?;
    let faults = env.cluster.simulated().context("simulated")?.faults();
    faults.add(fault(Action::DropAfterApply).verb(Verb::Patch).resource("nodes").times(2));
    env.add_node("node-1").await?;
    let node = env.initialised("node-1").await?;
    ensure!(nodes::addresses(&node).len() > 1, "addresses are {:?}", nodes::addresses(&node));
    Ok(())
}

pub(super) async fn the_program_survives_an_api_server_restart(env: Env) -> Result<()> {
    // These terms outlast the restart, which takes more than ten seconds on a busy machine.
    let launch = env
        .node_ccm()
        .arg("--leader-elect-lease-duration=120s")
        .arg("--leader-elect-renew-deadline=100s");
    let program = env.start(&launch).await?;
    env.add_node("node-0").await?;
    env.initialised("node-0").await?;
    env.cluster.real().context("real")?.restart_apiserver().await?;
    env.cloud().add(nodes::instance("node-1"));
    nodes::register(&env.client, &nodes::fresh("node-1")).await?;
    nodes::wait_for(&env.client, "node-1", "initialised", 4 * SOON, |node| {
        !nodes::is_tainted(node)
    })
    .await?;
    ensure!(program.leads().await?, "a restart within the deadline costs no lease");
    Ok(())
}

pub(super) async fn a_frozen_api_server_ends_the_leader_and_nothing_is_lost(
    env: Env,
) -> Result<()> {
    let mut program = env.start(&quick(&env)).await?;
    let server = env.cluster.real().context("real")?;
    server.freeze()?;
    let ended = program.wait(Duration::from_secs(25)).await;
    server.thaw()?;
    let ended = ended?;
    ensure!(ended.code() == Some(1), "a leader that cannot renew ends with 1, not with {ended}");
    env.add_node("node-1").await?;
    // The ended leader could not release its lease: the next one waits for its whole term.
    let _program = env.start(&quick(&env)).await?;
    env.initialised("node-1").await?;
    Ok(())
}
