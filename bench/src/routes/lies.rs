//! The instances vanish from the cloud, the API server is cut off, and then the API server shows no
//! nodes.

use std::time::Duration;

use anyhow::{Context as _, Result};
use ccm_sim::cloud::routes::RouteWriteKind;
use tokio::time::sleep;

use super::{Arena, add_nodes, available, burst, cloud, start};

/// How long each lie lasts.
const LONG: Duration = Duration::from_secs(60);

/// Prints the figures.
pub(super) async fn measure(arena: &Arena, count: usize) -> Result<()> {
    println!(
        "\n-- route-ccm with a list every 10 s: {count} nodes with routes, and everything vanishes for {} s",
        LONG.as_secs()
    );
    cloud(arena, count, |settings| settings.records_owner = true);
    add_nodes(arena, count).await?;
    let program = start(arena, &["--route-reconciliation-period=10s"]).await?;
    available(arena, count).await?;
    arena.served.cloud().clear();
    lasts(arena, "all instances vanish from the cloud").await;
    arena.instances(count);
    let real = arena.cluster.real().context("this measures a real API server")?;
    real.freeze()?;
    // The process ends when it loses its Lease.
    lasts(arena, "the API server is frozen").await;
    real.thaw()?;
    // Another process finds the routes, which are recorded as ours, and no nodes.
    drop(program);
    burst::remove_all(&arena.client).await?;
    let program = start(arena, &["--route-reconciliation-period=10s"]).await?;
    lasts(arena, "the API server answers a list with 200 OK and no nodes").await;
    println!("  held: {} deletions", program.metric("ccm_route_changes_held").await?);
    program.terminate().await?;
    Ok(())
}

async fn lasts(arena: &Arena, what: &str) {
    let router = arena.served.cloud().router();
    router.reset_writes();
    sleep(LONG).await;
    println!("{what}: {} routes deleted (wanted: 0)", router.written(RouteWriteKind::Delete));
}
