//! Living kubelets, nodes marked for scale-down, approvals of a set, clouds without a list, and
//! machines that were replaced.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_cloud::{InstanceTraits, Wants};
use ccm_sim::{
    apiserver::{self, Action, Verb},
    faults::{Effect, Fault},
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::lifecycle::{CONFIRMATION, DELETION, quick};
use ccm_tests::nodes;
use ccm_tests::scenarios::{Env, LIFECYCLE_AGENT, SOON, past_grace, with_short_terms};

/// Merges this into a Lease, which is created if there is none.
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
    // Lookups and list deny it together, and its kubelet renews its Lease.
    env.lose("node-1").await?;
    for second in 1..12 {
        renew(&env, "node-1", second).await?;
        sleep(Duration::from_secs(1)).await;
        ensure!(nodes::names(&env.client).await?.contains("node-1"), "its kubelet lives");
    }
    nodes::event(&env.client, "node-1", "its kubelet has renewed its Lease", SOON).await?;
    nodes::gone(&env.client, "node-1", SOON).await
}

pub(super) async fn a_lease_that_cannot_be_read_keeps_its_node(env: Env) -> Result<()> {
    let _program = env.start(&quick(&env).arg("--kube-api-timeout=1s")).await?;
    fleet(&env, 6).await?;
    let faults = env.cluster.simulated().context("simulated")?.faults();
    let of_node_1 = |action: Action| {
        let fault = apiserver::Fault::new(action).user_agent(LIFECYCLE_AGENT);
        fault.verb(Verb::Get).resource("leases").name("node-1")
    };
    let status = |code: u16| Action::Status { code, retry_after: None };
    faults.add(of_node_1(status(403)));
    for name in ["node-1", "node-2"] {
        env.lose(name).await?;
    }
    nodes::gone(&env.client, "node-2", SOON).await?;
    for action in [status(500), Action::Stall] {
        nodes::stay(&env.client, &["node-1"], DELETION).await?;
        faults.clear();
        faults.add(of_node_1(action));
    }
    nodes::stay(&env.client, &["node-1"], DELETION).await?;
    let why = "the Lease of its kubelet could not be read";
    nodes::event(&env.client, "node-1", why, SOON).await?;
    // A Lease without a time: its version says that the kubelet writes it.
    lease(&env, "kube-node-lease", "node-1", json!({"spec": {"leaseTransitions": 0}})).await?;
    faults.clear();
    for number in 1..8 {
        let content = json!({"spec": {"leaseTransitions": number}});
        lease(&env, "kube-node-lease", "node-1", content).await?;
        sleep(Duration::from_secs(1)).await;
        ensure!(nodes::names(&env.client).await?.contains("node-1"), "its kubelet lives");
    }
    nodes::event(&env.client, "node-1", "its kubelet has renewed its Lease", SOON).await?;
    nodes::gone(&env.client, "node-1", SOON).await
}

pub(super) async fn nodes_marked_for_scale_down_need_no_budget(env: Env) -> Result<()> {
    let _program = env.start(&quick(&env).arg("--node-deletion-budget=1")).await?;
    fleet(&env, 10).await?;
    let taint = json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
    let gone = names(8);
    for name in &gone {
        nodes::patch(&env.client, name, json!({"spec": {"taints": taint}})).await?;
    }
    let start = Instant::now();
    for name in &gone {
        env.lose(name).await?;
    }
    for name in &gone {
        nodes::gone(&env.client, name, 2 * SOON).await?;
    }
    ensure!(start.elapsed() >= CONFIRMATION, "without confirmation");
    nodes::stay(&env.client, &["node-8", "node-9"], DELETION).await
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

pub(super) async fn a_cloud_without_a_list_needs_witnesses(env: Env) -> Result<()> {
    let no_list = InstanceTraits { lists: false, wants: Wants::default(), ..Default::default() };
    env.cloud().set_traits(no_list);
    let _program = env.start(&quick(&env)).await?;
    fleet(&env, 6).await?;
    let start = Instant::now();
    env.lose("node-1").await?;
    nodes::gone(&env.client, "node-1", 2 * SOON).await?;
    let took = start.elapsed();
    ensure!(took >= 3 * CONFIRMATION, "three answers take three periods, not {took:?}");
    ensure!(env.cloud().calls().list == 0, "it was listed");
    // Another project: no witness is found.
    env.cloud().faults().add(Fault::new(Effect::WrongProject));
    nodes::set_ready(&env.client, "node-2", "Unknown").await?;
    nodes::event(&env.client, "node-2", "NodeDeletionHeld", 2 * SOON).await?;
    nodes::stay(&env.client, &["node-2"], DELETION).await
}

pub(super) async fn a_replaced_machine_is_reported_and_deleted_if_wanted(env: Env) -> Result<()> {
    let file = env.path("lifecycle-ccm.yaml");
    std::fs::write(&file, "replaced_nodes: report\n")?;
    let launch = with_short_terms(quick(&env).arg(format!("--config={}", file.display())));
    let program = env.start(&launch).await?;
    fleet(&env, 6).await?;
    let machine = |uuid: &str| json!({"status": {"nodeInfo": {"systemUUID": uuid}}});
    nodes::patch_status(&env.client, "node-1", machine("uuid-1")).await?;
    env.cloud().remove(&nodes::instance("node-1").id);
    nodes::patch_status(&env.client, "node-1", machine("uuid-2")).await?;
    nodes::event(&env.client, "node-1", "NodeReplaced", 3 * SOON).await?;
    let deleted = env.node_writes(LIFECYCLE_AGENT).await?;
    ensure!(deleted.is_empty(), "it is only reported: {deleted:?}");
    // The next leader has not seen another system UUID: the Lease hands it over.
    sleep(Duration::from_secs(3)).await;
    drop(program);
    let _program = env.start(&launch).await?;
    std::fs::write(&file, "replaced_nodes: delete\n")?;
    nodes::gone(&env.client, "node-1", 4 * SOON).await?;
    nodes::stay(&env.client, &["node-0", "node-2"], Duration::from_secs(1)).await
}
