//! Measures the memory with many Services and nodes.

use std::time::Duration;

use anyhow::Result;
use ccm_tests::services;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;
use tokio::time::sleep;

use super::{
    AT_ONCE, Arena, add_nodes, all_have, cloud, create_services, finish, mebibytes, names, start,
    with_addresses,
};

const BALANCED: usize = 1000;
const OTHERS: usize = 20_000;
const NODES: usize = 5000;

/// Prints the figures.
pub(super) async fn measure(arena: &Arena) -> Result<()> {
    println!(
        "\n-- service-ccm, default settings: {BALANCED} Services of type LoadBalancer, {OTHERS} others, {NODES} nodes"
    );
    cloud(arena, |_| {});
    let program = start(arena).await?;
    println!(
        "resident memory idle, every provider built in: {} (wanted: below 12 MB)",
        mebibytes(&program)?
    );
    stream::iter(0..OTHERS)
        .map(|number| async move {
            let mut service = services::service(&format!("other-{number}"));
            service["spec"]["type"] = json!("ClusterIP");
            service["spec"]["clusterIP"] = json!("None");
            services::create(&arena.client, &service).await.map(drop)
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    println!("resident memory, {OTHERS} other Services: {}", mebibytes(&program)?);
    let all = names(NODES + 1);
    add_nodes(arena, all.get(..NODES).unwrap_or_default()).await?;
    println!("resident memory, and {NODES} nodes: {}", mebibytes(&program)?);
    create_services(arena, "web", BALANCED).await?;
    with_addresses(arena, BALANCED, Duration::from_mins(10)).await?;
    println!("resident memory, and {BALANCED} load balancers: {}", mebibytes(&program)?);
    program.terminate().await?;
    let program = start(arena).await?;
    sleep(Duration::from_secs(20)).await;
    println!("resident memory after a restart: {} (wanted: below 50 MB)", mebibytes(&program)?);
    add_nodes(arena, all.get(NODES..).unwrap_or_default()).await?;
    all_have(arena, NODES + 1, Duration::from_mins(10)).await?;
    sleep(Duration::from_secs(20)).await;
    println!(
        "resident memory after a change of all members: {} (wanted: below 50 MB)",
        mebibytes(&program)?
    );
    finish(arena, program).await
}
