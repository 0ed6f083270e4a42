//! Nodes register and get pod CIDR, route and condition: compares route-ccm with a plain client.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_tests::{cluster::Request, nodes};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};

use super::{Arena, LIMIT, available, burst, cidr, cloud, megabytes, node, requests, start};
use crate::arena::Untainted;

/// How many kubelets register at once.
const REGISTERING: usize = 16;
/// How many writes the plain client has in flight.
const IN_FLIGHT: usize = 32;

/// Prints the figures. The plain client runs before and after, as in the burst of node-ccm.
pub(super) async fn measure(arena: &Arena, count: usize) -> Result<()> {
    println!("\n-- {count} nodes register without pod CIDR, {REGISTERING} at a time");
    let before = plain(arena, count).await?;
    let reached = route_ccm(arena, count).await?;
    let after = plain(arena, count).await?;
    println!(
        "route-ccm gives pod CIDRs to {:.0} % of the plain client's mean of nodes a second (wanted: at least 90 %)",
        100.0 * reached / f64::midpoint(before, after)
    );
    Ok(())
}

/// Runs a client that only makes the two writes, pod CIDR and condition.
async fn plain(arena: &Arena, count: usize) -> Result<f64> {
    let _watch = Untainted::watch_for(&arena.client, has_cidr);
    let start = Instant::now();
    let (sender, receiver) = mpsc::unbounded_channel();
    let register = async {
        let all = burst::names(count).into_iter().enumerate();
        stream::iter(all)
            .map(|(number, name)| {
                let sender = sender.clone();
                async move {
                    let api = Api::<Node>::all(arena.client.clone());
                    let node = serde_json::from_value(node(&name, None))?;
                    let made = api.create(&PostParams::default(), &node).await?;
                    let version = made.metadata.resource_version;
                    sender.send((number, name, version)).context("the other half has ended")
                }
            })
            .buffer_unordered(REGISTERING)
            .try_collect::<Vec<()>>()
            .await?;
        drop(sender);
        anyhow::Ok(())
    };
    let write = stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|node| (node, receiver))
    })
    .map(|(number, name, version)| write(&arena.client, number, name, version))
    .buffer_unordered(IN_FLIGHT)
    .try_collect::<Vec<()>>();
    futures::try_join!(register, write)?;
    let rate = count as f64 / start.elapsed().as_secs_f64();
    println!("plain client, the same two patches: {rate:.0} nodes/s");
    burst::remove_all(&arena.client).await?;
    Ok(rate)
}

async fn write(
    client: &Client,
    number: usize,
    name: String,
    version: Option<String>,
) -> Result<()> {
    let (api, params, cidr) =
        (Api::<Node>::all(client.clone()), PatchParams::default(), cidr(number));
    let spec = json!({
        "metadata": {"resourceVersion": version},
        "spec": {"podCIDR": cidr, "podCIDRs": [cidr]},
    });
    api.patch(&name, &params, &Patch::Strategic(spec)).await?;
    let condition = json!({"status": {"conditions": [{
        "type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated",
        "message": "RouteController created a route"}]}});
    api.patch_status(&name, &params, &Patch::Strategic(condition)).await?;
    Ok(())
}

/// Returns how many nodes a second get their pod CIDR.
async fn route_ccm(arena: &Arena, count: usize) -> Result<f64> {
    cloud(arena, count, |_| {});
    let program = start(arena, &["--allocate-node-cidrs"]).await?;
    let seen = Untainted::watch_for(&arena.client, has_cidr);
    let (mark, begun) = (arena.mark().await?, Instant::now());
    let all = burst::names(count).iter().map(|name| node(name, None)).collect();
    nodes::register_all(&arena.client, all, REGISTERING).await?;
    let last = seen.all(count, LIMIT).await?.into_values().max().unwrap_or(begun);
    let took = last.duration_since(begun);
    available(arena, count).await?;
    let rate = count as f64 / took.as_secs_f64();
    println!(
        "route-ccm, default settings: {rate:.0} nodes/s have their pod CIDR; all available after {:.1} s; {}",
        begun.elapsed().as_secs_f64(),
        megabytes(&program)?
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut patches: BTreeMap<String, usize> = BTreeMap::new();
    for request in requests(arena, mark).await?.into_iter().filter(Request::is_write) {
        *patches.entry(request.what()).or_default() += 1;
    }
    println!("  writes: {patches:?} (wanted: {count} of the node, {count} of its status)");
    let calls = super::calls(arena);
    println!("  cloud calls: {} changes, {} pages of lists", calls.apply, calls.list);
    duplicates(arena, count).await?;
    program.terminate().await?;
    burst::remove_all(&arena.client).await?;
    Ok(rate)
}

async fn duplicates(arena: &Arena, count: usize) -> Result<()> {
    let all = Api::<Node>::all(arena.client.clone()).list(&ListParams::default()).await?;
    let mut cidrs: Vec<String> = all
        .items
        .iter()
        .flat_map(|node| node.spec.iter())
        .filter_map(|spec| spec.pod_cidr.clone())
        .collect();
    ensure!(cidrs.len() == count, "{} of {count} nodes have a pod CIDR", cidrs.len());
    cidrs.sort_unstable();
    cidrs.dedup();
    println!("  {} blocks given out twice (wanted: 0)", count - cidrs.len());
    Ok(())
}

fn has_cidr(node: &Node) -> bool {
    node.spec.as_ref().is_some_and(|spec| spec.pod_cidr.is_some())
}
