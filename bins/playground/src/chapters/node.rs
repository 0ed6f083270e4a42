//! node-ccm: initialises nodes and keeps them in sync with their instances.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::{AddressKind, NodeAddress};
use ccm_sim::poll;
use tokio::time::Instant;

use super::STEP_TIMEOUT;
use crate::{
    environment::{self, Environment},
    output::Output,
};

/// The program of this chapter.
pub const PROGRAM: &str = "node-ccm";

/// Its arguments.
pub const ARGUMENTS: &[&str] = &["--node-status-update-frequency=10s"];

/// Its refresh period in the demo; the default is five minutes.
const REFRESH: &str = "10s";

/// Runs the chapter.
pub async fn run(environment: &mut Environment, output: &mut Output, count: usize) -> Result<()> {
    output.chapter("node-ccm: new nodes become schedulable");
    output.step("two replicas run, one leads", super::leader(environment, PROGRAM)).await;
    output
        .step(&format!("{count} nodes register, tainted"), async { register(environment, count) })
        .await;
    output.step("they become schedulable", initialised(environment, count)).await;

    output.chapter("node-ccm: a node follows its instance");
    output.step("node-000 is resized and moves", change(environment)).await;

    output.chapter("node-ccm: the cloud throttles");
    output
        .step(
            "the cloud answers 429 for five seconds; a new node gets an event with the reason",
            throttled(environment),
        )
        .await;
    output.step("the cloud recovers, and the node is initialised", recovered(environment)).await;

    output.chapter("node-ccm: the leader is stopped");
    output.step("SIGTERM to the leader; the standby takes over", takeover(environment)).await;
    Ok(())
}

fn register(environment: &Environment, count: usize) -> Result<String> {
    for number in 0..count {
        let name = name(number);
        environment.cloud().add(environment::instance(&name));
        environment.register(&name)?;
    }
    Ok(format!("taint {} on each", environment::TAINT))
}

async fn initialised(environment: &Environment, count: usize) -> Result<String> {
    let before = environment.node_writes();
    let start = Instant::now();
    poll::until("all nodes to lose their taint", STEP_TIMEOUT, || async {
        let waiting = (0..count).filter(|number| environment.is_tainted(&name(*number))).count();
        ensure!(waiting == 0, "{waiting} nodes are still tainted");
        Ok(Some(()))
    })
    .await?;
    let node = environment.node("node-000").context("node-000 is there")?;
    let writes = environment.node_writes();
    ensure!(
        writes == 2 * count,
        "{writes} writes ({before} of them before) instead of two per node"
    );
    let zone = node["metadata"]["labels"]["topology.kubernetes.io/zone"]
        .as_str()
        .unwrap_or("none")
        .to_owned();
    let id = node["spec"]["providerID"].as_str().unwrap_or("none").to_owned();
    Ok(format!(
        "after {:.0} ms, {writes} writes, {} cloud calls; node-000 is {id} in {zone}",
        start.elapsed().as_secs_f64() * 1000.0,
        environment.cloud_calls()
    ))
}

async fn change(environment: &Environment) -> Result<String> {
    let mut instance = environment::instance("node-000");
    instance.instance_type = Some("m1.xlarge".to_owned());
    instance.addresses = vec![NodeAddress::new(AddressKind::InternalIp, "10.200.0.1")];
    environment.cloud().add(instance);
    let start = Instant::now();
    poll::until("node-000 to follow", STEP_TIMEOUT, || async {
        let node = environment.node("node-000").context("node-000 is there")?;
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

async fn throttled(environment: &Environment) -> Result<String> {
    environment.throttle(Duration::from_secs(5));
    environment.cloud().add(environment::instance("node-late"));
    environment.register("node-late")?;
    let event = poll::until("an event on node-late", STEP_TIMEOUT, || async {
        Ok(environment.events("node-late").into_iter().find(|line| line.contains("throttled")))
    })
    .await?;
    ensure!(environment.is_tainted("node-late"), "it waits");
    Ok(format!("\"{event}\""))
}

async fn recovered(environment: &Environment) -> Result<String> {
    let start = Instant::now();
    environment.untainted("node-late", STEP_TIMEOUT).await?;
    Ok(format!("schedulable after another {:.1} s", start.elapsed().as_secs_f64()))
}

async fn takeover(environment: &mut Environment) -> Result<String> {
    let old = environment.leading(PROGRAM).await.into_iter().next().context("no replica leads")?;
    let start = Instant::now();
    let ended = environment.terminate(&old).await?;
    ensure!(ended.success(), "{old} ended with {ended}");
    environment.cloud().add(environment::instance("node-new"));
    environment.register("node-new")?;
    environment.untainted("node-new", STEP_TIMEOUT).await?;
    let gap = start.elapsed();
    let new =
        environment.leading(PROGRAM).await.into_iter().next().context("no replica leads again")?;
    ensure!(new != old, "{old} still leads");
    ensure!(gap < Duration::from_secs(5), "the gap was {gap:?}: the lease was not released");
    environment.replace(&old).await?;
    Ok(format!(
        "{:.0} ms from the signal to the new leader's first node; {new} leads",
        gap.as_secs_f64() * 1000.0
    ))
}

fn name(number: usize) -> String {
    format!("node-{number:03}")
}
