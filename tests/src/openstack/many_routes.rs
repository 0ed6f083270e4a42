//! The cost of routes for many nodes: counted by the proxy, for scenarios and benchmarks.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::poll;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    admin::{Admin, Port},
    balancing::Calls,
    proxy::Request,
    rig::{Rig, SOON},
};
use crate::nodes;

/// The network of the pods.
pub const CLUSTER: &str = "10.244.0.0/16";
/// The prefix of the names of these nodes and ports.
const PREFIX: &str = "routed-";
/// How many kubelets register at once.
const AT_ONCE: usize = 16;
/// For how long nothing more may happen after the expected requests.
const QUIET: Duration = Duration::from_secs(3);

/// The measured figures.
pub struct Figures {
    /// All nodes get routes.
    pub filled: Calls,
    /// From the program's start to the last node's condition.
    pub took: Duration,
    /// The shortest and the longest time from the request that adds a node's pair to the node's
    /// condition; `None` if ports have no port security.
    pub after_pair: Option<(Duration, Duration)>,
    /// A node leaves, and its port stays.
    pub left: Calls,
    /// A node leaves, and its port as well.
    pub left_with_port: Calls,
}

/// Returns the pod CIDR of the node with this number.
fn cidr(number: usize) -> String {
    format!("10.244.{}.{}/28", number / 16, number % 16 * 16)
}

/// Returns the node behind a port.
fn node(number: usize, port: &Port) -> Value {
    let mut node = nodes::initialised(&port.name);
    node["spec"]["podCIDR"] = cidr(number).into();
    node["spec"]["podCIDRs"] = json!([cidr(number)]);
    node["status"]["addresses"] = json!([{"type": "InternalIP", "address": port.address}]);
    node
}

/// Returns true if the node's condition says that the pods' network is available.
pub fn is_reachable(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut all = conditions.into_iter().flatten();
    all.any(|it| it.type_ == "NetworkUnavailable" && it.status == "False")
}

/// Gives this number of nodes routes, with port security or without. Then two of them leave. Needs
/// an empty router and an empty cluster, and leaves both empty.
pub async fn measure(rig: &Rig, count: usize, is_secure: bool) -> Result<Figures> {
    let user = &rig.cloud.user;
    let router = user.router().await?;
    clear(user, &router).await?;
    let names: Vec<_> = (0..count).map(|number| format!("{PREFIX}{number:03}")).collect();
    let ports = user.create_ports(&names, is_secure).await?;
    let all = (0..).zip(&ports).map(|(number, port)| node(number, port)).collect();
    nodes::register_all(&rig.client, all, AT_ONCE).await?;
    rig.use_router(&router)?;
    let log = rig.cloud.proxy.log();
    let mark = log.mark();
    let start = Instant::now();
    let limit = SOON + Duration::from_millis(500) * u32::try_from(count)?;
    let reached = reached(rig.client.clone(), count, limit);
    let launch = rig.launch("route-ccm").arg(format!("--cluster-cidr={CLUSTER}"));
    let reached = async { Ok(reached.await) };
    let (program, reached) = tokio::try_join!(rig.start(&launch), reached)?;
    let reached = reached.with_context(|| program.log())?;
    let took = start.elapsed();
    tokio::time::sleep(QUIET).await;
    let requests = log.since(mark);
    let after_pair = is_secure.then(|| after_pairs(&requests, &ports, &reached)).transpose();
    let after_pair = after_pair.with_context(|| program.log())?;

    let (first, second) = (ports.first().context("no port")?, ports.get(1).context("one port")?);
    let left = leaves(rig, &router, 0, first).await?;
    user.delete_port(&second.id).await?;
    let left_with_port = leaves(rig, &router, 1, second).await?;
    program.terminate().await?;
    crate::cluster::clear(&rig.client).await?;
    clear(user, &router).await?;
    Ok(Figures { filled: Calls::of(&requests), took, after_pair, left, left_with_port })
}

/// Removes all routes and the ports of earlier runs.
pub async fn clear(user: &Admin, router: &str) -> Result<()> {
    user.set_routes(router, &[]).await?;
    for id in user.ports_named(PREFIX).await? {
        user.delete_port(&id).await?;
    }
    Ok(())
}

/// Returns when each node's condition said that it is reachable, by name.
async fn reached(
    client: Client,
    count: usize,
    limit: Duration,
) -> Result<BTreeMap<String, tokio::time::Instant>> {
    let api = Api::<Node>::all(client);
    let seen = async {
        let mut seen = BTreeMap::new();
        loop {
            let list = api.list_metadata(&ListParams::default()).await?;
            let version = list.metadata.resource_version.context("a list has a version")?;
            let events = api.watch(&WatchParams::default(), &version).await?;
            let mut events = events.boxed();
            while let Some(event) = events.try_next().await? {
                let (WatchEvent::Added(node) | WatchEvent::Modified(node)) = event else {
                    continue;
                };
                if is_reachable(&node) {
                    let name = node.metadata.name.context("a node has a name")?;
                    seen.entry(name).or_insert_with(tokio::time::Instant::now);
                }
                if seen.len() == count {
                    return anyhow::Ok(seen);
                }
            }
        }
    };
    tokio::time::timeout(limit, seen).await.context("not all nodes became reachable")?
}

/// Returns the shortest and the longest time from a port's own pair to its node's condition.
fn after_pairs(
    requests: &[Request],
    ports: &[Port],
    reached: &BTreeMap<String, tokio::time::Instant>,
) -> Result<(Duration, Duration)> {
    let mut times = Vec::new();
    for port in ports {
        let path = format!("/v2.0/ports/{}", port.id);
        let written =
            requests.iter().find(|one| one.method == http::Method::PUT && one.path == path);
        let written = written.with_context(|| format!("no pair for {}: {port:?}", port.name))?;
        let reached = reached.get(&port.name).context("a node that was not reached")?;
        times.push(reached.saturating_duration_since(written.at));
    }
    times.iter().min().copied().zip(times.iter().max().copied()).context("no times")
}

/// Deletes a node, and counts the calls until its route is gone and nothing else happens.
async fn leaves(rig: &Rig, router: &str, number: usize, port: &Port) -> Result<Calls> {
    let log = rig.cloud.proxy.log();
    let mark = log.mark();
    nodes::delete(&rig.client, &port.name).await?;
    let gone = cidr(number);
    poll::until(&format!("the route to {gone} to be removed"), SOON, || async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let there = rig.cloud.user.routes(router).await?;
        Ok((!there.iter().any(|(to, _)| *to == gone)).then_some(()))
    })
    .await?;
    tokio::time::sleep(QUIET).await;
    Ok(Calls::of(&log.since(mark)))
}

impl Figures {
    /// Prints them beside the wanted values.
    pub fn print(&self, count: usize) {
        let ports = match self.after_pair {
            Some((shortest, longest)) => format!(
                "with port security, the condition {:.2} to {:.2} s after the request for its own pair",
                shortest.as_secs_f64(),
                longest.as_secs_f64()
            ),
            None => "port security off".to_owned(),
        };
        eprintln!(
            "{count} nodes get routes, {ports}: {} calls, of these {} not one port's, in {:.1} s; one leaves: {}; with its port: {}",
            self.filled.calls,
            self.shared(),
            self.took.as_secs_f64(),
            self.left.calls,
            self.left_with_port.calls
        );
    }

    /// Returns the calls of the filling that are not about the pairs of one port.
    fn shared(&self) -> usize {
        self.filled.calls - self.filled.of_pattern("network PUT /v2.0/ports/{id}")
    }

    /// Checks them against what is wanted for this number of nodes.
    pub fn check(&self, count: usize) -> Result<()> {
        let Calls { calls, by_pattern, .. } = &self.filled;
        let shared = self.shared();
        ensure!(shared <= 6, "{shared} calls that are not for a single port: {by_pattern:?}");
        let left = match self.after_pair {
            Some((first, _)) => {
                ensure!(*calls <= count + 6, "{calls} calls for {count} nodes: {by_pattern:?}");
                ensure!(first <= Duration::from_secs(3), "the first condition after {first:?}");
                3
            }
            None => {
                ensure!(*calls <= 6, "{calls} calls for {count} nodes: {by_pattern:?}");
                2
            }
        };
        for (counted, most) in [(&self.left, left), (&self.left_with_port, 2)] {
            let Calls { calls, by_pattern, .. } = counted;
            ensure!(*calls <= most, "a node leaves: {calls} calls, not {most}: {by_pattern:?}");
        }
        Ok(())
    }
}
