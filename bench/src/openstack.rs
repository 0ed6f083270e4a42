//! Counts the requests of the programs to OpenStack's real services, by the proxy in front of them,
//! with a real API server.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use ccm_tests::{
    cluster::{Cluster, Kind, audit},
    fixture::{Accounts, Fixture},
    nodes,
    openstack::{
        proxy::tally,
        rig::{Cloud, INITIALISED, Rig, fresh},
        services::Flavour,
    },
};
use clap::ValueEnum;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

mod balancers;
mod fleet;
mod judged;
mod pauses;
mod routes;
mod token;

/// How many nodes register at the same time.
const AT_ONCE: usize = 16;

/// A part of the figures.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Nodes register, all are refreshed, the program starts again.
    Fleet,
    /// A token is revoked.
    Token,
    /// A service asks for a pause.
    Pauses,
    /// The cloud errs while nodes are judged.
    Outages,
    /// A server is deleted.
    Deletion,
    /// Many nodes get routes, and leave.
    Routes,
    /// A node joins many load balancers, and answers to creations are lost.
    Balancers,
}

/// Prints the figures of OpenStack, or one part of them.
pub async fn measure(flavour: &str, only: Option<Part>) -> Result<()> {
    let flavour: Flavour = flavour.parse()?;
    let wants = |part| only.is_none_or(|only| only == part);
    let cluster = Arc::new(Cluster::start(Kind::Real).await?);
    let crowd = if wants(Part::Fleet) { fleet::SERVERS } else { 0 };
    let cloud = Arc::new(Cloud::start(flavour, crowd).await?);
    println!("\n-- OpenStack, flavour {flavour:?}, default settings unless stated otherwise");
    if wants(Part::Fleet) {
        fleet::few(&rig(&cloud, &cluster).await?).await?;
        fleet::measure(&rig(&cloud, &cluster).await?).await?;
    }
    if wants(Part::Token) {
        token::measure(&rig(&cloud, &cluster).await?).await?;
    }
    if wants(Part::Pauses) {
        pauses::measure(&rig(&cloud, &cluster).await?).await?;
    }
    if wants(Part::Outages) {
        judged::measure(&rig(&cloud, &cluster).await?).await?;
    }
    if wants(Part::Deletion) {
        judged::deletion(&rig(&cloud, &cluster).await?).await?;
    }
    if wants(Part::Routes) {
        routes::measure(&rig(&cloud, &cluster).await?).await?;
    }
    if wants(Part::Balancers) {
        balancers::joining(&rig(&cloud, &cluster).await?).await?;
        balancers::lost(&rig(&cloud, &cluster).await?).await?;
    }
    println!("memory of the services: {} MB", cloud.services.memory()? / 1_000_000);
    Arc::into_inner(cluster).context("the cluster is still in use")?.stop().await
}

async fn rig(cloud: &Arc<Cloud>, cluster: &Arc<Cluster>) -> Result<Rig> {
    let fixture = Fixture::new(cluster.clone(), Accounts::new(), INITIALISED).await?;
    Rig::new(cloud.clone(), fixture).await
}

/// Returns the programs' requests to OpenStack since a mark of the proxy's log, by pattern.
fn calls(rig: &Rig, mark: usize) -> Counts {
    Counts(tally(&rig.cloud.proxy.log().since(mark)))
}

/// Requests by pattern, printed with their sum.
struct Counts(BTreeMap<String, usize>);

impl Counts {
    fn sum(&self) -> usize {
        self.0.values().sum()
    }

    /// Returns how many of a pattern.
    fn of(&self, pattern: &str) -> usize {
        self.0.get(pattern).copied().unwrap_or_default()
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.sum(), self.0)
    }
}

/// Registers nodes as their kubelets do, many at the same time.
async fn register(rig: &Rig, all: Vec<Value>) -> Result<()> {
    stream::iter(all)
        .map(|node| async move { nodes::register(&rig.client, &node).await })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

/// Returns initialised nodes of these servers.
fn initialised<'a>(
    servers: impl IntoIterator<Item = &'a ccm_tests::openstack::admin::Server>,
) -> Vec<Value> {
    let node = |server| {
        let mut node = fresh(server);
        node["spec"] = json!({"providerID": server.provider_id()});
        node
    };
    servers.into_iter().map(node).collect()
}

/// Returns the requests of a program to the API server after the first `mark` requests, by kind,
/// except those that keep the lease.
async fn requests(rig: &Rig, program: &str, mark: usize) -> Result<Vec<audit::Request>> {
    let all = rig.cluster.requests("").await?.into_iter().skip(mark);
    let user_agent = format!("{program}/");
    Ok(all
        .filter(|one| one.user_agent.starts_with(&user_agent) && one.resource != "leases")
        .collect())
}

/// Returns the time as it is printed.
fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
