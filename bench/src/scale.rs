//! Measures what five thousand nodes cost the API server, the cloud and this machine.

use std::time::Duration;

use anyhow::{Context as _, Result};
use ccm_sim::{poll, program::Program};
use ccm_tests::{cluster::audit, nodes};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::Instant;

use crate::{
    arena::{Arena, Untainted},
    burst::{self, Timing},
    plain,
};

/// How many kubelets register at once.
const REGISTERING: usize = 16;
const LIMIT: Duration = Duration::from_mins(10);

/// Registers `count` nodes of 10 KB at once. Compares node-ccm with a plain client that only makes
/// the two writes, on the same API server.
///
/// The plain client runs before and after, because the API server becomes slower with time. It runs
/// with the watch that measures node-ccm, because that watch also costs the API server something.
pub async fn registering(arena: &Arena, count: usize) -> Result<()> {
    println!("\n-- {count} nodes of 10 KB register at once, {REGISTERING} at a time");
    let before = plain_client(arena, count).await?;
    let reached = node_ccm(arena, count).await?;
    let after = plain_client(arena, count).await?;
    let plain = f64::midpoint(before, after);
    println!(
        "node-ccm reaches {:.0} % of the plain client's mean (wanted: at least 85 %)",
        100.0 * reached / plain
    );
    Ok(())
}

async fn plain_client(arena: &Arena, count: usize) -> Result<f64> {
    let _watch = Untainted::watch(&arena.client);
    let server = arena.cluster.real().context("this measures a real API server")?;
    let cpu = server.apiserver_cpu_seconds()?;
    let timing = plain::registering(&arena.client, count).await?;
    println!(
        "plain client, the same two patches: {timing}; API server {:.1} s of CPU",
        server.apiserver_cpu_seconds()? - cpu
    );
    burst::remove_all(&arena.client).await?;
    Ok(timing.nodes_per_second())
}

async fn node_ccm(arena: &Arena, count: usize) -> Result<f64> {
    let server = arena.cluster.real().context("this measures a real API server")?;
    arena.instances(count);
    let program = arena.node_ccm(&arena.launch()).await?;
    let (mark, calls) = (arena.mark().await?, arena.served.cloud().calls());
    let cpu = server.apiserver_cpu_seconds()?;
    let timing = register_and_wait(arena, count).await?;
    println!(
        "node-ccm, default settings:         {timing}; API server {:.1} s of CPU, node-ccm {:.1} s",
        server.apiserver_cpu_seconds()? - cpu,
        program.cpu_seconds()?
    );
    println!(
        "cloud calls to initialise {count} nodes: {} (at most {})",
        arena.cloud_calls(calls),
        count.div_ceil(500) + 10
    );
    count_requests(arena, mark, count).await?;
    println!("resident memory after the burst: {}", mebibytes(&program)?);
    program.terminate().await?;
    burst::remove_all(&arena.client).await?;
    Ok(timing.nodes_per_second())
}

/// Runs the same with nodes that exist before node-ccm starts, so that only the writes keep the API
/// server busy.
pub async fn backlog(arena: &Arena, count: usize) -> Result<()> {
    println!("\n-- {count} nodes of 10 KB wait when the controller starts");
    register(arena, count, 10).await?;
    let plain = plain::backlog(&arena.client, count).await?;
    println!("plain client, the same two patches: {plain:.0} nodes/s, {:.0} writes/s", 2.0 * plain);
    burst::remove_all(&arena.client).await?;
    arena.instances(count);
    register(arena, count, 10).await?;
    let untainted = Untainted::watch(&arena.client);
    let program = arena.node_ccm(&arena.launch()).await?;
    let start = Instant::now();
    untainted.all(count, LIMIT).await?;
    let rate = count as f64 / start.elapsed().as_secs_f64();
    println!(
        "node-ccm, default settings:         {rate:.0} nodes/s, {:.0} writes/s: {:.0} % of the plain client",
        2.0 * rate,
        100.0 * rate / plain
    );
    program.terminate().await?;
    burst::remove_all(&arena.client).await
}

/// Measures the memory with `count` nodes of 16 KB, one refresh of all, and a restart.
pub async fn fleet(arena: &Arena, count: usize) -> Result<()> {
    println!("\n-- {count} nodes of 16 KB: memory, a refresh, a restart");
    let launch = arena.launch().arg("--node-status-update-frequency=20s");
    let program = arena.node_ccm(&launch).await?;
    println!(
        "resident memory idle, no nodes, every provider built in: {} (wanted: below 12 MB)",
        mebibytes(&program)?
    );
    arena.instances(count);
    let untainted = Untainted::watch(&arena.client);
    register(arena, count, 16).await?;
    untainted.all(count, LIMIT).await?;
    drop(untainted);
    println!("resident memory, {count} nodes initialised: {}", mebibytes(&program)?);

    let calls = next_refresh(arena).await?;
    println!(
        "cloud calls of one refresh of {count} nodes: {calls} (at most {} + changed)",
        count.div_ceil(500)
    );
    println!("resident memory after a refresh: {} (wanted: below 40 MB)", mebibytes(&program)?);
    program.terminate().await?;

    let mark = arena.mark().await?;
    let program = arena.node_ccm(&launch).await?;
    let calls = next_refresh(arena).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    println!(
        "restart with {count} initialised nodes: requests {:?}, {calls} cloud calls",
        audit::count(&arena.requests(mark).await?)
    );
    println!("resident memory after the restart: {} (wanted: below 40 MB)", mebibytes(&program)?);
    program.terminate().await?;
    burst::remove_all(&arena.client).await
}

/// Runs `count` nodes with a cloud that answers at once, and with a slow one.
pub async fn slow_cloud(arena: &Arena, count: usize) -> Result<()> {
    use ccm_sim::faults::{Fault, FaultEffect};
    println!("\n-- {count} nodes with a slow cloud");
    for latency in [0, 200] {
        arena.served.cloud().faults().clear();
        arena
            .served
            .cloud()
            .faults()
            .add(Fault::new(FaultEffect::Latency(Duration::from_millis(latency))));
        arena.instances(count);
        let program = arena.node_ccm(&arena.launch()).await?;
        let timing = register_and_wait(arena, count).await?;
        println!("cloud answers in {latency:3} ms: {timing}");
        program.terminate().await?;
        burst::remove_all(&arena.client).await?;
    }
    for streams in [true, false] {
        one_by_one(arena, streams).await?;
    }
    arena.served.cloud().faults().clear();
    Ok(())
}

/// Runs with a cloud that looks up one node after another, with answers in between or only at the
/// end.
async fn one_by_one(arena: &Arena, streams: bool) -> Result<()> {
    use ccm_sim::faults::{Fault, FaultEffect};
    const NODES: usize = 400;
    let each = Duration::from_millis(50);
    arena.served.cloud().faults().clear();
    arena.served.cloud().faults().add(Fault::new(FaultEffect::OneByOne { each, streams }));
    arena.instances(NODES);
    let program = arena.node_ccm(&arena.launch().arg("--cloud-call-timeout=3s")).await?;
    let timing = register_and_wait(arena, NODES).await?;
    let answers = if streams { "node by node" } else { "at the end of a call" };
    println!(
        "cloud needs 50 ms a node one by one, answers {answers}, time limit 3 s: {timing} (wanted: below 40 s)"
    );
    program.terminate().await?;
    burst::remove_all(&arena.client).await
}

async fn register(arena: &Arena, count: usize, kib: usize) -> Result<()> {
    stream::iter(burst::names(count))
        .map(|name| async move { nodes::register(&arena.client, &nodes::realistic(&name, kib)).await })
        .buffer_unordered(REGISTERING)
        .try_collect()
        .await
}

async fn register_and_wait(arena: &Arena, count: usize) -> Result<Timing> {
    let untainted = Untainted::watch(&arena.client);
    let start = Instant::now();
    let registered: Vec<(String, Instant)> = stream::iter(burst::names(count))
        .map(|name| async move {
            nodes::register(&arena.client, &nodes::realistic(&name, 10)).await?;
            anyhow::Ok((name, Instant::now()))
        })
        .buffer_unordered(REGISTERING)
        .try_collect()
        .await?;
    let seen = untainted.all(count, LIMIT).await?;
    let total = start.elapsed();
    let waits = registered
        .iter()
        .filter_map(|(name, at)| Some(seen.get(name)?.saturating_duration_since(*at)));
    Ok(Timing::new(count, total, waits.collect()))
}

async fn count_requests(arena: &Arena, mark: usize, count: usize) -> Result<()> {
    let requests = arena.requests(mark).await?;
    let nodes = |wanted: fn(&audit::Request) -> bool| {
        requests.iter().filter(|request| request.resource == "nodes" && wanted(request)).count()
    };
    let writes = nodes(audit::Request::is_write);
    let reads = nodes(|request| request.verb == "get");
    println!("API requests by the audit log: {:?}", audit::count(&requests));
    println!(
        "writes a node: {:.3} (wanted: 2), reads a node: {:.3} (wanted: 0)",
        writes as f64 / count as f64,
        reads as f64 / count as f64
    );
    Ok(())
}

/// Waits for the next lookup of all nodes and returns how many calls it took.
async fn next_refresh(arena: &Arena) -> Result<u64> {
    let before = arena.served.cloud().calls();
    poll::until("a refresh", Duration::from_secs(90), || async {
        Ok((arena.served.cloud().calls().since(&before).lookup > 0).then_some(()))
    })
    .await?;
    // The lookup takes several calls, and others may follow it.
    tokio::time::sleep(Duration::from_secs(5)).await;
    Ok(arena.cloud_calls(before))
}

fn mebibytes(program: &Program) -> Result<String> {
    Ok(format!("{:.1} MB", program.resident_bytes()? as f64 / 1e6))
}
