//! node-ccm: initialises nodes and keeps them in sync with their instances.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::{AddressKind, NodeAddress};
use ccm_sim::poll;
use tokio::time::Instant;

use super::PATIENCE;
use crate::{
    stage::{self, Stage},
    story::Story,
};

/// The program of this chapter.
pub const PROGRAM: &str = "node-ccm";

/// Its arguments.
pub const ARGUMENTS: &[&str] = &["--node-status-update-frequency=10s"];

/// Its refresh period in the demo; the default is five minutes.
const REFRESH: &str = "10s";

/// Runs the chapter.
pub async fn tell(stage: &mut Stage, story: &mut Story, count: usize) -> Result<()> {
    story.chapter("node-ccm: new nodes become schedulable");
    story.step("two replicas run, one leads", super::leader(stage, PROGRAM)).await;
    story.step(&format!("{count} nodes register, tainted"), async { register(stage, count) }).await;
    story.step("they become schedulable", initialised(stage, count)).await;

    story.chapter("node-ccm: a node follows its instance");
    story.step("node-000 is resized and moves", change(stage)).await;

    story.chapter("node-ccm: the cloud throttles");
    story
        .step(
            "the cloud answers 429 for five seconds; a new node says what it waits for",
            throttled(stage),
        )
        .await;
    story.step("the cloud recovers, and so does the node", recovered(stage)).await;

    story.chapter("node-ccm: the leader is stopped");
    story.step("SIGTERM to the leader; the standby takes over", takeover(stage)).await;
    Ok(())
}

fn register(stage: &Stage, count: usize) -> Result<String> {
    for number in 0..count {
        let name = name(number);
        stage.cloud().add(stage::instance(&name));
        stage.register(&name)?;
    }
    Ok(format!("taint {} on each", stage::TAINT))
}

async fn initialised(stage: &Stage, count: usize) -> Result<String> {
    let before = stage.node_writes();
    let start = Instant::now();
    poll::until("all nodes to lose their taint", PATIENCE, || async {
        let waiting = (0..count).filter(|number| stage.is_tainted(&name(*number))).count();
        ensure!(waiting == 0, "{waiting} nodes are still tainted");
        Ok(Some(()))
    })
    .await?;
    let node = stage.node("node-000").context("node-000 is there")?;
    let writes = stage.node_writes();
    ensure!(writes == 2 * count, "{writes} writes, of them {before} before, instead of two a node");
    let zone = node["metadata"]["labels"]["topology.kubernetes.io/zone"]
        .as_str()
        .unwrap_or("none")
        .to_owned();
    let id = node["spec"]["providerID"].as_str().unwrap_or("none").to_owned();
    Ok(format!(
        "after {:.0} ms, {writes} writes, {} cloud calls; node-000 is {id} in {zone}",
        start.elapsed().as_secs_f64() * 1000.0,
        stage.cloud_calls()
    ))
}

async fn change(stage: &Stage) -> Result<String> {
    let mut instance = stage::instance("node-000");
    instance.instance_type = Some("m1.xlarge".to_owned());
    instance.addresses = vec![NodeAddress::new(AddressKind::InternalIp, "10.200.0.1")];
    stage.cloud().add(instance);
    let start = Instant::now();
    poll::until("node-000 to follow", PATIENCE, || async {
        let node = stage.node("node-000").context("node-000 is there")?;
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

async fn throttled(stage: &Stage) -> Result<String> {
    stage.throttle(Duration::from_secs(5));
    stage.cloud().add(stage::instance("node-late"));
    stage.register("node-late")?;
    let event = poll::until("an event on node-late", PATIENCE, || async {
        Ok(stage.events("node-late").into_iter().find(|line| line.contains("throttled")))
    })
    .await?;
    ensure!(stage.is_tainted("node-late"), "it waits");
    Ok(format!("\"{event}\""))
}

async fn recovered(stage: &Stage) -> Result<String> {
    let start = Instant::now();
    stage.untainted("node-late", PATIENCE).await?;
    Ok(format!("schedulable after another {:.1} s", start.elapsed().as_secs_f64()))
}

async fn takeover(stage: &mut Stage) -> Result<String> {
    let old = stage.leading(PROGRAM).await.into_iter().next().context("no replica leads")?;
    let start = Instant::now();
    let ended = stage.terminate(&old).await?;
    ensure!(ended.success(), "{old} ended with {ended}");
    stage.cloud().add(stage::instance("node-new"));
    stage.register("node-new")?;
    stage.untainted("node-new", PATIENCE).await?;
    let gap = start.elapsed();
    let new = stage.leading(PROGRAM).await.into_iter().next().context("no replica leads again")?;
    ensure!(new != old, "the stopped one leads");
    ensure!(gap < Duration::from_secs(5), "the gap was {gap:?}: the lease was not released");
    stage.replace(&old).await?;
    Ok(format!(
        "{:.0} ms from the signal to the new leader's first node; {new} leads",
        gap.as_secs_f64() * 1000.0
    ))
}

fn name(number: usize) -> String {
    format!("node-{number:03}")
}
