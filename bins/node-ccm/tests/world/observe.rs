//! With `--mode=observe` the program decides like a leader, but writes nothing.

use anyhow::{Result, ensure};
use ccm_cloud::{AddressKind, NodeAddress};
use ccm_tests::{
    nodes,
    scenarios::{
        Env, NODE_AGENT,
        observe::{decided, due, observe, the_leader_does},
    },
};
use serde_json::json;

use super::leadership;

pub(super) async fn the_leaders_steps_are_the_plan_of_node_ccm(mut env: Env) -> Result<()> {
    let often = "--node-status-update-frequency=10s";
    // A freshly initialised node is correct except for the changes here.
    let settled = env.start(&env.node_ccm()).await?;
    for name in ["moved", "edited", "right"] {
        env.add_node(name).await?;
        env.initialised(name).await?;
    }
    settled.terminate().await?;
    for name in ["new-0", "new-1"] {
        env.add_node(name).await?;
    }
    let mut moved = nodes::instance("moved");
    moved.addresses = vec![NodeAddress::new(AddressKind::InternalIp, "10.77.0.1")];
    env.cloud().add(moved);
    let edit = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "elsewhere"}}});
    nodes::patch(&env.client, "edited", edit).await?;
    let mut foreign = nodes::fresh("foreign");
    foreign["spec"]["providerID"] = json!("elsewhere:///zone/i-1");
    nodes::register(&env.client, &foreign).await?;
    env.forget_requests().await?;

    let observer = observe(&env, env.node_ccm().arg(often)).await?;
    let page =
        decided(&observer, json!({"addresses": 3, "labels": 1, "taint": 2}), json!({})).await?;
    let names: Vec<_> = due(&page)?.into_keys().collect();
    ensure!(names == ["edited", "moved", "new-0", "new-1"], "{names:?}");
    let leader = leadership::quick(&env).arg(often);
    the_leader_does(&mut env, leader, NODE_AGENT, &observer, &page).await
}
