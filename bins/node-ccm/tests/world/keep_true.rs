//! A node keeps following its instance, and a restart costs nothing.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_cloud::{AddressKind, NodeAddress};
use ccm_sim::poll;
use serde_json::json;

use ccm_tests::scenarios::{Env, NODE_AGENT, SOON};
use ccm_tests::{cluster::Request, nodes};

pub(super) async fn a_changed_instance_changes_its_node(env: Env) -> Result<()> {
    let _program = env.start(&env.node_ccm().arg("--node-status-update-frequency=10s")).await?;
    let mut instance = env.add_node("node-1").await?;
    env.initialised("node-1").await?;

    instance.instance_type = Some("m1.huge".to_owned());
    instance.zone = Some("zone-9".to_owned());
    instance.addresses = vec![
        NodeAddress::new(AddressKind::InternalIp, "10.77.0.1"),
        NodeAddress::new(AddressKind::InternalIp, "fd00::77"),
    ];
    env.cloud().add(instance);
    let node = nodes::wait_for(&env.client, "node-1", "as its instance", 2 * SOON, |node| {
        nodes::label(node, "node.kubernetes.io/instance-type") == Some("m1.huge")
            && nodes::addresses(node).first().map(String::as_str) == Some("InternalIP=10.77.0.1")
    })
    .await?;
    ensure!(
        nodes::addresses(&node).contains(&"InternalIP=fd00::77".to_owned()),
        "both families: {:?}",
        nodes::addresses(&node)
    );
    for key in ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"] {
        ensure!(
            nodes::label(&node, key) == Some("zone-9"),
            "{key} is {:?}",
            nodes::label(&node, key)
        );
    }
    Ok(())
}

pub(super) async fn a_manually_edited_label_is_restored(env: Env) -> Result<()> {
    let _program = env.start(&env.node_ccm()).await?;
    let instance = env.add_node("node-1").await?;
    env.initialised("node-1").await?;
    let calls = env.cloud_calls();

    let edit = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "elsewhere", "example.com/mine": "kept"}}});
    nodes::patch(&env.client, "node-1", edit).await?;
    let node = nodes::wait_for(&env.client, "node-1", "zone put back", SOON, |node| {
        nodes::label(node, "topology.kubernetes.io/zone") == instance.zone.as_deref()
    })
    .await?;
    ensure!(
        nodes::label(&node, "example.com/mine") == Some("kept"),
        "what is not ours is left alone"
    );
    ensure!(
        env.cloud_calls() <= calls + 1,
        "putting a label back took {} cloud calls",
        env.cloud_calls() - calls
    );
    Ok(())
}

pub(super) async fn a_restart_writes_nothing_but_the_lease(mut env: Env) -> Result<()> {
    const NODES: usize = 100;
    let names: Vec<_> = (0..NODES).map(|number| format!("node-{number}")).collect();
    for name in &names {
        env.cloud().add(nodes::instance(name));
    }
    let program = env.start(&env.node_ccm()).await?;
    nodes::register_all(&env.client, names.iter().map(|name| nodes::fresh(name)).collect(), 16)
        .await?;
    nodes::all_initialised(&env.client, 4 * SOON).await?;
    nodes::event(&env.client, "node-99", "Synced", SOON).await?;
    let ended = program.terminate().await?;
    ensure!(ended.success(), "SIGTERM ends it well, not with {ended}");

    env.forget_requests().await?;
    let calls = env.cloud_calls();
    // Both ways to list are tested here. The first start reads pages.
    let launch = env.node_ccm().arg("--kube-api-streaming-lists");
    let program = env.start(&launch).await?;
    poll::until("a refresh of the fleet after the restart", SOON, || async {
        Ok((env.cloud_calls() > calls).then_some(()))
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let requests = env.requests(NODE_AGENT).await?;
    // One list is for the start. In a quiet cluster the leader needs another one as proof that its
    // store is current.
    let reads = reads_of_nodes(&requests);
    ensure!(matches!(reads, (0, 1 | 2)), "other than streamed lists: {requests:?}");
    let writes: Vec<_> = requests.into_iter().filter(Request::is_write).collect();
    let other: Vec<_> = writes
        .iter()
        .filter(|request| request.resource != "leases" && request.resource != "events")
        .collect();
    ensure!(other.is_empty(), "a restart wrote {other:?}");
    let about_nodes = nodes::events(&env.client, "node-99").await?;
    ensure!(about_nodes.len() == 1, "no event about a node that did not change: {about_nodes:?}");
    env.add_node("node-new").await?;
    env.initialised("node-new").await?;
    drop(program);
    Ok(())
}

/// Returns how many lists of nodes were read in pages, and how many were streamed. A list of one
/// node only reads the current version.
fn reads_of_nodes(requests: &[Request]) -> (usize, usize) {
    let count = |is_meant: fn(&Request) -> bool| {
        requests.iter().filter(|request| request.resource == "nodes" && is_meant(request)).count()
    };
    let pages = count(|request| request.verb == "list" && !request.uri.ends_with("limit=1"));
    (pages, count(|request| request.uri.contains("sendInitialEvents=true")))
}
