//! Checks of a program with `--mode=observe`, which decides like a leader but writes nothing.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{
    poll,
    program::{Launch, Program},
};
use serde_json::Value;
use tokio::time::sleep;

use super::{Env, SOON};
use crate::cluster::{self, OBSERVER, Request};

/// The steps of a plan, node by node: their names and their text.
pub type Plans = BTreeMap<String, (Vec<String>, String)>;

/// Starts an observer, which uses another account than the leader.
pub async fn observe(env: &Env, launch: Launch) -> Result<Program> {
    let path = env.path("observer.kubeconfig");
    cluster::write_observers_kubeconfig(env.cluster.kubeconfig(), &path)?;
    let kubeconfig = format!("--kubeconfig={}", path.display());
    // The simulated API server has no TLS.
    let launch = launch.arg("--mode=observe").arg("--kube-api-credentials-over-http");
    let program = env.start_standby(&launch.arg(kubeconfig)).await?;
    ensure!(program.metric("ccm_observing").await? > 0.0, "it does not say that it observes");
    for absent in ["running_managed_controllers", "leader_election_master_status"] {
        let samples = program.metrics().await?;
        ensure!(!samples.keys().any(|name| name.starts_with(absent)), "{absent} exists");
    }
    Ok(program)
}

async fn page(program: &Program) -> Result<Value> {
    let (status, text) = program.get("/plan?format=json").await?;
    ensure!(status == 200, "/plan answers {status}");
    Ok(serde_json::from_str(&text)?)
}

/// Waits until these numbers of steps are due and held.
pub async fn decided(program: &Program, due: Value, held: Value) -> Result<Value> {
    poll::until(&format!("the plan {due} {held}"), 2 * SOON, || async {
        let page = page(program).await?;
        ensure!(page["due"] == due && page["held"] == held, "{page:#}");
        Ok(Some(page))
    })
    .await
    .with_context(|| program.log())
}

/// Returns the objects of a page with a step that is due.
pub fn due(page: &Value) -> Result<Plans> {
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

/// Returns the steps that a leader logs before it executes them.
fn announced(leader: &Program) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in leader.log().lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let message =
            line["message"].as_str().and_then(|text| text.strip_prefix("planned for Node "));
        if let Some((name, text)) = message.and_then(|text| text.split_once(": "))
            && !text.starts_with("nothing")
            && !text.contains("), held: ")
        {
            all.entry(name.to_owned()).or_default().push(text.to_owned());
        }
    }
    all
}

/// Returns the requests that a step is.
fn requests(step: &str) -> &'static [&'static str] {
    match step {
        "addresses" => &["patch nodes/status"],
        // The first write leaves the proof on the node.
        "delete" => &["patch nodes", "delete nodes"],
        _ => &["patch nodes"],
    }
}

/// Checks that no observer has written anything, although it may, or asked for a Lease.
pub async fn nothing_written(env: &Env, observers: &[&Program]) -> Result<()> {
    let requests = env.requests("").await?;
    let own: Vec<_> = requests.iter().filter(|request| request.user == OBSERVER).collect();
    let read = own.iter().filter(|request| ["list", "watch"].contains(&&*request.verb)).count();
    ensure!(read >= observers.len(), "the audit log does not show the observers: {own:?}");
    // A program may watch Leases and read the kubelets' Leases. Only an election reads a program's
    // Lease.
    let elects = |request: &Request| {
        let is_read = request.resource == "leases" && !request.name.is_empty();
        is_read && request.namespace != "kube-node-lease"
    };
    let odd: Vec<_> = own.iter().filter(|request| request.is_write() || elects(request)).collect();
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

/// Checks that a leader beside an observer executes exactly the observer's plan, which is empty
/// afterwards.
pub async fn the_leader_does(
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
    ensure!(later == plans, "the plan changes without a cause: {plans:?} {later:?}");
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
    let requests = |steps: &[String]| {
        let all = steps.iter().flat_map(|step| requests(step));
        all.map(|request| (*request).to_owned()).collect()
    };
    let expected: BTreeMap<_, Vec<_>> =
        plans.iter().map(|(name, (steps, _))| (name.clone(), requests(steps))).collect();
    ensure!(written == expected, "written {written:?}, planned {expected:?}");
    nothing_written(env, &[observer]).await
}
