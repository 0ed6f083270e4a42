//! Measures node IPAM until the last block, on the simulated API server.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::Operation,
    faults::{Fault, FaultEffect, Trouble},
    poll,
    program::Launch,
};
use ccm_tests::{
    cluster::{Cluster, Kind},
    nodes,
};
use kube::Client;
use tokio::time::Instant;

use super::{AT_ONCE, Arena, CLUSTER_CIDR, burst, cloud, megabytes, node};

/// The /24 blocks of 10.64.0.0/10.
const BLOCKS: usize = 16_384;
const LIMIT: Duration = Duration::from_mins(30);
/// How long the route of the node that leaves cannot be deleted.
const STUCK: Duration = Duration::from_secs(90);

/// Prints the figures.
pub(super) async fn measure(arena: &Arena) -> Result<()> {
    println!(
        "\n-- route-ccm --allocate-node-cidrs, simulated API server: {BLOCKS} nodes take all blocks"
    );
    cloud(arena, BLOCKS + 1, |_| {});
    let cluster = Cluster::start(Kind::Simulated).await?;
    let client = cluster.client().await?;
    let launch =
        Launch::controller("route-ccm", cluster.kubeconfig(), "external", arena.served.config());
    let launch = launch.arg(CLUSTER_CIDR).arg("--allocate-node-cidrs");
    let program = arena.node_ccm(&launch).await?;
    let begun = Instant::now();
    let router = arena.served.cloud().router();
    let all = burst::names(BLOCKS).iter().map(|name| node(name, None)).collect();
    nodes::register_all(&client, all, AT_ONCE).await?;
    poll::until("a route for each block", LIMIT, || async {
        Ok((router.len() == BLOCKS).then_some(()))
    })
    .await?;
    println!(
        "{BLOCKS} blocks given out, each with its route, after {:.0} s; resident memory {}",
        begun.elapsed().as_secs_f64(),
        megabytes(&program)?
    );
    let last = format!("node-{BLOCKS:05}");
    nodes::register(&client, &node(&last, None)).await?;
    nodes::event(&client, &last, "CIDRNotAvailable", LIMIT).await?;
    poll::until("a condition that says so", LIMIT, || async {
        let node = nodes::get(&client, &last).await?;
        let conditions = node.status.into_iter().filter_map(|status| status.conditions);
        let is = conditions
            .flatten()
            .any(|one| one.type_ == "NetworkUnavailable" && one.status == "True");
        Ok(is.then_some(()))
    })
    .await?;
    println!("one more node: event CIDRNotAvailable, NetworkUnavailable=True");
    leaves(arena, &client, &last).await?;
    program.terminate().await?;
    cluster.stop().await
}

/// Removes a node. Its route stays for a while, and then the waiting node gets its block.
async fn leaves(arena: &Arena, client: &Client, waiting: &str) -> Result<()> {
    let name = "node-07000";
    let block = cidr_of(client, name).await?.context("it has a block")?;
    let destination = block.parse()?;
    let error = CloudError::new(ErrorKind::Unavailable, "not now");
    let stuck = FaultEffect::Routes(vec![block.clone()], Trouble::Fail(error));
    let fault = Fault::new(stuck).on(Operation::ApplyRoutes).lasting(STUCK);
    arena.served.cloud().faults().add(fault);
    nodes::delete(client, name).await?;
    let (begun, router) = (Instant::now(), arena.served.cloud().router());
    let mut free = None;
    loop {
        if free.is_none() && router.to(destination).is_empty() {
            free = Some(begun.elapsed());
        }
        if let Some(given) = cidr_of(client, waiting).await? {
            let free = free.context("the block was given out while its route existed")?;
            ensure!(given == block, "{waiting} got {given}, and not {block}");
            println!(
                "{name} leaves, its route goes {:.0} s later, and {waiting} gets {block} after {:.0} s",
                free.as_secs_f64(),
                begun.elapsed().as_secs_f64()
            );
            return Ok(());
        }
        ensure!(begun.elapsed() < LIMIT, "{waiting} has no block");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn cidr_of(client: &Client, name: &str) -> Result<Option<String>> {
    Ok(nodes::get(client, name).await?.spec.and_then(|spec| spec.pod_cidr))
}
