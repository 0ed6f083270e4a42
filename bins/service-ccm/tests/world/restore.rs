//! Services that come from a backup.

use anyhow::{Context as _, Result, ensure};
use ccm_sim::cloud::balancers::SimBalancer;
use ccm_tests::{
    cluster::client_as,
    rights::guard::OWNER,
    scenarios::{Env, SOON},
    services::{self, FINALIZER, NAMESPACE, service},
};
use serde_json::{Value, json};

use crate::common::{add_node, balancer, quick};

/// Returns a Service in a backup, as Velero keeps it: without the fields that the API server sets
/// anew.
fn backup(mut all: Value, name: &str) -> Result<Value> {
    let metadata = &all["metadata"];
    let mut kept = json!({"name": name, "namespace": NAMESPACE});
    for part in ["annotations", "labels", "finalizers"] {
        kept[part] = metadata[part].clone();
    }
    all["metadata"] = kept;
    let spec = all["spec"].as_object_mut().context("a Service has a spec")?;
    spec.retain(|part, _| !["clusterIP", "clusterIPs"].contains(&&**part));
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        port.as_object_mut().context("a port")?.remove("nodePort");
    }
    Ok(all)
}

/// The owner of a namespace restores it while the Services of the backup exist, and again when they
/// are gone. Each Service gets its own load balancer, and no Service loses one.
pub(crate) async fn a_namespace_is_restored_by_its_owner(env: Env) -> Result<()> {
    let client = &env.client;
    let owner = client_as(env.cluster.kubeconfig(), OWNER).await?;
    add_node(&env, "node-0").await?;
    let leader = env.start(&quick(&env)).await?;
    let mut backups = Vec::new();
    for name in ["web", "api"] {
        services::create(client, &service(name)).await?;
        services::address(client, name, SOON).await?;
        let shown = serde_json::to_value(services::get(client, name).await?)?;
        let copy = backup(shown.clone(), &format!("copy-{name}"))?;
        backups.push((name, backup(shown, name)?, copy));
    }
    let before = ["web", "api"].map(|name| balancer(&env, name));
    for (name, _, copy) in &backups {
        let annotations = &copy["metadata"]["annotations"];
        ensure!(annotations.to_string().contains("quartet.dev/load-balancer-id"), "{annotations}");
        ensure!(copy["metadata"]["finalizers"][0] == FINALIZER, "{copy}");
        let made = services::create(&owner, copy).await?;
        ensure!(services::addresses(&made).is_empty(), "a status is nobody's to bring");
        let name = format!("copy-{name}");
        services::address(client, &name, SOON).await.with_context(|| leader.log())?;
        balancer(&env, &name)?;
    }
    let now = ["web", "api"].map(|name| balancer(&env, name));
    for (before, now) in before.into_iter().zip(now) {
        ensure!(is_same(&before?, &now?), "a load balancer was changed by a copy");
    }
    ensure!(env.cloud().balancers().all().len() == 4, "four Services");

    for (name, ..) in &backups {
        services::delete(&owner, name).await?;
        services::gone(client, name, SOON).await?;
    }
    for (name, backup, _) in &backups {
        services::create(&owner, backup).await?;
        services::address(client, name, SOON).await.with_context(|| leader.log())?;
        balancer(&env, name)?;
    }
    ensure!(env.cloud().balancers().all().len() == 4, "four Services again");
    Ok(())
}

fn is_same(before: &SimBalancer, now: &SimBalancer) -> bool {
    (&before.id, &before.addresses, &before.owners) == (&now.id, &now.addresses, &now.owners)
        && before.member_names() == now.member_names()
}
