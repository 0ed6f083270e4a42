//! A server's ID has several spellings, and the node keeps its own.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::follow::tainted;
use crate::{
    fixture::past_grace,
    nodes,
    openstack::{
        admin::{Account, NewServer, REGION, Server},
        rig::{Rig, SOON, fresh},
    },
};

/// The ID of no server.
const NOBODY: &str = "0f0e0d0c-1111-4222-8333-00000000abcd";

/// A way to write the provider ID of a server.
type Spelling = fn(&Server) -> String;

const SPELLINGS: [(&str, Spelling); 3] = [
    ("spelt-upper", |server| format!("openstack:///{}", server.id.to_uppercase())),
    ("spelt-bare", |server| format!("/{}", server.id)),
    ("spelt-region", |server| format!("openstack://{REGION}/{}", server.id)),
];

/// Checks that the node has its provider ID still as it was written.
async fn is_spelt(rig: &Rig, server: &Server, wanted: &str) -> Result<()> {
    let node = nodes::get(&rig.client, &server.name).await?;
    let is = node.spec.and_then(|spec| spec.provider_id);
    ensure!(is.as_deref() == Some(wanted), "it was {wanted} and is {is:?}");
    Ok(())
}

pub(super) async fn every_spelling_leads_to_the_server(rig: &Rig) -> Result<()> {
    let new = SPELLINGS.map(|(name, _)| NewServer::named(name));
    let servers = rig.cloud.user.create_servers(&new).await?;
    let spelt: Vec<_> =
        servers.iter().zip(SPELLINGS).map(|(server, (_, spell))| (server, spell(server))).collect();
    let _node_ccm = rig.start(&rig.node_ccm()).await?;
    for (server, provider_id) in &spelt {
        let mut node = fresh(server);
        node["spec"]["providerID"] = provider_id.clone().into();
        nodes::register(&rig.client, &node).await?;
    }
    for (server, provider_id) in &spelt {
        let node = rig.initialised(&server.name).await?;
        let own = server.fixed.iter().map(|ip| format!("InternalIP={ip}"));
        let addresses = nodes::addresses(&node);
        ensure!(own.into_iter().all(|ip| addresses.contains(&ip)), "{provider_id}: {addresses:?}");
        is_spelt(rig, server, provider_id).await?;
    }

    let _lifecycle_ccm = rig.start(&rig.lifecycle_ccm()).await?;
    // These are other servers of the fleet, by which a list of it is recognised.
    rig.register_initialised(&[rig.fleet(0)?, rig.fleet(1)?]).await?;
    past_grace().await;
    for (server, _) in &spelt {
        rig.cloud.user.stop_server(&server.id).await?;
        nodes::set_ready(&rig.client, &server.name, "Unknown").await?;
    }
    for (server, provider_id) in &spelt {
        tainted(rig, &server.name, true).await?;
        is_spelt(rig, server, provider_id).await?;
    }
    for (server, _) in &spelt {
        rig.cloud.user.delete_server(&server.id).await?;
        nodes::gone(&rig.client, &server.name, SOON).await?;
    }
    Ok(())
}

pub(super) async fn another_regions_node_stays_where_no_region_is_named(rig: &Rig) -> Result<()> {
    rig.log_in_without_region(&Account::of("k8s"))?;
    let lost = rig.server("lost-here").await?;
    let program = rig.start(&rig.lifecycle_ccm()).await?;
    let fleet: Vec<_> = rig.cloud.fleet.iter().chain([&lost]).collect();
    rig.register_initialised(&fleet).await?;
    let elsewhere = "in-another-region";
    let mut node = nodes::fresh(elsewhere);
    node["spec"] = serde_json::json!({"providerID": format!("openstack://OtherRegion/{NOBODY}")});
    nodes::register(&rig.client, &node).await?;
    past_grace().await;

    nodes::set_ready(&rig.client, elsewhere, "Unknown").await?;
    rig.cloud.user.delete_server(&lost.id).await?;
    nodes::set_ready(&rig.client, &lost.name, "Unknown").await?;
    // One node can be deleted here, so the other one could be deleted as well.
    nodes::gone(&rig.client, &lost.name, SOON).await?;
    let stays = nodes::stay(&rig.client, &[elsewhere], Duration::from_secs(8)).await;
    stays.map_err(|error| error.context(program.log()))
}
