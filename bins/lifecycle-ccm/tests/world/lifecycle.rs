//! Nodes whose instances are gone leave in time, all others stay, and the shutdown taint
//! follows the machine.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_cloud::PowerState;
use ccm_sim::{
    poll,
    program::{Launch, Program},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use ccm_tests::scenarios::{
    Env, LIFECYCLE_AGENT, SOON, past_grace, quick_lifecycle, with_short_terms,
};
use ccm_tests::{cluster::Request, nodes};

/// The confirmation period of [`quick`].
pub(super) const CONFIRMATION: Duration = Duration::from_secs(2);

/// Long enough for a deletion by [`quick`]: a look, the confirmation, another look.
pub(super) const DELETION: Duration = Duration::from_secs(4);

/// Returns a program with quick periods.
pub(super) fn quick(env: &Env) -> Launch {
    quick_lifecycle(env)
}

/// Returns a program with quick periods, except for this confirmation period.
pub(super) fn confirming(env: &Env, period: Duration) -> Launch {
    env.lifecycle_ccm()
        .arg("--node-monitor-period=1s")
        .arg(format!("--node-deletion-confirmation-period={}s", period.as_secs()))
        .arg("--node-grace-period=1s")
}

/// Returns the whole number that this sample of `/metrics` shows, or zero if the sample does not
/// exist yet.
pub(super) async fn count(program: &Program, sample: &str) -> Result<u64> {
    let value = program.metrics().await?.get(sample).copied().unwrap_or(0.0);
    Ok(format!("{value:.0}").parse()?)
}

/// Waits until the sample shows this number, because the page follows the work with a delay.
pub(super) async fn counts(program: &Program, sample: &str, wanted: u64) -> Result<()> {
    poll::until(&format!("{sample} to be {wanted}"), SOON, || async {
        let is = count(program, sample).await?;
        ensure!(is == wanted, "it is {is}");
        Ok(Some(()))
    })
    .await
}

/// How many nodes the program says it has deleted.
pub(super) const DELETIONS: &str = r#"ccm_lifecycle_deletions_total{result="ok"}"#;

pub(super) async fn a_gone_node_is_deleted_after_its_confirmation_period(env: Env) -> Result<()> {
    // These are the defaults, except for the grace period.
    let program = env.start(&env.lifecycle_ccm().arg("--node-grace-period=1s")).await?;
    let confirmation = Duration::from_secs(20);
    env.add_initialised(&["node-0", "node-1", "node-2"]).await?;
    past_grace().await;

    nodes::set_ready(&env.client, "node-2", "False").await?;
    let start = Instant::now();
    env.lose("node-1").await?;
    nodes::event(&env.client, "node-1", "NodeGoneSuspected", SOON).await?;
    nodes::gone(&env.client, "node-1", 2 * confirmation).await?;
    let took = start.elapsed();
    ensure!(took >= confirmation, "deleted after {took:?}, before its confirmation");
    // This is generous for a busy machine. The benchmark prints the figure.
    ensure!(took <= confirmation + SOON, "deleted after {took:?}");

    let words =
        "DeletingNode: Deleting node node-1 because it does not exist in the cloud provider";
    nodes::event(&env.client, "node-1", words, SOON).await?;
    counts(&program, DELETIONS, 1).await?;
    nodes::stay(&env.client, &["node-0", "node-2"], Duration::from_secs(1)).await?;
    let writes: Vec<_> =
        env.node_writes(LIFECYCLE_AGENT).await?.iter().map(Request::what).collect();
    // The first write leaves the proof on the node.
    ensure!(writes == ["patch nodes", "delete nodes"], "two writes, not {writes:?}");
    Ok(())
}

pub(super) async fn a_mass_outage_deletes_no_node(mut env: Env) -> Result<()> {
    const NODES: usize = 1000;
    const PASSES: u64 = 3;
    let names: Vec<_> = (0..NODES).map(|number| format!("node-{number}")).collect();
    let registered = names.iter().enumerate().map(|(number, name)| {
        env.cloud().add(nodes::instance(name));
        let ready = if number % 2 == 0 { "False" } else { "Unknown" };
        nodes::with_ready(nodes::initialised(name), ready)
    });
    nodes::register_all(&env.client, registered.collect(), 16).await?;
    let program = env.start(&quick(&env)).await?;
    past_grace().await;

    let ended = "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count";
    env.forget_requests().await?;
    // They are read in this order, so that the calls belong to the counted passes and to one more
    // that may be half done.
    let before = count(&program, ended).await?;
    let calls = env.cloud().calls();
    poll::until("some passes", 2 * SOON, || async {
        Ok((count(&program, ended).await? >= before + PASSES).then_some(()))
    })
    .await?;
    let calls = env.cloud().calls().since(&calls);
    let passes = count(&program, ended).await? - before;
    ensure!(calls.lookup <= 2 * (passes + 1), "{calls} in {passes} passes");
    ensure!(calls.list == 0, "no list was needed: {calls}");
    ensure!(calls.nodes_looked_up >= NODES as u64, "all are looked at: {calls}");
    let written: Vec<_> = env
        .requests(LIFECYCLE_AGENT)
        .await?
        .into_iter()
        .filter(|request| request.is_write() && request.resource != "leases")
        .collect();
    ensure!(written.is_empty(), "there is nothing to report: {written:?}");
    ensure!(nodes::names(&env.client).await?.len() == NODES, "all nodes stay");
    Ok(())
}

pub(super) async fn foreign_excluded_and_protected_nodes_stay(env: Env) -> Result<()> {
    let _program = env.start(&quick(&env).arg("--node-selector=pool!=static")).await?;
    env.add_initialised(&["here", "gone", "protected", "excluded"]).await?;
    let mut foreign = nodes::initialised("foreign");
    foreign["spec"]["providerID"] = json!("elsewhere:///zone/i-1");
    nodes::register(&env.client, &foreign).await?;
    let protect = json!({"metadata": {"annotations": {"quartet.dev/deletion-protected": "yes"}}});
    nodes::patch(&env.client, "protected", protect).await?;
    let exclude = json!({"metadata": {"labels": {"pool": "static"}}});
    nodes::patch(&env.client, "excluded", exclude).await?;
    past_grace().await;

    for name in ["gone", "protected", "excluded"] {
        env.lose(name).await?;
    }
    nodes::set_ready(&env.client, "foreign", "Unknown").await?;
    nodes::gone(&env.client, "gone", SOON).await?;
    nodes::event(&env.client, "protected", "NodeDeletionHeld", SOON).await?;
    nodes::stay(&env.client, &["here", "protected", "excluded", "foreign"], DELETION).await?;
    for name in ["foreign", "excluded"] {
        let told = nodes::events(&env.client, name).await?;
        ensure!(told.is_empty(), "{name} got events: {told:?}");
    }

    let release = json!({"metadata": {"annotations": {"quartet.dev/deletion-protected": null}}});
    nodes::patch(&env.client, "protected", release).await?;
    nodes::gone(&env.client, "protected", SOON).await
}

pub(super) async fn the_budget_holds_the_rest(env: Env) -> Result<()> {
    const WINDOW: Duration = Duration::from_secs(20);
    let launch =
        quick(&env).arg("--node-deletion-budget=2").arg("--node-deletion-budget-window=20s");
    let launch = with_short_terms(launch);
    let program = env.start(&launch).await?;
    let names: Vec<_> = (0..8).map(|number| format!("node-{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    env.add_initialised(&names).await?;
    past_grace().await;

    let start = Instant::now();
    let lost = ["node-0", "node-1", "node-2"];
    for name in lost {
        env.lose(name).await?;
    }
    let left = async || {
        let there = nodes::names(&env.client).await?;
        anyhow::Ok(lost.into_iter().filter(|name| there.contains(*name)).collect::<Vec<_>>())
    };
    let held = poll::until("two to go", SOON, || async {
        let left = left().await?;
        ensure!(!left.is_empty(), "all went");
        Ok(<[&str; 1]>::try_from(left).ok())
    })
    .await?;
    nodes::event(&env.client, held[0], "NodeDeletionHeld", SOON).await?;
    counts(&program, "ccm_lifecycle_budget_used", 2).await?;
    // The leader dies, and the next one does not get a new budget.
    drop(program);
    let program = env.start(&launch).await?;
    counts(&program, "ccm_lifecycle_budget_used", 2).await?;
    nodes::stay(&env.client, &held, DELETION).await?;
    nodes::gone(&env.client, held[0], SOON).await?;
    // The first two took the time of their confirmation, and the window counts from them.
    let took = start.elapsed();
    ensure!(
        took >= CONFIRMATION + WINDOW,
        "the third went after {took:?}, before the window slid on"
    );
    Ok(())
}

async fn tainted(env: &Env, wanted: bool) -> Result<()> {
    let what = if wanted { "tainted as shut down" } else { "no longer tainted as shut down" };
    nodes::wait_for(&env.client, "node-1", what, SOON, |node| {
        nodes::has_taint(node, nodes::SHUTDOWN) == wanted
    })
    .await?;
    Ok(())
}

/// Stops the machine of node-1 and waits for its taint.
async fn shut_down(env: &Env) -> Result<()> {
    env.cloud().set_power("i-node-1", PowerState::Stopped);
    nodes::set_ready(&env.client, "node-1", "Unknown").await?;
    tainted(env, true).await
}

pub(super) async fn the_shutdown_taint_follows_the_machine(env: Env) -> Result<()> {
    let program = env.start(&quick(&env)).await?;
    env.add_initialised(&["node-0", "node-1"]).await?;
    let own = json!({"spec": {"taints": [{"key": "example.com/mine", "effect": "NoSchedule", "value": "kept"}]}});
    nodes::patch(&env.client, "node-1", own).await?;

    shut_down(&env).await?;
    nodes::event(&env.client, "node-1", "NodeShutdown", SOON).await?;
    env.cloud().set_power("i-node-1", PowerState::Running);
    tainted(&env, false).await?;
    nodes::event(&env.client, "node-1", "NodeRunning", SOON).await?;

    shut_down(&env).await?;
    sleep(Duration::from_secs(3)).await;
    // A Ready node loses the taint without a request to the cloud.
    nodes::set_ready(&env.client, "node-1", "True").await?;
    tainted(&env, false).await?;

    let node = nodes::get(&env.client, "node-1").await?;
    ensure!(nodes::has_taint(&node, "example.com/mine"), "what is not ours is left alone");
    let writes = env.node_writes(LIFECYCLE_AGENT).await?;
    let done: Vec<_> = writes.iter().filter(|write| write.code == 200).map(Request::what).collect();
    ensure!(done == ["patch nodes"; 4], "a write for each change and no more: {writes:?}");
    ensure!(count(&program, DELETIONS).await? == 0, "no node is deleted");
    Ok(())
}
