//! Measures a fleet whose nodes all get another label while new nodes arrive: the rate of the
//! corrections, and the wait of new nodes compared with a quiet fleet.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_sim::{poll, program::Program};
use ccm_tests::nodes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::DeleteParams};
use tokio::time::{Instant, interval, sleep};

use crate::{
    arena::{Arena, Untainted},
    burst::{self, Timing},
};

/// How many nodes are registered or deleted at once.
const AT_ONCE: usize = 16;
const LIMIT: Duration = Duration::from_mins(10);
/// New nodes one by one, so that each is alone in its lookup.
const SINGLE: (usize, Duration) = (100, Duration::from_millis(500));
/// New nodes in a steady stream, so that each lookup has many nodes.
const STREAM: (usize, Duration) = (300, Duration::from_millis(100));
/// Writes of this kind are corrections: a new node's labels are written with its taint.
const WRITES: &str = "ccm_node_writes_total{kind=\"labels\",result=\"ok\"";

/// The waits of the new nodes of one run.
struct Waits {
    single: Timing,
    stream: Timing,
}

/// Prints the rate of corrections of `count` nodes, and the waits of new nodes with and without
/// them.
pub async fn measure(arena: &Arena, count: usize) -> Result<()> {
    println!("\n-- {count} initialised nodes get another label while new nodes arrive");
    arena.instances(count);
    let untainted = Untainted::watch(&arena.client);
    let program = arena.node_ccm(&launch(arena, "-1")).await?;
    let settled = burst::names(count);
    register(arena, &settled).await?;
    untainted.all(count, LIMIT).await?;
    program.terminate().await?;

    let place = (arena, &untainted);
    let program = arena.node_ccm(&launch(arena, "0")).await?;
    // The first refresh must end first.
    sleep(Duration::from_secs(15)).await;
    let without = new_nodes(place, "quiet").await?;
    print("quiet fleet", &without);
    let with = during_corrections(place, &program, "zone-other", "limited").await?;
    program.terminate().await?;
    print("during corrections, 50/s", &with);
    for (what, with, without) in
        [("one by one", &with.single, &without.single), ("stream", &with.stream, &without.stream)]
    {
        let ratio = with.percentile(99).as_secs_f64() / without.percentile(99).as_secs_f64();
        println!(
            "{what}: p99 of new nodes is {:+.0} % (wanted: at most 20 % above)",
            100.0 * (ratio - 1.0)
        );
    }

    let program = arena.node_ccm(&launch(arena, "-1")).await?;
    let unlimited = during_corrections(place, &program, "zone-third", "unlimited").await?;
    program.terminate().await?;
    print("during corrections, no limit", &unlimited);
    burst::remove_all(&arena.client).await
}

fn launch(arena: &Arena, rate: &str) -> ccm_sim::program::Launch {
    let rate = format!("--node-correction-qps={rate}");
    // The zone of the whole fleet changes.
    let brake = "--node-change-budget=100%";
    arena.launch().arg("--node-status-update-frequency=10s").arg(brake).arg(&rate)
}

fn print(what: &str, waits: &Waits) {
    for (how, timing) in [("one by one", &waits.single), ("stream", &waits.stream)] {
        println!(
            "{what:28} new nodes {how:10}: registration to untaint p50 {:.2} s, p99 {:.2} s",
            timing.percentile(50).as_secs_f64(),
            timing.percentile(99).as_secs_f64()
        );
    }
}

/// Gives all instances another zone, and measures new nodes while the nodes follow.
async fn during_corrections(
    place: (&Arena, &Untainted),
    program: &Program,
    zone: &str,
    prefix: &str,
) -> Result<Waits> {
    let before = program.metric(WRITES).await?;
    let cloud = place.0.served.cloud();
    let instances = burst::names(cloud.len()).into_iter().map(|name| nodes::instance(&name).id);
    let changed = instances
        .filter(|id| cloud.update(id, |instance| instance.zone = Some(zone.to_owned())))
        .count();
    poll::until("the first correction", Duration::from_mins(1), || async {
        Ok((program.metric(WRITES).await? > before).then_some(()))
    })
    .await?;
    let (start, first) = (Instant::now(), program.metric(WRITES).await?);
    let waits = new_nodes(place, prefix).await?;
    let (took, written) = (start.elapsed(), program.metric(WRITES).await? - first);
    let waiting = program.metric("ccm_node_corrections_waiting").await?;
    // Without a limit the corrections end early.
    ensure!(waiting > 0.0 || prefix == "unlimited", "the corrections ended before the new nodes");
    println!(
        "{written:.0} corrections in {:.1} s, {waiting:.0} of {changed} nodes still wait: {:.1} writes/s",
        took.as_secs_f64(),
        written / took.as_secs_f64()
    );
    poll::until("all corrections", LIMIT, || async {
        Ok((program.metric(WRITES).await? - before >= changed as f64).then_some(()))
    })
    .await?;
    println!("all {changed} nodes follow after {:.1} s", start.elapsed().as_secs_f64());
    Ok(waits)
}

/// Registers new nodes one by one, then in a stream. They are deleted afterwards.
async fn new_nodes(place: (&Arena, &Untainted), prefix: &str) -> Result<Waits> {
    let single = arriving(place, &format!("{prefix}-single"), SINGLE).await?;
    // A batch window that has grown shrinks again.
    sleep(Duration::from_secs(3)).await;
    let stream = arriving(place, &format!("{prefix}-stream"), STREAM).await?;
    Ok(Waits { single, stream })
}

async fn arriving(
    (arena, untainted): (&Arena, &Untainted),
    prefix: &str,
    (count, every): (usize, Duration),
) -> Result<Timing> {
    let names: Vec<String> = (0..count).map(|number| format!("{prefix}-{number:04}")).collect();
    for name in &names {
        arena.served.cloud().add(nodes::instance(name));
    }
    let (start, mut ticks) = (Instant::now(), interval(every));
    let mut registered = Vec::with_capacity(count);
    for name in &names {
        ticks.tick().await;
        nodes::register(&arena.client, &nodes::realistic(name, 10)).await?;
        registered.push(Instant::now());
    }
    let seen = untainted.each(&names, LIMIT).await?;
    let total = start.elapsed();
    let waits = seen.into_iter().zip(registered);
    let waits = waits.map(|(seen, at)| seen.saturating_duration_since(at)).collect();
    remove(arena, &names).await?;
    Ok(Timing::new(count, total, waits))
}

async fn register(arena: &Arena, names: &[String]) -> Result<()> {
    let all = names.iter().map(|name| nodes::realistic(name, 10)).collect();
    nodes::register_all(&arena.client, all, AT_ONCE).await
}

async fn remove(arena: &Arena, names: &[String]) -> Result<()> {
    let api = Api::<Node>::all(arena.client.clone());
    stream::iter(names)
        .map(|name| {
            let api = api.clone();
            async move { api.delete(name, &DeleteParams::default()).await }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<_>>()
        .await?;
    Ok(())
}
