//! Changes of too many Ready nodes are held.

use std::{ops::Range, time::Duration};

use anyhow::{Result, ensure};
use ccm_sim::{
    poll,
    program::{Launch, Program},
};
use ccm_tests::{
    cluster::annotate_lease,
    nodes,
    scenarios::{Env, NODE_AGENT, SOON},
};
use serde_json::json;
use tokio::time::sleep;

use super::leadership::quick;

const NODES: usize = 50;
const APPROVED: &str = "quartet.dev/change-approved";
/// The time of two refreshes, and of the gathering of changes.
const A_WHILE: Duration = Duration::from_secs(28);

fn name(number: usize) -> String {
    format!("node-{number:02}")
}

fn launch(env: &Env, period: &str) -> Launch {
    quick(env).arg(format!("--node-status-update-frequency={period}"))
}

/// Starts 50 Ready nodes that agree with their instances. The first ten have an additional label.
async fn fleet(env: &mut Env) -> Result<Program> {
    let program = env.start(&launch(env, "10s")).await?;
    for number in 0..NODES {
        env.cloud().add(nodes::instance(&name(number)));
    }
    let fresh = |number: usize| {
        let mut node = nodes::fresh(&name(number));
        if number < 10 {
            node["metadata"]["labels"]["pool"] = json!("batch");
        }
        node
    };
    nodes::register_all(&env.client, (0..NODES).map(fresh).collect(), 16).await?;
    nodes::all_initialised(&env.client, 4 * SOON).await?;
    env.forget_requests().await?;
    Ok(program)
}

/// Gives these instances another first InternalIP in the cloud.
fn move_instances(env: &Env, numbers: Range<usize>) {
    for number in numbers {
        let id = nodes::instance(&name(number)).id;
        env.cloud().update(&id, |instance| {
            instance.addresses[0].address = format!("10.200.0.{number}");
        });
    }
}

/// Returns the nodes that have been written, by the API server's own record.
async fn written(env: &Env) -> Result<Vec<String>> {
    let mut names: Vec<String> =
        env.node_writes(NODE_AGENT).await?.into_iter().map(|request| request.name).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

async fn all_written(env: &Env, count: usize) -> Result<()> {
    poll::until(&format!("{count} nodes are written"), 2 * SOON, || async {
        Ok((written(env).await?.len() == count).then_some(()))
    })
    .await
}

async fn held(program: &Program, count: f64) -> Result<()> {
    poll::until(&format!("{count} changes are held"), 2 * SOON, || async {
        let held = program.metric("ccm_brake_held").await?;
        Ok(((held - count).abs() < f64::EPSILON).then_some(()))
    })
    .await
}

pub(super) async fn another_address_for_all_ready_nodes_is_held_until_approved(
    mut env: Env,
) -> Result<()> {
    let program = fleet(&mut env).await?;
    move_instances(&env, 0..NODES);
    held(&program, NODES as f64).await?;
    sleep(A_WHILE).await;
    ensure!(written(&env).await?.is_empty(), "written: {:?}", written(&env).await?);
    nodes::event(&env.client, &name(7), "NodeChangeHeld: the first InternalIP", SOON).await?;
    let (code, page) = program.get("/readyz?verbose").await?;
    let line = page.lines().find(|line| line.contains("brake")).unwrap_or_default();
    ensure!(line.starts_with("[!]brake") && line.contains("for 50 of 50 Ready nodes"), "{line}");
    ensure!(code == 200, "the replica is ready, not {code}");
    let opened = program.metric("ccm_brake_openings_total").await?;
    ensure!((opened - 1.0).abs() < f64::EPSILON, "opened once, not {opened} times");
    // New nodes are still initialised.
    env.add_node("node-new").await?;
    env.initialised("node-new").await?;
    nodes::delete(&env.client, "node-new").await?;
    env.forget_requests().await?;

    // First one node is approved, then a label selector. A change of the leader makes no
    // difference.
    let approve = json!({"metadata": {"annotations": {APPROVED: "yes"}}});
    nodes::patch(&env.client, &name(49), approve).await?;
    all_written(&env, 1).await?;
    nodes::wait_for(&env.client, &name(49), "its approval is used up", SOON, |node| {
        !node.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(APPROVED))
    })
    .await?;
    approve_set(&env, "pool=batch").await?;
    all_written(&env, 11).await?;
    drop(program);
    // An approval has an effect at once, long before the next refresh.
    let program = env.start(&launch(&env, "5m")).await?;
    held(&program, 39.0).await?;
    sleep(A_WHILE).await;
    ensure!(written(&env).await?.len() == 11, "written: {:?}", written(&env).await?);
    approve_set(&env, "*").await?;
    all_written(&env, NODES).await?;
    held(&program, 0.0).await
}

async fn approve_set(env: &Env, selector: &str) -> Result<()> {
    let set = json!({
        "quartet.dev/approved-selector": selector, "quartet.dev/approved-until": "2999-01-01T00:00:00Z"});
    annotate_lease(&env.client, "node-ccm", set).await
}

pub(super) async fn the_sixth_within_the_hour_is_held_by_the_next_leader_as_well(
    mut env: Env,
) -> Result<()> {
    let program = fleet(&mut env).await?;
    move_instances(&env, 0..5);
    all_written(&env, 5).await?;
    move_instances(&env, 5..10);
    held(&program, 5.0).await?;
    drop(program);
    let program = env.start(&launch(&env, "10s")).await?;
    held(&program, 5.0).await?;
    sleep(A_WHILE).await;
    ensure!(written(&env).await?.len() == 5, "written: {:?}", written(&env).await?);
    nodes::event(&env.client, &name(5), "the budget is used up until", SOON).await?;
    approve_set(&env, "pool=batch").await?;
    all_written(&env, 10).await
}
