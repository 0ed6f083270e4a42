//! Measures a program without routes and pod CIDRs, which is idle.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::{Arena, cloud, megabytes};

const COUNTED: Duration = Duration::from_secs(60);

/// Prints the figures.
pub(super) async fn measure(arena: &Arena) -> Result<()> {
    println!("\n-- route-ccm without routes and pod CIDRs");
    cloud(arena, 10, |_| {});
    let launch = arena.controller("route-ccm").arg("--configure-cloud-routes=false");
    let program = arena.standby(&launch).await?;
    let other = arena.controller("node-ccm").arg("--controllers=-cloud-node");
    let other = arena.standby(&other).await?;
    let mark = arena.mark().await?;
    sleep(COUNTED).await;
    let all = arena.cluster.requests("route-ccm/").await?.len();
    let since = arena.cluster.requests("").await?.split_off(mark);
    let since = since.iter().filter(|one| one.user_agent.starts_with("route-ccm/")).count();
    println!(
        "{since} requests to the API server in {} s (wanted: 0; {all} with the start); {} calls about routes (wanted: 0)",
        COUNTED.as_secs(),
        super::calls(arena).total()
    );
    println!(
        "resident memory: {}, {:.2} MB of it private; node-ccm with --controllers=-cloud-node: {}, {:.2} MB (wanted: no more than that)",
        megabytes(&program)?,
        program.private_bytes()? as f64 / 1e6,
        megabytes(&other)?,
        other.private_bytes()? as f64 / 1e6
    );
    program.terminate().await?;
    other.terminate().await?;
    Ok(())
}
