//! Names do not identify an instance.

use anyhow::{Result, ensure};
use tokio::time::{Duration, sleep};

use crate::{
    nodes,
    openstack::{
        admin::NewServer,
        rig::{Rig, SOON},
    },
};

fn provider_id(node: &k8s_openapi::api::core::v1::Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}

pub(super) async fn a_server_in_another_project_is_not_taken(rig: &Rig) -> Result<()> {
    let foreign = rig.cloud.other.new_server(&NewServer::named("namesake")).await?;
    let _program = rig.start(&rig.node_ccm()).await?;
    // Its kubelet does not report anything that identifies the server by its UUID.
    nodes::register(&rig.client, &nodes::fresh("namesake")).await?;
    sleep(Duration::from_secs(3)).await;
    let node = nodes::get(&rig.client, "namesake").await?;
    ensure!(nodes::is_tainted(&node) && provider_id(&node).is_none(), "another's server is taken");

    let own = rig.server("namesake").await?;
    let node = rig.initialised("namesake").await?;
    ensure!(provider_id(&node) == Some(&own.provider_id()), "{:?}", provider_id(&node));
    rig.cloud.user.delete_server(&own.id).await?;
    rig.cloud.other.delete_server(&foreign.id).await
}

pub(super) async fn two_servers_of_one_name_are_reported(rig: &Rig) -> Result<()> {
    let double = NewServer::named("double");
    let servers = rig.cloud.user.create_servers(&[double.clone(), double.zone("zone-2")]).await?;
    let [first, second] = servers.as_slice() else { anyhow::bail!("two were asked for") };
    let _program = rig.start(&rig.node_ccm()).await?;
    nodes::register(&rig.client, &nodes::fresh("double")).await?;
    let told = nodes::event(&rig.client, "double", "conflict", SOON).await?;
    for server in [first, second] {
        ensure!(told.contains(&server.id), "it names both servers: {told}");
    }
    ensure!(nodes::is_tainted(&nodes::get(&rig.client, "double").await?), "nothing is guessed");

    rig.cloud.user.delete_server(&first.id).await?;
    let node = rig.initialised("double").await?;
    ensure!(provider_id(&node) == Some(&second.provider_id()), "{:?}", provider_id(&node));
    rig.cloud.user.delete_server(&second.id).await
}
