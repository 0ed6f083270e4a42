//! Living kubelets, nodes marked for scale-down, approvals of a set, clouds without a list, and
//! machines that were replaced.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::lifecycle::{DELETION, quick};
use ccm_tests::nodes;
use ccm_tests::scenarios::{Env, SOON, past_grace};

/// Merges this into a Lease, which is created if it does not exist.
async fn lease(env: &Env, namespace: &str, name: &str, content: Value) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(env.client.clone(), namespace);
    let mut lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}
    });
    for (key, value) in content.as_object().into_iter().flatten() {
        lease[key] = value.clone();
    }
    if leases.get_opt(name).await?.is_none() {
        leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    } else {
        leases.patch(name, &PatchParams::default(), &Patch::Merge(&lease)).await?;
    }
    Ok(())
}

async fn renew(env: &Env, node: &str, second: u64) -> Result<()> {
    let renewed = format!("2026-01-02T15:04:{:02}.000000Z", second % 60);
    lease(env, "kube-node-lease", node, json!({"spec": {"renewTime": renewed}})).await
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("node-{number}")).collect()
}

async fn fleet(env: &Env, count: usize) -> Result<()> {
    let names = names(count);
    env.add_initialised(&names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    past_grace().await;
    Ok(())
}

pub(super) async fn a_node_whose_kubelet_lives_is_kept(env: Env) -> Result<()> {
    let _program = env.start(&quick(&env)).await?;
    fleet(&env, 6).await?;
    renew(&env, "node-1", 0).await?;
    // Lookups and list both deny the machine, but its kubelet renews its Lease.
    env.lose("node-1").await?;
    for second in 1..12 {
        renew(&env, "node-1", second).await?;
        sleep(Duration::from_secs(1)).await;
        ensure!(nodes::names(&env.client).await?.contains("node-1"), "its kubelet lives");
    }
    nodes::event(&env.client, "node-1", "its kubelet has renewed its Lease", SOON).await?;
    nodes::gone(&env.client, "node-1", SOON).await
}

pub(super) async fn one_annotation_of_the_lease_approves_a_set(env: Env) -> Result<()> {
    let _program = env.start(&quick(&env).arg("--node-deletion-budget=0")).await?;
    fleet(&env, 8).await?;
    for name in ["node-0", "node-1"] {
        let pool = json!({"metadata": {"labels": {"pool": "batch"}}});
        nodes::patch(&env.client, name, pool).await?;
    }
    for name in ["node-0", "node-1", "node-2"] {
        env.lose(name).await?;
        nodes::event(&env.client, name, "NodeDeletionHeld", SOON).await?;
    }
    let annotations = json!({
        "quartet.dev/approved-selector": "pool=batch",
        "quartet.dev/approved-until": "2999-01-01T00:00:00Z",
    });
    lease(&env, "kube-system", "lifecycle-ccm", json!({"metadata": {"annotations": annotations}}))
        .await?;
    for name in ["node-0", "node-1"] {
        nodes::gone(&env.client, name, 2 * SOON).await?;
        nodes::event(&env.client, name, "by the approval on the Lease", SOON).await?;
    }
    nodes::stay(&env.client, &["node-2"], DELETION).await
}
