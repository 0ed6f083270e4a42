//! Measures how long no replica leads, with the default terms.

use std::time::Duration;

use anyhow::{Context as _, Result};
use ccm_sim::program::{Program, Signal};
use ccm_tests::{cluster, nodes};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use tokio::time::Instant;

use crate::{arena::Arena, burst};

const ROUNDS: usize = 5;

/// Measures from the signal to the new leader's first write: with SIGTERM, and with `kill -9`.
pub async fn measure(arena: &Arena) -> Result<()> {
    println!("\n-- takeover, default terms (lease 15 s, renew deadline 10 s, retry 2 s)");
    let mut terminated = Vec::new();
    for _ in 0..ROUNDS {
        terminated.push(round(arena, Signal::TERM).await?);
    }
    let killed = round(arena, Signal::KILL).await?;
    let times: Vec<_> =
        terminated.iter().map(|time| format!("{:.3} s", time.as_secs_f64())).collect();
    println!("SIGTERM to the new leader's first write: {} (wanted: below 0.5 s)", times.join(", "));
    println!(
        "kill -9 to the new leader's first write: {:.3} s (wanted: below 16 s)",
        killed.as_secs_f64()
    );
    Ok(())
}

/// A node waits for its leader all through the round: the cloud does not know it until
/// the old leader is gone, so that its initialisation is the new leader's first write.
async fn round(arena: &Arena, signal: Signal) -> Result<Duration> {
    arena.instances(0);
    let mut leader = arena.node_ccm(&arena.launch()).await?;
    let standby = arena.standby(&arena.launch()).await?;
    let client = cluster::client_of(arena.cluster.kubeconfig()).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;

    let start = Instant::now();
    leader.signal(signal)?;
    // The node is registered at once: the old leader does not take it any more, or does not have
    // the time.
    arena.served.cloud().add(nodes::instance("node-takeover"));
    nodes::register(&client, &nodes::fresh("node-takeover")).await?;
    let took = first_write(&client, start).await?;
    leader.wait(Duration::from_secs(40)).await?;
    finish(standby).await?;
    burst::remove_all(&arena.client).await?;
    Ok(took)
}

async fn first_write(client: &Client, start: Instant) -> Result<Duration> {
    let api = Api::<Node>::all(client.clone());
    let fresh = api.get("node-takeover").await?.metadata.resource_version;
    while start.elapsed() < Duration::from_mins(1) {
        let now = api.get("node-takeover").await?;
        if now.metadata.resource_version != fresh || !nodes::is_tainted(&now) {
            return Ok(start.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    None.context("no write within a minute")
}

async fn finish(program: Program) -> Result<()> {
    anyhow::ensure!(program.leads().await?, "the standby does not lead");
    program.terminate().await?;
    Ok(())
}
