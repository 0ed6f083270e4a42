//! With `--mode=observe` everything is decided as a leader does, and nothing is written.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::{AddressKind, NodeAddress, PowerState};
use ccm_sim::{
    poll,
    program::{Launch, Program},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Env, LIFECYCLE_AGENT, NODE_AGENT, SOON, leadership, lifecycle};
use crate::{
    cluster::{self, OBSERVER},
    nodes,
};

/// The steps of a plan, node by node: their names and their text.
type Plans = BTreeMap<String, (Vec<String>, String)>;

/// Starts an observer, which comes as another user than the leader.
async fn observe(env: &Env, launch: Launch) -> Result<Program> {
    let path = env.path("observer.kubeconfig");
    cluster::write_observers_kubeconfig(env.cluster.kubeconfig(), &path)?;
    let kubeconfig = format!("--kubeconfig={}", path.display());
    let program = env.start_standby(&launch.arg("--mode=observe").arg(kubeconfig)).await?;
    ensure!(program.metric("ccm_observing").await? > 0.0, "it does not say that it observes");
    for absent in ["running_managed_controllers", "leader_election_master_status"] {
        let samples = program.metrics().await?;
        ensure!(!samples.keys().any(|name| name.starts_with(absent)), "{absent} is there");
    }
    Ok(program)
}

async fn page(program: &Program) -> Result<Value> {
    let (status, text) = program.get("/plan?format=json").await?;
    ensure!(status == 200, "/plan answers {status}");
    Ok(serde_json::from_str(&text)?)
}

/// Waits until these numbers of steps are due and held.
async fn decided(program: &Program, due: Value, held: Value) -> Result<Value> {
    poll::until(&format!("the plan {due} {held}"), 2 * SOON, || async {
        let page = page(program).await?;
        ensure!(page["due"] == due && page["held"] == held, "{page:#}");
        Ok(Some(page))
    })
    .await
    .with_context(|| program.log())
}

/// The objects of a page with a step that is due.
fn due(page: &Value) -> Result<Plans> {
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a text");
    let mut plans = Plans::new();
    for plan in page["plans"].as_array().context("the page lists plans")? {
        ensure!(plan["kind"] == "Node", "{plan}");
        let steps = plan["steps"].as_array().context("a plan has steps")?;
        let (mut kinds, mut texts) = (Vec::new(), Vec::new());
        for step in steps.iter().filter(|step| step["held"].is_null()) {
            let (kind, reason) = (text(&step["step"])?, text(&step["reason"])?);
            let changes = step["changes"].as_array().context("a step has changes")?;
            let changes = changes.iter().map(text).collect::<Result<Vec<_>>>()?.join(", ");
            let colon = if changes.is_empty() { "" } else { ": " };
            texts.push(format!("{kind}{colon}{changes} ({reason})"));
            kinds.push(kind);
        }
        if !kinds.is_empty() {
            plans.insert(text(&plan["name"])?, (kinds, texts.join("; ")));
        }
    }
    Ok(plans)
}

/// The steps that a leader logs before it executes them.
fn announced(leader: &Program) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in leader.log().lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let message =
            line["message"].as_str().and_then(|text| text.strip_prefix("to do about Node "));
        if let Some((name, text)) = message.and_then(|text| text.split_once(": "))
            && text != "nothing"
            && !text.contains("), held: ")
        {
            all.entry(name.to_owned()).or_default().push(text.to_owned());
        }
    }
    all
}

/// The request that a step is.
fn request(step: &str) -> &'static str {
    match step {
        "addresses" => "patch nodes/status",
        "delete" => "delete nodes",
        _ => "patch nodes",
    }
}

/// No observer has written anything, though it may, nor asked for a Lease.
async fn nothing_written(env: &Env, observers: &[&Program]) -> Result<()> {
    let requests = env.requests("").await?;
    let own: Vec<_> = requests.iter().filter(|request| request.user == OBSERVER).collect();
    let read = own.iter().filter(|request| request.resource == "nodes").count();
    ensure!(read >= observers.len(), "the audit log does not show the observers: {own:?}");
    let odd: Vec<_> =
        own.iter().filter(|request| request.is_write() || request.resource == "leases").collect();
    ensure!(odd.is_empty(), "an observer wrote: {odd:?}");
    for observer in observers {
        let samples = observer.metrics().await?;
        let mut buckets = samples.keys().filter(|name| name.starts_with("ccm_limiter_"));
        let write = buckets.find(|name| name.contains("external") && name.contains("\"write\""));
        ensure!(write.is_none(), "a write to the cloud was about to be sent: {write:?}");
        let refused = observer.metric("ccm_cloud_requests_refused_total").await?;
        ensure!(refused == 0.0, "{refused} requests to the cloud were refused");
    }
    Ok(())
}

/// A leader beside an observer executes exactly the observer's plan, which is empty
/// afterwards.
async fn the_leader_does(
    env: &mut Env,
    launch: Launch,
    agent: &str,
    observer: &Program,
    page: &Value,
) -> Result<()> {
    let plans = due(page)?;
    let decided = observer.metric("ccm_plan_steps_total").await?;
    sleep(Duration::from_secs(3)).await;
    let later = due(&self::page(observer).await?)?;
    ensure!(later == plans, "the plan changes by itself: {plans:?} {later:?}");
    let again = observer.metric("ccm_plan_steps_total").await? - decided;
    ensure!(again < 0.5, "{again} steps are counted again");
    nothing_written(env, &[observer]).await?;

    let leader = env.start(&launch.arg("--logging-format=json").arg("-v=4")).await?;
    poll::until("the observer to see it done", 2 * SOON, || async {
        let left = due(&self::page(observer).await?)?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(Some(()))
    })
    .await
    .with_context(|| leader.log())?;
    let announced = announced(&leader);
    let expected: BTreeMap<_, _> =
        plans.iter().map(|(name, (_, text))| (name.clone(), vec![text.clone()])).collect();
    ensure!(announced == expected, "the leader decided {announced:#?}, the observer {expected:#?}");
    let mut written: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for write in env.node_writes(agent).await? {
        ensure!(write.code == 200, "{write:?}");
        written.entry(write.name.clone()).or_default().push(write.what());
    }
    let requests = |steps: &[String]| steps.iter().map(|step| request(step).to_owned()).collect();
    let expected: BTreeMap<_, Vec<_>> =
        plans.iter().map(|(name, (steps, _))| (name.clone(), requests(steps))).collect();
    ensure!(written == expected, "written {written:?}, planned {expected:?}");
    nothing_written(env, &[observer]).await
}

pub(super) async fn the_leaders_steps_are_the_plan_of_node_ccm(mut env: Env) -> Result<()> {
    let often = "--node-status-update-frequency=10s";
    // A freshly initialised node is correct except for the changes here.
    let settled = env.start(&env.node_ccm()).await?;
    for name in ["moved", "edited", "right"] {
        env.add_node(name).await?;
        env.initialised(name).await?;
    }
    settled.terminate().await?;
    for name in ["new-0", "new-1"] {
        env.add_node(name).await?;
    }
    let mut moved = nodes::instance("moved");
    moved.addresses = vec![NodeAddress::new(AddressKind::InternalIp, "10.77.0.1")];
    env.cloud().add(moved);
    let edit = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "elsewhere"}}});
    nodes::patch(&env.client, "edited", edit).await?;
    let mut foreign = nodes::fresh("foreign");
    foreign["spec"]["providerID"] = json!("elsewhere:///zone/i-1");
    nodes::register(&env.client, &foreign).await?;
    env.forget_requests().await?;

    let observer = observe(&env, env.node_ccm().arg(often)).await?;
    let page =
        decided(&observer, json!({"addresses": 3, "labels": 1, "taint": 2}), json!({})).await?;
    let names: Vec<_> = due(&page)?.into_keys().collect();
    ensure!(names == ["edited", "moved", "new-0", "new-1"], "{names:?}");
    let leader = leadership::quick(&env).arg(often);
    the_leader_does(&mut env, leader, NODE_AGENT, &observer, &page).await
}

/// A cluster with work of every kind for lifecycle-ccm.
async fn prepare_lifecycle(env: &Env) -> Result<()> {
    env.add_initialised(&["gone-0", "gone-1", "gone-2", "stopped", "back", "node-0", "node-1"])
        .await?;
    env.add_initialised(&["node-2", "node-3", "node-4"]).await?;
    let shutdown = json!({"spec": {"taints": [{"key": nodes::SHUTDOWN, "effect": "NoSchedule"}]}});
    nodes::patch(&env.client, "back", shutdown).await?;
    let approved = json!({"metadata": {"annotations": {"quartet.dev/deletion-approved": "yes"}}});
    nodes::patch(&env.client, "node-0", approved).await?;
    lifecycle::grow_up().await;
    env.cloud().set_power("i-stopped", PowerState::Stopped);
    nodes::set_ready(&env.client, "stopped", "Unknown").await?;
    for name in ["gone-0", "gone-1", "gone-2"] {
        env.lose(name).await?;
    }
    Ok(())
}

pub(super) async fn the_leaders_steps_are_the_plan_of_lifecycle_ccm(mut env: Env) -> Result<()> {
    prepare_lifecycle(&env).await?;
    env.forget_requests().await?;
    let launch = |env: &Env| lifecycle::quick(env).arg("--node-deletion-budget=2");
    let observer = observe(&env, launch(&env)).await?;
    let expected =
        json!({"delete": 2, "end-approval": 1, "shutdown-taint": 1, "shutdown-untaint": 1});
    let page = decided(&observer, expected, json!({"delete": 1})).await?;
    let names: Vec<_> = due(&page)?.into_keys().collect();
    ensure!(names == ["back", "gone-0", "gone-1", "node-0", "stopped"], "{names:?}");
    let told = nodes::events(&env.client, "gone-0").await?;
    ensure!(told.is_empty(), "an observer writes no events: {told:?}");
    let leader = leadership::with_short_terms(launch(&env));
    the_leader_does(&mut env, leader, LIFECYCLE_AGENT, &observer, &page).await
}

pub(super) async fn nothing_is_written_beside_a_leader(env: Env) -> Result<()> {
    let leaders = [env.start(&env.node_ccm()).await?, env.start(&lifecycle::quick(&env)).await?];
    let (node, lifecycle) =
        (observe(&env, env.node_ccm()).await?, observe(&env, lifecycle::quick(&env)).await?);
    for name in ["node-0", "node-1", "node-2", "node-3"] {
        env.add_node(name).await?;
        env.initialised(name).await?;
    }
    lifecycle::grow_up().await;
    env.cloud().set_power("i-node-0", PowerState::Stopped);
    nodes::set_ready(&env.client, "node-0", "Unknown").await?;
    env.lose("node-1").await?;
    nodes::gone(&env.client, "node-1", 2 * SOON).await?;
    let edit = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "elsewhere"}}});
    nodes::patch(&env.client, "node-2", edit).await?;
    let instance = nodes::instance("node-2");
    nodes::wait_for(&env.client, "node-2", "zone put back", SOON, |node| {
        nodes::label(node, "topology.kubernetes.io/zone") == instance.zone.as_deref()
    })
    .await?;
    nodes::wait_for(&env.client, "node-0", "tainted as shut down", SOON, |node| {
        nodes::has_taint(node, nodes::SHUTDOWN)
    })
    .await?;
    for observer in [&node, &lifecycle] {
        decided(observer, json!({}), json!({})).await?;
    }
    nothing_written(&env, &[&node, &lifecycle]).await?;
    let leads = futures::future::try_join_all(leaders.iter().map(Program::leads)).await?;
    ensure!(leads == [true, true], "an observer disturbs the leaders: {leads:?}");
    Ok(())
}
