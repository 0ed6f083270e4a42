//! A kubelet writes false fields to its own Node.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use ccm_tests::scenarios::{Env, NODE_AGENT, SOON};
use ccm_tests::{cluster::Request, nodes};

const RACK: &str = "openstack.quartet.dev/rack";
const PCI: &str = "openstack.quartet.dev/pci";

/// Checks that the program has written nothing to this node.
async fn is_untouched(env: &Env, name: &str) -> Result<()> {
    let writes = env.node_writes(NODE_AGENT).await?;
    let touched: Vec<&Request> = writes.iter().filter(|request| request.name == name).collect();
    ensure!(touched.is_empty(), "{name} was written: {touched:?}");
    let node = nodes::get(&env.client, name).await?;
    ensure!(nodes::is_tainted(&node), "{name} keeps its taint");
    Ok(())
}

/// The cases are a machine that the cloud does not have, a typing error, and a machine whose name
/// got a domain.
pub(super) async fn the_id_of_another_machine_is_held(env: Env) -> Result<()> {
    let program = env.start(&env.node_ccm()).await?;
    let victim = env.add_node("node-1").await?;
    env.initialised("node-1").await?;
    let other = nodes::instance("node-2");
    env.cloud().add(other.clone());
    let (rogue, slip, renamed) = ("rogue", "slip", "node-1.example.com");
    for (name, instance) in [(rogue, &victim), (slip, &other), (renamed, &victim)] {
        let mut node = nodes::fresh(name);
        node["spec"]["providerID"] = json!(instance.provider_id().as_str());
        nodes::register(&env.client, &node).await?;
    }
    for (name, part) in [
        (rogue, "is the instance of node-1"),
        (slip, "neither the name nor the system UUID nor an address of the node agrees"),
        (renamed, "is the instance of node-1"),
    ] {
        nodes::event(&env.client, name, part, SOON).await?;
        is_untouched(&env, name).await?;
    }
    let held = program.metric("ccm_node_unconfirmed_identities_total{result=\"held\"}").await?;
    ensure!((held - 3.0).abs() < f64::EPSILON, "three nodes are counted, not {held}");

    // An honest node ends on its own, and no other node gets the ID that is free now.
    nodes::delete(&env.client, "node-1").await?;
    env.initialised(renamed).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    is_untouched(&env, rogue).await?;
    is_untouched(&env, slip).await
}

/// The policy `hold` and the budget are about the cloud.
pub(super) async fn addresses_of_a_kubelet_are_set_back_and_use_no_budget(env: Env) -> Result<()> {
    let launch = env.node_ccm().arg("--node-internal-ip-change=hold").arg("--node-change-budget=1");
    let program = env.start(&launch).await?;
    let names = ["node-1", "node-2", "node-3"];
    for name in names {
        env.add_node(name).await?;
        env.initialised(name).await?;
    }
    for name in names {
        let address = json!([{"type": "InternalIP", "address": "10.9.9.9"}]);
        nodes::patch_status(&env.client, name, json!({"status": {"addresses": address}})).await?;
    }
    for name in names {
        let own = format!("InternalIP={}", nodes::instance(name).addresses[0].address);
        nodes::wait_for(&env.client, name, "set back", SOON, |node| {
            nodes::addresses(node).first() == Some(&own)
        })
        .await?;
        nodes::event(&env.client, name, "10.9.9.9; the cloud returns", SOON).await?;
    }
    for gauge in ["ccm_brake_used", "ccm_brake_held"] {
        let value = program.metric(gauge).await?;
        ensure!(value.abs() < f64::EPSILON, "{gauge} is {value}");
    }
    Ok(())
}

/// The scheduler trusts these labels.
pub(super) async fn a_kubelet_forges_no_label_of_the_cloud(env: Env) -> Result<()> {
    let _program = env.start(&env.node_ccm()).await?;
    let mut instance = nodes::instance("node-1");
    instance.labels.insert(RACK.to_owned(), "r1".to_owned());
    env.cloud().add(instance);
    let mut node = nodes::fresh("node-1");
    for key in [RACK, PCI, "example.com/mine"] {
        node["metadata"]["labels"][key] = json!("forged");
    }
    nodes::register(&env.client, &node).await?;
    let node = env.initialised("node-1").await?;
    for (key, expect) in [(RACK, Some("r1")), (PCI, None), ("example.com/mine", Some("forged"))] {
        let value = nodes::label(&node, key);
        ensure!(value == expect, "{key} is {value:?}");
    }
    // It does not get them later either.
    let forged = json!({"metadata": {"labels": {RACK: "forged", PCI: "forged"}}});
    nodes::patch(&env.client, "node-1", forged).await?;
    nodes::wait_for(&env.client, "node-1", "as the cloud says", SOON, |node| {
        nodes::label(node, RACK) == Some("r1") && nodes::label(node, PCI).is_none()
    })
    .await?;
    Ok(())
}
