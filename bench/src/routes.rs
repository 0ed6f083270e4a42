//! Measures route-ccm: routes from nothing, joining nodes, a quiet cluster, pod CIDRs, lies,
//! memory.

mod fill;
mod join;
mod lies;
mod off;
mod register;
mod shared;

use std::time::Duration;

use anyhow::Result;
use ccm_sim::{
    cloud::{RouteCalls, routes::RouterSettings},
    poll,
    program::Program,
};
use ccm_tests::{cluster::Request, nodes};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

use crate::{arena::Arena, burst};

const AT_ONCE: usize = 32;
/// The network of the pods: 16,384 blocks of /24.
const CLUSTER_CIDR: &str = "--cluster-cidr=10.64.0.0/10";
const LIMIT: Duration = Duration::from_mins(10);

/// Prints all figures of route-ccm.
pub async fn measure(arena: &Arena, part: Option<Part>, count: usize) -> Result<()> {
    let wants = |one| part.is_none_or(|part| part == one);
    if wants(Part::Off) {
        off::measure(arena).await?;
    }
    if wants(Part::Join) || wants(Part::Steady) {
        join::measure(arena, count, wants(Part::Steady)).await?;
    }
    if wants(Part::Lies) {
        lies::measure(arena, count).await?;
    }
    if wants(Part::Register) {
        register::measure(arena, count).await?;
    }
    if wants(Part::Fill) {
        fill::measure(arena).await?;
    }
    if wants(Part::Shared) {
        shared::measure(arena).await?;
    }
    Ok(())
}

/// A part of the figures of route-ccm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Neither routes nor pod CIDRs.
    Off,
    /// Routes from nothing, one node that joins, memory.
    Join,
    /// Also measures twenty quiet minutes afterwards.
    Steady,
    /// Instances, nodes and the API server vanish.
    Lies,
    /// Nodes that register and get their pod CIDRs.
    Register,
    /// All blocks of a network given out, on the simulated API server.
    Fill,
    /// Two clusters and a person on one router.
    Shared,
}

/// Makes a cloud with these properties, without routes, and with the instances of `count` nodes.
fn cloud(arena: &Arena, count: usize, change: impl FnOnce(&mut RouterSettings)) {
    let cloud = arena.served.cloud();
    cloud.faults().clear();
    cloud.router().clear();
    cloud.router().configure(|settings| {
        *settings = RouterSettings::default();
        change(settings);
    });
    cloud.router().reset_writes();
    arena.instances(count);
    cloud.reset_calls();
}

async fn start(arena: &Arena, arguments: &[&str]) -> Result<Program> {
    let launch = arguments
        .iter()
        .fold(arena.controller("route-ccm").arg(CLUSTER_CIDR), |all, one| all.arg(*one));
    arena.node_ccm(&launch).await
}

/// Returns a node with the address of its instance and, perhaps, the pod CIDR of its number.
fn node(name: &str, number: Option<usize>) -> Value {
    let mut node = nodes::initialised(name);
    let addresses = nodes::instance(name).addresses;
    let first = addresses.first().map(|address| address.address.as_str());
    node["status"]["addresses"] = json!([{"type": "InternalIP", "address": first}]);
    if let Some(number) = number {
        let cidr = cidr(number);
        node["spec"]["podCIDR"] = json!(cidr);
        node["spec"]["podCIDRs"] = json!([cidr]);
    }
    node
}

/// Returns the pod CIDR of a number.
fn cidr(number: usize) -> String {
    format!("10.{}.{}.0/24", 64 + number / 256, number % 256)
}

/// Registers `count` nodes with their pod CIDRs.
async fn add_nodes(arena: &Arena, count: usize) -> Result<()> {
    let all = burst::names(count);
    let all = all.iter().enumerate().map(|(number, name)| node(name, Some(number)));
    nodes::register_all(&arena.client, all.collect(), AT_ONCE).await
}

/// Waits until the network of this number of nodes is available.
async fn available(arena: &Arena, count: usize) -> Result<()> {
    poll::until(&format!("the routes of {count} nodes"), LIMIT, || async {
        if arena.served.cloud().router().len() < count {
            return Ok(None);
        }
        let api = Api::<Node>::all(arena.client.clone());
        let all = api.list(&ListParams::default()).await?;
        Ok((all.items.iter().filter(|node| is_available(node)).count() >= count).then_some(()))
    })
    .await
}

fn is_available(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "NetworkUnavailable" && one.status == "False")
}

/// Returns the program's requests after the first `mark` requests, except those about its Lease and
/// its events.
async fn requests(arena: &Arena, mark: usize) -> Result<Vec<Request>> {
    let mut all = arena.cluster.requests("").await?.split_off(mark);
    all.retain(|request| {
        request.user_agent.starts_with("route-ccm/")
            && !["leases", "events"].contains(&&*request.resource)
    });
    Ok(all)
}

fn calls(arena: &Arena) -> RouteCalls {
    arena.served.cloud().calls().routes
}

fn megabytes(program: &Program) -> Result<String> {
    Ok(format!("{:.1} MB", program.resident_bytes()? as f64 / 1e6))
}

/// Ends a program whose figures are complete.
async fn finish(arena: &Arena, program: Program) -> Result<()> {
    program.terminate().await?;
    burst::remove_all(&arena.client).await
}
