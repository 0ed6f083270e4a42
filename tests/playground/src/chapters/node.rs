//! node-ccm: initialises nodes and keeps them in sync with their instances.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::{AddressKind, NodeAddress};
use ccm_sim::poll;
use tokio::time::Instant;

use super::STEP_TIMEOUT;
use crate::{
    demo::{self, Demo},
    output::Output,
};

/// The program of this chapter.
pub const PROGRAM: &str = "node-ccm";

/// Its arguments.
pub const ARGUMENTS: &[&str] = &["--node-status-update-frequency=10s"];

/// Its refresh period in the demo; the default is five minutes.
const REFRESH: &str = "10s";

/// Runs the chapter.
pub async fn run(demo: &mut Demo, output: &mut Output, count: usize) -> Result<()> {
    output.chapter("node-ccm: new nodes become schedulable");
    output.step("two replicas run, one leads", super::leader(demo, PROGRAM)).await;
    output.step(&format!("{count} nodes register, tainted"), async { register(demo, count) }).await;
    output.step("they become schedulable", initialised(demo, count)).await;

    output.chapter("node-ccm: a node follows its instance");
    output.step("node-000 is resized and moves", change(demo)).await;

    output.chapter("node-ccm: the cloud throttles");
    output
        .step(
            "the cloud answers 429 for five seconds; a new node gets an event with the reason",
            throttled(demo),
        )
        .await;
    output.step("the cloud recovers, and the node is initialised", recovered(demo)).await;

    output.chapter("node-ccm: the leader is stopped");
    output.step("SIGTERM to the leader; the standby takes over", takeover(demo)).await;
    Ok(())
}

fn register(demo: &Demo, count: usize) -> Result<String> {
    for number in 0..count {
        let name = name(number);
        demo.cloud().add(demo::instance(&name));
        demo.register(&name)?;
    }
    Ok(format!("taint {} on each", demo::TAINT))
}

async fn initialised(demo: &Demo, count: usize) -> Result<String> {
    let start = Instant::now();
    poll::until("all nodes to lose their taint", STEP_TIMEOUT, || async {
        let waiting = (0..count).filter(|number| demo.is_tainted(&name(*number))).count();
        ensure!(waiting == 0, "{waiting} nodes are still tainted");
        Ok(Some(()))
    })
    .await?;
    let node = demo.node("node-000").context("node-000 exists")?;
    let writes = demo.accepted_node_writes();
    ensure!(writes >= count, "{writes} writes to {count} nodes");
    let zone = node["metadata"]["labels"]["topology.kubernetes.io/zone"]
        .as_str()
        .unwrap_or("none")
        .to_owned();
    let id = node["spec"]["providerID"].as_str().unwrap_or("none").to_owned();
    Ok(format!(
        "after {:.0} ms, {writes} writes ({:.1} a node), cloud calls: {}; node-000 is {id} in {zone}",
        start.elapsed().as_secs_f64() * 1000.0,
        writes as f64 / count as f64,
        demo.cloud_calls()
    ))
}

async fn change(demo: &Demo) -> Result<String> {
    let mut instance = demo::instance("node-000");
    instance.instance_type = Some("m1.xlarge".to_owned());
    instance.addresses = vec![NodeAddress::new(AddressKind::InternalIp, "10.200.0.1")];
    demo.cloud().add(instance);
    let start = Instant::now();
    poll::until("node-000 to follow", STEP_TIMEOUT, || async {
        let node = demo.node("node-000").context("node-000 exists")?;
        let kind = node["metadata"]["labels"]["node.kubernetes.io/instance-type"].as_str()
            == Some("m1.xlarge");
        let address = node["status"]["addresses"][0]["address"].as_str() == Some("10.200.0.1");
        Ok((kind && address).then_some(()))
    })
    .await?;
    Ok(format!(
        "m1.xlarge at 10.200.0.1 after {:.1} s (one list of the fleet every {})",
        start.elapsed().as_secs_f64(),
        REFRESH
    ))
}

async fn throttled(demo: &Demo) -> Result<String> {
    demo.throttle(Duration::from_secs(5));
    demo.cloud().add(demo::instance("node-late"));
    demo.register("node-late")?;
    let event = poll::until("an event on node-late", STEP_TIMEOUT, || async {
        Ok(demo.events("node-late").into_iter().find(|line| line.contains("throttled")))
    })
    .await?;
    ensure!(demo.is_tainted("node-late"), "it waits");
    Ok(format!("\"{event}\""))
}

async fn recovered(demo: &Demo) -> Result<String> {
    let start = Instant::now();
    demo.untainted("node-late", STEP_TIMEOUT).await?;
    Ok(format!("schedulable after another {:.1} s", start.elapsed().as_secs_f64()))
}

async fn takeover(demo: &mut Demo) -> Result<String> {
    let old = demo.leading(PROGRAM).await.into_iter().next().context("no replica leads")?;
    let start = Instant::now();
    let ended = demo.terminate(&old).await?;
    ensure!(ended.success(), "{old} ended with {ended}");
    demo.cloud().add(demo::instance("node-new"));
    demo.register("node-new")?;
    demo.untainted("node-new", STEP_TIMEOUT).await?;
    let gap = start.elapsed();
    let new = demo.leading(PROGRAM).await.into_iter().next().context("no replica leads again")?;
    ensure!(new != old, "{old} still leads");
    ensure!(gap < Duration::from_secs(5), "the gap was {gap:?}: the lease was not released");
    demo.replace(&old).await?;
    Ok(format!(
        "{:.0} ms from the signal to the new leader's first node; {new} leads",
        gap.as_secs_f64() * 1000.0
    ))
}

/// Returns the name of a node of the first chapter.
pub fn name(number: usize) -> String {
    format!("node-{number:03}")
}
