//! A node keeps following its server.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::{
    fixture::past_grace,
    nodes,
    openstack::rig::{Rig, SOON},
};

pub(super) async fn a_node_follows_its_server(rig: &Rig) -> Result<()> {
    let _program = rig.start(&rig.node_ccm().arg("--node-status-update-frequency=10s")).await?;
    let server = rig.server("changing").await?;
    rig.register(&server).await?;
    rig.initialised(&server.name).await?;

    let floating = rig.cloud.user.add_floating_ip(&server.id).await?;
    let external = format!("ExternalIP={}", floating.address);
    nodes::wait_for(&rig.client, &server.name, "its floating IP shown", 2 * SOON, |node| {
        nodes::addresses(node).contains(&external)
    })
    .await?;

    rig.cloud.user.resize_server(&server.id, "m1.large").await?;
    rig.cloud.user.delete_floating_ip(&floating.id).await?;
    let node =
        nodes::wait_for(&rig.client, &server.name, "resized, without IP", 2 * SOON, |node| {
            nodes::label(node, "node.kubernetes.io/instance-type") == Some("m1.large")
                && !nodes::addresses(node).contains(&external)
        })
        .await?;
    let kept =
        server.fixed.iter().all(|ip| nodes::addresses(&node).contains(&format!("InternalIP={ip}")));
    ensure!(kept, "its own address stays: {:?}", nodes::addresses(&node));
    ensure!(!nodes::is_tainted(&node), "and it stays initialised");
    rig.cloud.user.delete_server(&server.id).await
}

/// Waits until the node has the taint of a machine that is shut down, or does not have it any more.
pub(super) async fn tainted(rig: &Rig, name: &str, wanted: bool) -> Result<()> {
    let what = if wanted { "tainted as shut down" } else { "no longer tainted as shut down" };
    nodes::wait_for(&rig.client, name, what, SOON, |node| {
        nodes::has_taint(node, nodes::SHUTDOWN) == wanted
    })
    .await?;
    Ok(())
}

pub(super) async fn a_node_is_shut_down_started_and_deleted_with_its_server(
    rig: &Rig,
) -> Result<()> {
    let server = rig.server("mortal").await?;
    let _program = rig.start(&rig.lifecycle_ccm()).await?;
    let fleet: Vec<_> = rig.cloud.fleet.iter().chain([&server]).collect();
    rig.register_initialised(&fleet).await?;
    past_grace().await;

    rig.cloud.user.stop_server(&server.id).await?;
    nodes::set_ready(&rig.client, &server.name, "Unknown").await?;
    tainted(rig, &server.name, true).await?;
    rig.cloud.user.start_server(&server.id).await?;
    tainted(rig, &server.name, false).await?;

    rig.cloud.user.delete_server(&server.id).await?;
    nodes::gone(&rig.client, &server.name, SOON).await?;
    let left: Vec<_> = rig.cloud.fleet.iter().map(|server| server.name.as_str()).collect();
    nodes::stay(&rig.client, &left, Duration::from_secs(1)).await
}
