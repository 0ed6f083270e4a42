//! Routes from nothing, one node that joins, memory, a quiet cluster.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_tests::nodes;
use tokio::time::{Instant, sleep};

use super::{
    Arena, LIMIT, Program, add_nodes, available, calls, cloud, finish, is_available, megabytes,
    node, requests, start,
};

/// The period that is counted: two lists at the default interval.
const COUNTED: Duration = Duration::from_mins(20);
const DAY: f64 = 24.0 * 60.0 * 60.0;

/// Prints the figures.
pub(super) async fn measure(arena: &Arena, count: usize, is_long: bool) -> Result<()> {
    println!("\n-- route-ccm, default settings: {count} nodes get their routes from nothing");
    cloud(arena, count + 1, |_| {});
    let program = start(arena, &[]).await?;
    println!("resident memory idle, as a leader: {} (wanted: below 12 MB)", megabytes(&program)?);
    program.terminate().await?;
    add_nodes(arena, count).await?;
    arena.served.cloud().reset_calls();
    let (mark, begun) = (arena.mark().await?, Instant::now());
    let program = start(arena, &[]).await?;
    available(arena, count).await?;
    let made = calls(arena);
    let written = requests(arena, mark).await?.iter().filter(|one| one.is_write()).count();
    println!(
        "{} cloud calls (wanted: at most {}): {} changes, {} pages of lists, {} lookups; {written} writes to the API server; all nodes available after {:.1} s",
        made.total(),
        count / 500 + 3,
        made.apply,
        made.list,
        made.find_targets,
        begun.elapsed().as_secs_f64(),
    );
    println!("resident memory with {count} nodes: {} (wanted: below 30 MB)", megabytes(&program)?);
    joins(arena, count).await?;
    println!("resident memory after that: {} (wanted: below 30 MB)", megabytes(&program)?);
    if is_long {
        stays(arena, &program).await?;
    }
    program.terminate().await?;
    let mark = arena.mark().await?;
    arena.served.cloud().reset_calls();
    let program = start(arena, &[]).await?;
    sleep(Duration::from_secs(20)).await;
    let written = requests(arena, mark).await?.iter().filter(|one| one.is_write()).count();
    println!(
        "restart: {} (wanted: below 30 MB); {} changes of routes, {written} writes to the API server (wanted: none)",
        megabytes(&program)?,
        calls(arena).apply
    );
    finish(arena, program).await
}

async fn joins(arena: &Arena, count: usize) -> Result<()> {
    let name = format!("node-{count:05}");
    arena.served.cloud().reset_calls();
    let begun = Instant::now();
    nodes::register(&arena.client, &node(&name, Some(count))).await?;
    let mut routed = None;
    while begun.elapsed() < LIMIT {
        if routed.is_none() && arena.served.cloud().router().len() > count {
            routed = Some(Instant::now());
        }
        if let Some(routed) = routed
            && is_available(&nodes::get(&arena.client, &name).await?)
        {
            let made = calls(arena);
            println!(
                "one more node: route after {:.2} s with {} changes (wanted: 1) and {} pages of lists (wanted: 0), condition {:.2} s later (wanted: within 1 s)",
                routed.duration_since(begun).as_secs_f64(),
                made.apply,
                made.list,
                routed.elapsed().as_secs_f64()
            );
            return Ok(());
        }
        sleep(Duration::from_millis(5)).await;
    }
    ensure!(routed.is_some(), "{name} has no route");
    anyhow::bail!("{name} has no condition")
}

async fn stays(arena: &Arena, program: &Program) -> Result<()> {
    sleep(Duration::from_secs(10)).await;
    arena.served.cloud().reset_calls();
    let lists = "ccm_route_lists_total{result=\"ok\"}";
    let (before, mark) = (program.metric(lists).await?, arena.mark().await?);
    sleep(COUNTED).await;
    let listed = program.metric(lists).await? - before;
    let written = requests(arena, mark).await?.iter().filter(|one| one.is_write()).count();
    let made = calls(arena);
    println!(
        "quiet for {} minutes: {} changes of routes and {written} writes to the API server (wanted: 0); {listed} lists of {} pages, {:.0} lists a day (wanted: at most 144)",
        COUNTED.as_secs() / 60,
        made.apply,
        made.list,
        listed * DAY / COUNTED.as_secs_f64()
    );
    Ok(())
}
