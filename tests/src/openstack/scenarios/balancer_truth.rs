//! Services show what Octavia has.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::poll;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    nodes,
    openstack::{
        balancing::{
            Calls, add_node, add_nodes, all_have_addresses, delete_all, have_member, id_of,
            provisioned, service, service_ccm,
        },
        rig::{Rig, SOON},
    },
    services,
};

/// The maximum time until a change of a node or a label reaches the members.
const MEMBERS: Duration = Duration::from_secs(15);
/// The label that excludes a node from load balancers.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The number of Services of an upgrade, unless `QUARTET_SERVICES` sets it.
const SERVICES: usize = 10;
/// How long a leader takes to leave its knowledge to the next one, and some more.
const QUIET: Duration = Duration::from_secs(8);

/// Waits until the condition `LoadBalancerServing` of the Service has this status and reason.
async fn serving(rig: &Rig, name: &str, status: &str, reason: &str) -> Result<()> {
    let wanted = Some((status.to_owned(), reason.to_owned()));
    let is = |one: &_| services::condition(one, "LoadBalancerServing") == wanted;
    services::wait_for(&rig.client, name, reason, SOON, is).await.map(drop)
}

pub(super) async fn services_older_than_the_first_node_get_its_members(rig: &Rig) -> Result<()> {
    rig.balance().await?;
    let program = rig.start(&service_ccm(rig)).await?;
    let names = ["early".to_owned(), "single".to_owned()];
    for name in &names {
        services::create(&rig.client, &service(name, 2)).await?;
    }
    all_have_addresses(rig, &names, Instant::now(), 2 * SOON).await?;
    let mut balancers = Vec::new();
    for name in &names {
        serving(rig, name, "False", "NoMembers").await?;
        balancers.push(id_of(rig, name).await?);
    }
    // The only node must not be a member at first.
    let node = add_node(rig, 1).await?;
    nodes::patch(&rig.client, &node, json!({"metadata": {"labels": {EXCLUDED: ""}}})).await?;
    sleep(MEMBERS).await;
    nodes::patch(&rig.client, &node, json!({"metadata": {"labels": {EXCLUDED: null}}})).await?;
    let start = Instant::now();
    have_member(rig, &balancers, &node, 2 * SOON).await?;
    let took = start.elapsed();
    eprintln!(
        "Services older than the first node: members of all pools after {:.1} s (wanted: 15 s)",
        took.as_secs_f64()
    );
    for name in &names {
        serving(rig, name, "True", "Serving").await?;
    }
    ensure!(took <= MEMBERS, "{took:?}");
    delete_all(rig, &names, 2 * SOON).await?;
    program.terminate().await.map(drop)
}

pub(super) async fn local_traffic_is_checked(rig: &Rig) -> Result<()> {
    rig.balance().await?;
    add_nodes(rig, 2).await?;
    let program = rig.start(&service_ccm(rig)).await?;
    let mut local = service("local", 2);
    local["spec"]["externalTrafficPolicy"] = "Local".into();
    let names = ["local".to_owned(), "cluster".to_owned()];
    services::create(&rig.client, &local).await?;
    services::create(&rig.client, &service("cluster", 1)).await?;
    all_have_addresses(rig, &names, Instant::now(), 2 * SOON).await?;
    for name in &names {
        provisioned(rig, name, 2 * SOON).await?;
    }
    has_monitors(rig, "local").await?;
    // A Service that changes gets monitors too.
    let change = json!({"spec": {"externalTrafficPolicy": "Local"}});
    services::patch(&rig.client, "cluster", change).await?;
    poll::until("monitors of a Service that changes", 2 * SOON, || async {
        sleep(Duration::from_millis(500)).await;
        Ok(has_monitors(rig, "cluster").await.ok())
    })
    .await?;
    delete_all(rig, &names, 2 * SOON).await?;
    program.terminate().await.map(drop)
}

/// Fails unless Octavia checks each pool of the Service at its health check node port.
async fn has_monitors(rig: &Rig, name: &str) -> Result<()> {
    let spec = services::get(&rig.client, name).await?.spec.context("a Service has a spec")?;
    let port = spec.health_check_node_port.context("no health check node port")?;
    let tree = rig.cloud.user.balancer_tree(&id_of(rig, name).await?).await?;
    let listeners = tree["listeners"].as_array().context("no listeners")?;
    let pools: Vec<&Value> =
        listeners.iter().flat_map(|one| one["pools"].as_array().into_iter().flatten()).collect();
    ensure!(!pools.is_empty(), "no pools: {tree}");
    for pool in pools {
        ensure!(pool["health_monitor"]["type"] == "HTTP", "no HTTP monitor: {pool}");
        let id = pool["id"].as_str().context("a pool has an ID")?;
        for member in rig.cloud.user.balancer_parts(&format!("pools/{id}/members")).await? {
            ensure!(member["monitor_port"] == port, "not checked at {port}: {member}");
        }
    }
    Ok(())
}

/// Upgrades from the service-ccm that `QUARTET_BEFORE` names, by default this build, to this build.
pub(super) async fn an_upgrade_changes_nothing(rig: &Rig) -> Result<()> {
    let variable = |name: &str| std::env::var(name).ok();
    let count = variable("QUARTET_SERVICES").and_then(|count| count.parse().ok());
    let count: usize = count.unwrap_or(SERVICES);
    let before = variable("QUARTET_BEFORE").map(PathBuf::from);
    rig.balance().await?;
    add_nodes(rig, 3).await?;
    let launch = match &before {
        Some(path) => service_ccm(rig).built_as(path),
        None => service_ccm(rig),
    };
    let program = rig.start(&launch).await?;
    let names: Vec<_> = (0..count).map(|number| format!("old-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let mut one = service(name, 1 + u16::try_from(number % 3)?);
        if number % 5 == 0 {
            one["spec"]["externalTrafficPolicy"] = "Local".into();
        }
        services::create(&rig.client, &one).await?;
    }
    let limit = SOON + Duration::from_secs(5) * u32::try_from(count)?;
    all_have_addresses(rig, &names, Instant::now(), limit).await?;
    for name in &names {
        provisioned(rig, name, limit).await?;
    }
    // The next leader reads less if this one has left the information that all members are as
    // wanted.
    sleep(QUIET).await;
    program.terminate().await?;

    let (mark, seen) = (rig.cloud.proxy.log().mark(), service_writes(rig).await?);
    let launch = service_ccm(rig).arg("--load-balancer-audit-period=10s");
    let program = rig.start(&launch).await?;
    sleep(Duration::from_secs(90)).await;
    let (calls, writes) = (Calls::since(rig, mark), service_writes(rig).await?);
    let news: BTreeMap<&String, usize> = writes
        .iter()
        .map(|(path, count)| (path, count - seen.get(path).copied().unwrap_or_default()))
        .filter(|(_, count)| *count > 0)
        .collect();
    eprintln!(
        "an upgrade from {} with {count} Services: {} writes to the cloud (wanted: 0), {} Services written, at most {} times (once): {:?}",
        before.map_or("this build".to_owned(), |path| path.display().to_string()),
        calls.writes,
        news.len(),
        news.values().max().copied().unwrap_or_default(),
        calls.by_pattern
    );
    ensure!(calls.writes == 0, "{calls:?}");
    ensure!(news.values().all(|count| *count == 1), "{news:?}");
    delete_all(rig, &names, limit).await?;
    program.terminate().await.map(drop)
}

/// Counts the writes of service-ccm to each Service.
async fn service_writes(rig: &Rig) -> Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    for request in rig.requests("service-ccm").await? {
        if request.is_write() && request.uri.contains("/services/") {
            *counts.entry(request.uri).or_default() += 1;
        }
    }
    Ok(counts)
}
