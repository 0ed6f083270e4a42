//! The court's evidence about a node counts only for this very node, and only with the leader
//! that collected it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_base::clock;
use ccm_sim::{
    apiserver::{Action, Fault, Verb},
    poll,
    program::{Launch, Signal},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::lifecycle::{DELETION, DELETIONS, confirming, count, counts, quick};
use ccm_tests::nodes;
use ccm_tests::scenarios::{Env, LIFECYCLE_AGENT, SOON, lease, past_grace, with_short_terms};

const PROOF: &str = "quartet.dev/instance-gone";
const SUSPECTED: &str = "NodeGoneSuspected";

/// Waits for the first evidence against the node.
async fn suspected(env: &Env, name: &str) -> Result<()> {
    nodes::event(&env.client, name, SUSPECTED, SOON).await?;
    Ok(())
}

/// Returns the node of the instance that took the name over.
fn successor(name: &str) -> Value {
    let mut node = nodes::with_ready(nodes::initialised(name), "False");
    node["spec"]["providerID"] = format!("sim://i-{name}-new").into();
    node
}

pub(super) async fn a_node_registered_anew_is_another_node(env: Env) -> Result<()> {
    // Both names must have an open case, and their nodes must be gone, before the first case ends.
    const PERIOD: Duration = Duration::from_secs(10);
    let _program = env.start(&confirming(&env, PERIOD)).await?;
    env.add_initialised(&["node-0", "new-machine", "no-machine"]).await?;
    past_grace().await;
    for name in ["new-machine", "no-machine"] {
        env.lose(name).await?;
        suspected(&env, name).await?;
    }
    let mut machine = nodes::instance("new-machine");
    machine.id.push_str("-new");
    env.cloud().add(machine);
    for name in ["new-machine", "no-machine"] {
        nodes::delete(&env.client, name).await?;
        nodes::register(&env.client, &successor(name)).await?;
    }
    let start = Instant::now();
    nodes::gone(&env.client, "no-machine", 2 * SOON).await?;
    let took = start.elapsed();
    ensure!(took >= PERIOD, "evidence about its namesake counted: gone after {took:?}");
    nodes::stay(&env.client, &["node-0", "new-machine"], DELETION).await
}

pub(super) async fn evidence_of_a_killed_leader_is_dropped(env: Env) -> Result<()> {
    hand_over(&env, Signal::KILL).await
}

pub(super) async fn evidence_of_a_stopped_leader_is_dropped(env: Env) -> Result<()> {
    hand_over(&env, Signal::TERM).await
}

/// This is longer than a takeover after a crash, so that evidence that survived would show.
const LONG: Duration = Duration::from_secs(8);

fn long(env: &Env) -> Launch {
    with_short_terms(confirming(env, LONG).arg("--node-deletion-budget=50"))
}

/// Ends the leader with 50 open cases: the next leader starts them again.
async fn hand_over(env: &Env, signal: Signal) -> Result<()> {
    let mut leader = env.start(&long(env)).await?;
    let standby = env.start_standby(&long(env)).await?;
    let names: Vec<_> = (0..120).map(|number| format!("node-{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    env.add_initialised(&names).await?;
    past_grace().await;
    let (lost, kept) = names.split_at(50);
    for name in lost {
        env.lose(name).await?;
    }
    suspected(env, "node-49").await?;
    sleep(Duration::from_secs(1)).await;
    leader.signal(signal)?;
    leader.wait(SOON).await?;
    standby.leading(SOON).await?;
    let since = lease(env, "lifecycle-ccm").await?.acquire_time.context("it is held")?;
    poll::until("the first deletion", 2 * SOON, || async {
        Ok((nodes::names(&env.client).await?.len() < names.len()).then_some(()))
    })
    .await?;
    let took = Duration::try_from(clock::wall().duration_since(since.0))?;
    ensure!(took >= LONG, "the new leader deleted after {took:?}");
    for name in lost {
        nodes::gone(&env.client, name, SOON).await?;
    }
    nodes::stay(&env.client, kept, Duration::from_secs(1)).await
}

pub(super) async fn a_deletion_in_flight_spares_the_successor(env: Env) -> Result<()> {
    let _program = env.start(&quick(&env)).await?;
    env.add_initialised(&["node-0", "node-1"]).await?;
    past_grace().await;
    // While the request waits before the server looks at it, another node takes the name.
    let wait = Fault::new(Action::Delay(Duration::from_secs(2))).user_agent(LIFECYCLE_AGENT);
    let faults = env.cluster.simulated().context("simulated")?.faults();
    faults.add(wait.verb(Verb::Delete).resource("nodes"));
    env.lose("node-1").await?;
    poll::until("the deletion to be on its way", SOON, || async {
        let writes = env.node_writes(LIFECYCLE_AGENT).await?;
        Ok(writes.iter().any(|write| write.verb == "delete").then_some(()))
    })
    .await?;
    nodes::delete(&env.client, "node-1").await?;
    let mut machine = nodes::instance("node-1");
    machine.id.push_str("-new");
    env.cloud().add(machine);
    nodes::register(&env.client, &successor("node-1")).await?;
    nodes::stay(&env.client, &["node-0", "node-1"], DELETION).await?;
    let mut refused = env.node_writes(LIFECYCLE_AGENT).await?;
    refused.retain(|write| write.verb == "delete");
    ensure!(refused.iter().map(|write| write.code).eq([409]), "the server refused it: {refused:?}");
    Ok(())
}

pub(super) async fn the_proof_is_left_on_a_node_that_is_deleted(env: Env) -> Result<()> {
    let program = env.start(&quick(&env)).await?;
    env.add_initialised(&["node-0", "node-1", "node-2"]).await?;
    past_grace().await;
    // The finalizer keeps the object with the last write.
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    nodes::patch(&env.client, "node-1", hold).await?;
    env.lose("node-1").await?;
    nodes::wait_for(&env.client, "node-1", "being deleted, with the proof", 2 * SOON, |node| {
        let proof = node.metadata.annotations.as_ref().and_then(|all| all.get(PROOF));
        let is_marked = proof.is_some_and(|proof| proof.starts_with("by_id 2"));
        node.metadata.deletion_timestamp.is_some() && is_marked
    })
    .await?;
    // An admission policy that refuses the mark does not delay a deletion.
    let faults = env.cluster.simulated().context("simulated")?.faults();
    let forbidden = Fault::new(Action::Status { code: 403, retry_after: None });
    faults.add(forbidden.user_agent(LIFECYCLE_AGENT).verb(Verb::Patch).resource("nodes"));
    env.lose("node-2").await?;
    nodes::gone(&env.client, "node-2", SOON).await?;
    counts(&program, DELETIONS, 2).await?;
    // A node that stays although it was marked should not be deleted.
    faults.clear();
    let mark = json!({"metadata": {"annotations": {PROOF: "by_id 2026-01-01T00:00:00.000Z"}}});
    nodes::patch(&env.client, "node-0", mark).await?;
    nodes::wait_for(&env.client, "node-0", "without the mark", SOON, |node| {
        node.metadata.annotations.as_ref().is_none_or(|all| !all.contains_key(PROOF))
    })
    .await?;
    Ok(())
}

pub(super) async fn a_deletion_carries_the_uid(env: Env) -> Result<()> {
    let _program = env.start(&quick(&env)).await?;
    env.add_initialised(&["node-0", "node-1"]).await?;
    past_grace().await;
    env.lose("node-1").await?;
    let uid = nodes::get(&env.client, "node-1").await?.metadata.uid;
    nodes::gone(&env.client, "node-1", SOON).await?;
    let deletions: Vec<_> = env
        .node_writes(LIFECYCLE_AGENT)
        .await?
        .into_iter()
        .filter(|write| write.verb == "delete")
        .map(|write| write.uid)
        .collect();
    ensure!(uid.is_some() && deletions == [uid.clone()], "{deletions:?} instead of {uid:?}");
    Ok(())
}

pub(super) async fn a_refused_deletion_is_reported_and_retried(env: Env) -> Result<()> {
    let program = env.start(&quick(&env)).await?;
    env.add_initialised(&["node-0", "node-1"]).await?;
    past_grace().await;
    let faults = env.cluster.simulated().context("simulated")?.faults();
    let forbidden = Fault::new(Action::Status { code: 403, retry_after: None });
    faults.add(forbidden.user_agent(LIFECYCLE_AGENT).verb(Verb::Delete).resource("nodes"));
    env.lose("node-1").await?;
    nodes::event(&env.client, "node-1", "DeletingNodeFailed", SOON).await?;
    nodes::stay(&env.client, &["node-0", "node-1"], DELETION).await?;
    let used = count(&program, "ccm_lifecycle_budget_used").await?;
    ensure!(used == 0, "what did not happen costs no budget, not {used}");
    faults.clear();
    nodes::gone(&env.client, "node-1", SOON).await?;
    counts(&program, DELETIONS, 1).await?;
    Ok(())
}

pub(super) async fn the_rules_change_without_a_restart(env: Env) -> Result<()> {
    let file = env.path("lifecycle-ccm.yaml");
    std::fs::write(&file, "node_deletion_budget: 0\n")?;
    let program = env.start(&quick(&env).arg(format!("--config={}", file.display()))).await?;
    env.add_initialised(&["node-0", "node-1"]).await?;
    past_grace().await;
    env.lose("node-1").await?;
    nodes::event(&env.client, "node-1", "NodeDeletionHeld", SOON).await?;
    nodes::stay(&env.client, &["node-1"], DELETION).await?;
    std::fs::write(&file, "node_deletion_budget: 10%\n")?;
    nodes::gone(&env.client, "node-1", 2 * SOON).await?;
    ensure!(program.leads().await?, "no lease is lost for it");
    Ok(())
}
