//! Measures service-ccm: joining nodes, restarts, many Services at once, faults, a frozen leader,
//! memory.

mod create;
mod frozen;
mod members;
mod memory;
mod restart;

use std::time::Duration;

use anyhow::{Context as _, Result};
use ccm_cloud::LoadBalancerTraits;
use ccm_sim::{cloud::balancers::BalancerSettings, poll, program::Program};
use ccm_tests::{cluster::Request, nodes, services};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{arena::Arena, burst};

const AT_ONCE: usize = 32;

/// Prints all figures of service-ccm.
pub async fn measure(arena: &Arena, part: Option<Part>) -> Result<()> {
    let wants = |one| part.is_none_or(|part| part == one);
    if wants(Part::Create) {
        create::measure(arena).await?;
    }
    if wants(Part::Members) {
        members::measure(arena).await?;
    }
    if wants(Part::Restart) {
        restart::measure(arena).await?;
    }
    if wants(Part::Frozen) {
        frozen::measure(arena).await?;
    }
    if wants(Part::Memory) {
        memory::measure(arena).await?;
    }
    Ok(())
}

/// A part of the figures of service-ccm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Five hundred Services at once with a cloud that takes 30 s. One Service fails, one hangs.
    Create,
    /// Nodes that join and leave.
    Members,
    /// A restart with a thousand Services.
    Restart,
    /// A leader that is frozen in the middle of a creation.
    Frozen,
    /// Memory.
    Memory,
}

/// Makes a cloud with these properties, and without load balancers.
fn cloud(arena: &Arena, change: impl FnOnce(&mut BalancerSettings)) {
    let cloud = arena.served.cloud();
    for balancer in cloud.balancers().all() {
        cloud.balancers().remove(&balancer.id);
    }
    cloud.faults().clear();
    cloud.balancers().configure(|settings| {
        *settings = BalancerSettings::default();
        change(settings);
    });
    cloud.balancers().reset_writes();
    cloud.reset_calls();
}

fn one_at_a_time(traits: &mut LoadBalancerTraits) {
    traits.max_batch = 1;
}

async fn start(arena: &Arena) -> Result<Program> {
    let launch = arena.controller("service-ccm");
    arena.node_ccm(&launch.arg("--provider-annotation-prefixes=sim/,sim-status/")).await
}

/// Registers these nodes, initialised and with an address.
async fn add_nodes(arena: &Arena, names: &[String]) -> Result<()> {
    let nodes: Vec<Value> = names
        .iter()
        .map(|name| {
            let instance = nodes::instance(name);
            let mut node = nodes::initialised(name);
            node["status"]["addresses"] =
                json!(instance.addresses.first().map(|address| {
                    json!([{"type": "InternalIP", "address": address.address}])
                }));
            node
        })
        .collect();
    nodes::register_all(&arena.client, nodes, AT_ONCE).await
}

/// Creates `count` Services named `<prefix>-<number>`.
async fn create_services(arena: &Arena, prefix: &str, count: usize) -> Result<()> {
    stream::iter(0..count)
        .map(|number| async move {
            let service = services::service(&format!("{prefix}-{number}"));
            services::create(&arena.client, &service).await.map(drop)
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

/// Waits until this number of Services has an address.
async fn with_addresses(arena: &Arena, count: usize, limit: Duration) -> Result<()> {
    poll::until(&format!("{count} Services with an address"), limit, || async {
        Ok((addressed(arena).await? >= count).then_some(()))
    })
    .await
}

/// Returns how many Services have an address.
async fn addressed(arena: &Arena) -> Result<usize> {
    let api = Api::<Service>::namespaced(arena.client.clone(), services::NAMESPACE);
    let all = api.list(&ListParams::default()).await?;
    Ok(all.items.iter().filter(|service| !services::addresses(service).is_empty()).count())
}

/// Waits until each load balancer has this number of members.
async fn all_have(arena: &Arena, members: usize, limit: Duration) -> Result<()> {
    poll::until(&format!("{members} members in each load balancer"), limit, || async {
        let all = arena.served.cloud().balancers().all();
        Ok(all.iter().all(|one| one.members.len() == members).then_some(()))
    })
    .await
}

/// Deletes all Services, without the help of the program, and all nodes.
async fn remove_all(arena: &Arena) -> Result<()> {
    let api = Api::<Service>::namespaced(arena.client.clone(), services::NAMESPACE);
    let all = api.list_metadata(&ListParams::default()).await?.items;
    let names = all.into_iter().filter_map(|one| one.metadata.name);
    stream::iter(names.filter(|name| name != "kubernetes"))
        .map(|name| {
            let api = api.clone();
            async move {
                let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                api.patch_metadata(&name, &PatchParams::default(), &none).await?;
                services::delete(&arena.client, &name).await
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    burst::remove_all(&arena.client).await
}

/// Returns the program's requests after the first `mark` requests, except those about its Lease and
/// its events.
async fn requests(arena: &Arena, mark: usize) -> Result<Vec<Request>> {
    let mut all = arena.cluster.requests("").await?.split_off(mark);
    all.retain(|request| {
        request.user_agent.starts_with("service-ccm/")
            && !["leases", "events"].contains(&&*request.resource)
    });
    Ok(all)
}

fn writes(requests: &[Request]) -> usize {
    requests.iter().filter(|request| request.is_write()).count()
}

/// Waits until the program has compared the cloud's load balancers.
async fn compared(program: &Program) -> Result<()> {
    poll::until("the first comparison", Duration::from_secs(60), || async {
        let page = program.get("/readyz?verbose").await?.1;
        let line = page.lines().find(|line| line.contains("load-balancers")).unwrap_or_default();
        Ok((line.contains("listed,") || line.contains("no list")).then_some(()))
    })
    .await
}

fn mebibytes(program: &Program) -> Result<String> {
    Ok(format!("{:.1} MB", program.resident_bytes()? as f64 / 1e6))
}

/// Returns the time from now until `count` load balancers exist or are under way.
async fn requested(arena: &Arena, name: &str) -> Result<Duration> {
    let start = Instant::now();
    let key = format!("default/{name}");
    services::create(&arena.client, &services::service(name)).await?;
    loop {
        let all = arena.served.cloud().balancers().all();
        let found = all.iter().flat_map(|one| &one.owners).any(|owner| owner.to_string() == key);
        if found {
            return Ok(start.elapsed());
        }
        anyhow::ensure!(start.elapsed() < Duration::from_secs(120), "{name} was never requested");
        sleep(Duration::from_millis(10)).await;
    }
}

fn names(count: usize) -> Vec<String> {
    burst::names(count)
}

/// Ends a program whose figures are complete.
async fn finish(arena: &Arena, program: Program) -> Result<()> {
    program.terminate().await.context("it ends in order")?;
    remove_all(arena).await
}
