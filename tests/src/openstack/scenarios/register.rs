//! A node registers, and gets the properties of its server.

use anyhow::{Result, ensure};
use futures::future::try_join_all;

use crate::{
    nodes,
    openstack::{
        admin::REGION,
        proxy::tally,
        rig::{Rig, SOON},
    },
};

pub(super) async fn a_node_is_initialised_from_its_server(rig: &Rig) -> Result<()> {
    let _program = rig.start(&rig.node_ccm()).await?;
    let server = rig.fleet(1)?;
    rig.register(server).await?;
    let node = rig.initialised(&server.name).await?;
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
    ensure!(provider_id == Some(server.provider_id()), "provider ID {provider_id:?}");
    for (key, wanted) in [
        ("node.kubernetes.io/instance-type", "m1.small"),
        ("topology.kubernetes.io/zone", "zone-2"),
        ("topology.kubernetes.io/region", REGION),
    ] {
        let label = nodes::label(&node, key);
        ensure!(label == Some(wanted), "{key} is {label:?}, not {wanted}");
    }
    let addresses = nodes::addresses(&node);
    let mut wanted: Vec<_> = server.fixed.iter().map(|ip| format!("InternalIP={ip}")).collect();
    wanted.push(format!("Hostname={}", server.name));
    ensure!(addresses == wanted, "addresses are {addresses:?}, not {wanted:?}");
    nodes::event(&rig.client, &server.name, "Synced", SOON).await?;
    Ok(())
}

/// The number of nodes that register at once. One by one, each would cost a call to Nova and one to
/// Neutron, which is twice the bound.
const AT_ONCE: usize = 8;

pub(super) async fn nodes_at_once_cost_few_calls(rig: &Rig) -> Result<()> {
    let more = AT_ONCE - rig.cloud.fleet.len();
    let more = rig.cloud.user.crowd("at-once-", more).await?;
    let servers: Vec<_> = rig.cloud.fleet.iter().chain(&more).collect();
    let program = rig.start(&rig.node_ccm()).await?;
    let mark = rig.cloud.proxy.log().mark();
    try_join_all(servers.iter().map(|server| rig.register(server))).await?;
    nodes::all_initialised(&rig.client, SOON).await?;
    let counts = tally(&rig.cloud.proxy.log().since(mark));
    let logins = counts.keys().filter(|pattern| pattern.starts_with("identity")).count();
    ensure!(logins == 0, "the token already exists: {counts:?}");
    let calls: usize = counts.values().sum();
    eprint!("{calls} calls for {} nodes; ", servers.len());
    ensure!(calls <= servers.len(), "{calls} calls for {} nodes: {counts:?}", servers.len());
    let counted = program.metric("openstack_api_requests_total{").await?;
    ensure!(counted > 0.0, "requests to OpenStack are counted");
    rig.cloud.user.delete_servers(more.iter().map(|server| server.id.as_str())).await
}
