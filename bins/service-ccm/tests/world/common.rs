//! Helpers that these scenarios share.

use std::time::Duration;

use anyhow::{Context as _, Result};
use ccm_cloud::{ClusterId, Owner};
use ccm_sim::{cloud::balancers::SimBalancer, poll, program::Launch};
use ccm_tests::{
    cluster::Request,
    nodes,
    scenarios::{Env, with_short_terms},
    services,
};
use serde_json::json;

/// The user agent that all clients of service-ccm start with.
pub(crate) const AGENT: &str = "service-ccm/";

/// Returns a service-ccm for this cluster and cloud.
pub(crate) fn service_ccm(env: &Env) -> Launch {
    env.launch("service-ccm").arg("--provider-annotation-prefixes=sim/,sim-status/")
}

/// Returns a service-ccm with short terms, periods and time limits.
pub(crate) fn quick(env: &Env) -> Launch {
    quickly(service_ccm(env))
}

/// Configures this service-ccm with short terms, periods and time limits.
pub(crate) fn quickly(launch: Launch) -> Launch {
    with_short_terms(launch)
        .arg("--member-update-interval=2s")
        .arg("--load-balancer-audit-period=10s")
        .arg("--cloud-call-timeout=2s")
}

/// Configures this service-ccm to delete orphans as soon as two lists have shown them.
pub(crate) fn deletes_orphans(launch: Launch) -> Launch {
    launch.arg("--orphaned-load-balancers=delete").arg("--orphan-confirmation-period=1s")
}

/// The ID of the orphan.
pub(crate) const ORPHAN: &str = "orphan";

/// Adds a load balancer to the cloud that was made for a Service of this cluster that is gone.
pub(crate) async fn add_orphan(env: &Env) -> Result<()> {
    let cluster = services::cluster_uid(&env.client).await?;
    env.cloud().balancers().add(orphan(cluster, ORPHAN, 77));
    Ok(())
}

/// Adds several of them.
pub(crate) async fn add_orphans(env: &Env, count: usize) -> Result<()> {
    let cluster = services::cluster_uid(&env.client).await?;
    for number in (100..).take(count) {
        let id = format!("{ORPHAN}-{number}");
        env.cloud().balancers().add(orphan(cluster.clone(), &id, number));
    }
    Ok(())
}

fn orphan(cluster: String, id: &str, number: u8) -> SimBalancer {
    let mut orphan = SimBalancer::foreign(id, [192, 0, 2, number].into(), 80);
    orphan.owners.push(Owner {
        cluster: ClusterId { name: "kubernetes".to_owned(), uid: cluster },
        uid: format!("8a0e7a52-1f0c-4b1e-9a57-0d6c5b8f3{number:03}"),
        namespace: services::NAMESPACE.to_owned(),
        name: format!("gone-{number}"),
    });
    orphan
}

/// Registers an initialised node with an address.
pub(crate) async fn add_node(env: &Env, name: &str) -> Result<()> {
    let instance = nodes::instance(name);
    let mut node = nodes::initialised(name);
    let address = &instance.addresses[0].address;
    node["status"]["addresses"] = json!([
        {"type": "InternalIP", "address": address},
        {"type": "Hostname", "address": name},
    ]);
    env.cloud().add(instance);
    nodes::register(&env.client, &node).await
}

/// Returns the only load balancer of the Service of this name.
pub(crate) fn balancer(env: &Env, name: &str) -> Result<SimBalancer> {
    let key = format!("default/{name}");
    let mut all = env.cloud().balancers().all();
    all.retain(|balancer| balancer.owners.iter().any(|owner| owner.to_string() == key));
    anyhow::ensure!(all.len() < 2, "{} load balancers of {name}", all.len());
    all.pop().with_context(|| format!("no load balancer of {name}"))
}

/// Waits until the load balancer of the Service has these members.
pub(crate) async fn has_members(
    env: &Env,
    name: &str,
    nodes: &[&str],
    limit: Duration,
) -> Result<()> {
    let what = format!("load balancer of {name} to have the members {nodes:?}");
    poll::until(&what, limit, || async {
        let balancer = balancer(env, name)?;
        Ok(balancer.member_names().into_iter().eq(nodes.iter().copied()).then_some(()))
    })
    .await
    .with_context(|| format!("{:?}", balancer(env, name).map(|one| one.members)))
}

/// Returns the program's writes to Services since the scenario began.
pub(crate) async fn service_writes(env: &Env) -> Result<Vec<Request>> {
    let mut all = env.requests(AGENT).await?;
    all.retain(|request| request.is_write() && request.resource == "services");
    Ok(all)
}
