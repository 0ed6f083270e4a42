//! Three hundred servers: nodes register, all are refreshed, the program starts again.

use std::time::Duration;

use anyhow::{Context as _, Result};
use ccm_sim::{poll, program::Program};
use ccm_tests::{
    cluster::audit,
    nodes,
    openstack::{
        admin::{Account, Admin, Server},
        rig::{Rig, SOON, fresh},
    },
};
use tokio::time::{Instant, sleep};

use super::{calls, register, requests, seconds};

/// How many servers and nodes there are.
pub const SERVERS: usize = 300;
/// How many nodes register at once.
const NEW: usize = 20;
/// Long enough for the requests that follow a list.
const AFTERWARDS: Duration = Duration::from_secs(8);

/// Prints the figures of a fleet.
pub async fn measure(rig: &Rig) -> Result<()> {
    let servers = &rig.cloud.crowd;
    let launch = rig.launch("node-ccm").arg("--node-status-update-frequency=30s");
    let program = rig.start(&launch).await?;

    let (new, others) = servers.split_at_checked(NEW).context("too few servers")?;
    let user = &rig.cloud.user;
    burst(rig, user, "nodes, the first ones", others).await?;
    refresh(rig).await?;
    burst(rig, user, &format!("nodes, beside {} others", others.len()), new).await?;
    println!("resident memory with {SERVERS} nodes: {:.1} MB", megabytes(&program)?);
    refresh(rig).await?;
    program.terminate().await?;

    let (mark, asked) = (rig.cloud.proxy.log().mark(), rig.cluster.requests("").await?.len());
    let program = rig.start(&launch).await?;
    listed(rig, mark).await?;
    let made = requests(rig, "node-ccm", asked).await?;
    let writes: Vec<_> = made.iter().filter(|one| one.is_write()).cloned().collect();
    println!(
        "restart with {SERVERS} nodes, first refresh included: calls {} (wanted: at most 6); API writes except the lease: {:?} (wanted: 0; the event is leader election's)",
        calls(rig, mark),
        audit::count(&writes)
    );
    program.terminate().await?;
    Ok(())
}

/// Runs the same burst in a project that has no other servers, so that Nova's list is short.
pub async fn few(rig: &Rig) -> Result<()> {
    let servers = rig.cloud.other.crowd("few-", NEW).await?;
    rig.log_in_as(&Account::of("other"))?;
    let program = rig.start(&rig.launch("node-ccm")).await?;
    burst(rig, &rig.cloud.other, "nodes in their own project", &servers).await?;
    program.terminate().await?;
    rig.cloud.other.delete_servers(servers.iter().map(|server| server.id.as_str())).await
}

/// Registers nodes at once and waits until they are initialised.
async fn burst(rig: &Rig, user: &Admin, what: &str, servers: &[Server]) -> Result<()> {
    let start = Instant::now();
    user.servers().await?;
    let nova = start.elapsed();
    let mark = rig.cloud.proxy.log().mark();
    register(rig, servers.iter().map(fresh).collect()).await?;
    let registered = Instant::now();
    nodes::all_initialised(&rig.client, 4 * SOON).await?;
    println!(
        "{} {what}, registered at once: all initialised {} after the last registration (wanted for {NEW}: within 2 s; Nova's list took {}), calls {} (wanted: at most 4)",
        servers.len(),
        seconds(registered.elapsed()),
        seconds(nova),
        calls(rig, mark)
    );
    Ok(())
}

/// Waits for the next whole refresh.
async fn refresh(rig: &Rig) -> Result<()> {
    // Requests that earlier nodes have caused do not belong to the refresh.
    sleep(AFTERWARDS).await;
    let mark = rig.cloud.proxy.log().mark();
    listed(rig, mark).await?;
    println!("one refresh of all nodes: calls {} (wanted: at most 4)", calls(rig, mark));
    Ok(())
}

/// Waits until a lookup of all nodes has listed the servers since the mark, and for the requests
/// that follow.
async fn listed(rig: &Rig, mark: usize) -> Result<()> {
    poll::until("a lookup of all nodes", Duration::from_secs(90), || async {
        Ok((calls(rig, mark).of("compute GET /v2.1/servers/detail") > 0).then_some(()))
    })
    .await?;
    sleep(AFTERWARDS).await;
    Ok(())
}

fn megabytes(program: &Program) -> Result<f64> {
    Ok(program.resident_bytes()? as f64 / 1e6)
}
