//! Measures lifecycle-ccm with five thousand nodes: its memory, the calls per pass, the time to a
//! deletion, and a restart in the middle of cases.

use std::time::Duration;

use anyhow::{Context as _, Result};
use ccm_sim::program::{Launch, Program, Signal};
use ccm_tests::{
    cluster::{Request, audit},
    nodes,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{arena::Arena, burst};

/// The default of `--node-deletion-confirmation-period`.
const CONFIRMATION: Duration = Duration::from_secs(20);
/// The default of `--node-monitor-period`.
const PERIOD: Duration = Duration::from_secs(5);
/// How long passes are counted.
const WATCHED: Duration = Duration::from_secs(60);
/// The default of `--node-grace-period`: nodes must be older.
const GRACE: Duration = Duration::from_mins(2);
const AT_ONCE: usize = 16;

/// Prints all figures of lifecycle-ccm with `count` nodes of 16 KB.
pub async fn measure(arena: &Arena, count: usize) -> Result<()> {
    println!("\n-- lifecycle-ccm, default settings, {count} nodes of 16 KB");
    let launch = launch(arena);
    let program = start(arena, &launch).await?;
    println!(
        "resident memory idle, no nodes, every provider built in: {} (wanted: below 12 MB)",
        mebibytes(&program)?
    );
    arena.instances(count);
    let names = burst::names(count);
    register(&arena.client, &names).await?;
    println!("resident memory, {count} nodes: {} (wanted: below 30 MB)", mebibytes(&program)?);
    let registered = Instant::now();

    not_ready(arena, &program, &names, count.min(100)).await?;
    not_ready(arena, &program, &names, count.min(1000)).await?;
    set_ready(&arena.client, &names, "True").await?;
    sleep(GRACE.saturating_sub(registered.elapsed())).await;
    deletion(arena, &names).await?;
    println!("resident memory in the end: {} (wanted: below 30 MB)", mebibytes(&program)?);
    restart(arena, program, &launch, &names).await?;
    burst::remove_all(&arena.client).await
}

fn launch(arena: &Arena) -> Launch {
    arena.controller("lifecycle-ccm")
}

async fn start(arena: &Arena, launch: &Launch) -> Result<Program> {
    arena.node_ccm(launch).await
}

/// Counts passes, cloud calls and writes while this number of nodes is not Ready and their
/// instances run.
async fn not_ready(arena: &Arena, program: &Program, names: &[String], count: usize) -> Result<()> {
    let names = names.get(..count).context("too few nodes")?;
    set_ready(&arena.client, names, "Unknown").await?;
    sleep(2 * PERIOD).await;
    let (mark, calls, passes) =
        (arena.mark().await?, arena.served.cloud().calls(), passes(program).await?);
    sleep(WATCHED).await;
    let passes = self::passes(program).await? - passes;
    let made = arena.cloud_calls(calls);
    let requests: Vec<Request> = requests(arena, mark).await?;
    let writes = requests.iter().filter(|one| one.is_write() && one.resource != "leases").count();
    println!(
        "{count} nodes not Ready for {} s: {made} cloud calls in {passes} passes, {:.2} per pass; writes to the API server except the lease: {writes} (wanted: 0); {:?}",
        WATCHED.as_secs(),
        made as f64 / passes,
        audit::count(&requests)
    );
    Ok(())
}

/// Measures the time from the moment at which an instance is gone and its node not Ready until the
/// node is deleted.
async fn deletion(arena: &Arena, names: &[String]) -> Result<()> {
    let name = names.last().context("a node")?;
    arena.served.cloud().remove(&nodes::instance(name).id);
    let start = Instant::now();
    set_ready(&arena.client, std::slice::from_ref(name), "Unknown").await?;
    gone(&arena.client, name).await?;
    println!(
        "instance terminated, node not Ready: node gone after {:.2} s (wanted: below {} s)",
        start.elapsed().as_secs_f64(),
        CONFIRMATION.as_secs() + 2
    );
    Ok(())
}

/// Kills the leader with fifty open cases: the next leader starts them again.
async fn restart(
    arena: &Arena,
    mut program: Program,
    launch: &Launch,
    names: &[String],
) -> Result<()> {
    let judged = names.get(..50.min(names.len() / 4)).context("nodes")?;
    for name in judged {
        arena.served.cloud().remove(&nodes::instance(name).id);
    }
    set_ready(&arena.client, judged, "Unknown").await?;
    sleep(CONFIRMATION / 2).await;
    program.signal(Signal::KILL)?;
    program.wait(Duration::from_secs(10)).await?;
    let mut next = launch.start(arena.folder())?;
    next.ready().await?;
    next.leading(Duration::from_secs(40)).await?;
    let leads = Instant::now();
    let api = Api::<Node>::all(arena.client.clone());
    let all = names.len() - 1;
    let mut first = None;
    while leads.elapsed() < CONFIRMATION + 3 * PERIOD {
        let left = api.list_metadata(&ListParams::default()).await?.items.len();
        if left < all && first.is_none() {
            first = Some(leads.elapsed());
        }
        sleep(Duration::from_millis(250)).await;
    }
    let left = api.list_metadata(&ListParams::default()).await?.items.len();
    let first = first.map_or_else(|| "none".to_owned(), |at| format!("{:.2} s", at.as_secs_f64()));
    println!(
        "killed with {} open cases: the new leader's first deletion after {first} (wanted: not before {} s); deleted {} of them after {} s",
        judged.len(),
        CONFIRMATION.as_secs(),
        all - left,
        (CONFIRMATION + 3 * PERIOD).as_secs()
    );
    next.terminate().await?;
    Ok(())
}

async fn register(client: &Client, names: &[String]) -> Result<()> {
    stream::iter(names)
        .map(|name| async move {
            let mut node = nodes::realistic(name, 16);
            node["spec"] = json!({"providerID": nodes::instance(name).provider_id().as_str()});
            nodes::register(client, &node).await
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

async fn set_ready(client: &Client, names: &[String], status: &str) -> Result<()> {
    let api = &Api::<Node>::all(client.clone());
    let body = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    let patch = &Patch::Strategic(body);
    stream::iter(names)
        .map(|name| async move {
            api.patch_status(name, &PatchParams::default(), patch).await?;
            anyhow::Ok(())
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

async fn gone(client: &Client, name: &str) -> Result<()> {
    let api = Api::<Node>::all(client.clone());
    let start = Instant::now();
    while api.get_metadata_opt(name).await?.is_some() {
        (start.elapsed() < Duration::from_mins(2))
            .then_some(())
            .with_context(|| format!("{name} is still there after two minutes"))?;
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn passes(program: &Program) -> Result<f64> {
    let name = "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count";
    program.metric(name).await
}

async fn requests(arena: &Arena, mark: usize) -> Result<Vec<Request>> {
    let all = arena.cluster.requests("").await?;
    let ours = |request: &Request| request.user_agent.starts_with("lifecycle-ccm/");
    Ok(all.into_iter().skip(mark).filter(ours).collect())
}

fn mebibytes(program: &Program) -> Result<String> {
    Ok(format!("{:.1} MB", program.resident_bytes()? as f64 / 1e6))
}
