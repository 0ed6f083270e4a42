//! A list of the project takes longer than the time limit of a call.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;

use crate::{
    fixture::past_grace,
    nodes,
    openstack::{
        Service,
        admin::{Account, Server},
        proxy::{Effect, Fault, tally},
        rig::{Rig, SOON},
    },
};

/// The servers of the project; eleven pages and one that is empty.
const SERVERS: usize = 110;
const PAGE: usize = 10;
/// A whole list takes 48 s, and a call has 30 s.
const DELAY: Duration = Duration::from_secs(4);
/// The nodes among them.
const NODES: usize = 20;
/// A call that tries the list first, and one more.
const INITIALISED: Duration = Duration::from_secs(60);

pub(super) async fn nodes_of_a_list_that_is_too_long_are_initialised_and_judged(
    rig: &Rig,
) -> Result<()> {
    let servers = rig.cloud.other.crowd("long-", SERVERS).await?;
    rig.log_in_as(&Account::of("other"))?;
    let slow = Fault::new(Effect::SlowPages(PAGE, DELAY)).on(Service::Compute);
    rig.cloud.proxy.faults().add(slow.exactly("/v2.1/servers/detail"));
    let outcome = initialised_and_judged(rig, &servers).await;
    rig.cloud.proxy.faults().clear();
    rig.cloud.other.delete_servers(servers.iter().map(|server| server.id.as_str())).await?;
    outcome
}

async fn initialised_and_judged(rig: &Rig, servers: &[Server]) -> Result<()> {
    let nodes: Vec<_> = servers.iter().step_by(SERVERS / NODES).take(NODES).collect();
    let _node_ccm = rig.start(&rig.node_ccm()).await?;
    let lifecycle_ccm = rig.launch("lifecycle-ccm").arg("--node-grace-period=1s");
    let _lifecycle_ccm = rig.start(&lifecycle_ccm).await?;
    let mark = rig.cloud.proxy.log().mark();
    let start = tokio::time::Instant::now();
    try_join_all(nodes.iter().map(|server| rig.register(server))).await?;
    nodes::all_initialised(&rig.client, INITIALISED).await?;
    eprint!("{NODES} nodes initialised after {:.1?}; ", start.elapsed());
    let counts = tally(&rig.cloud.proxy.log().since(mark));
    let listed: usize = counts
        .iter()
        .filter(|(pattern, _)| pattern.contains("servers/detail"))
        .map(|(_, count)| count)
        .sum();
    ensure!(listed > 1, "the list was tried: {counts:?}");
    past_grace().await;

    let lost = nodes.first().copied().context("there are nodes")?;
    rig.cloud.other.delete_server(&lost.id).await?;
    for server in nodes.iter().take(8) {
        nodes::set_ready(&rig.client, &server.name, "Unknown").await?;
    }
    let start = tokio::time::Instant::now();
    nodes::gone(&rig.client, &lost.name, INITIALISED + SOON).await?;
    eprint!("the node of a deleted server was deleted after {:.1?}; ", start.elapsed());
    let left: Vec<_> = nodes.iter().skip(1).map(|server| server.name.as_str()).collect();
    nodes::stay(&rig.client, &left, Duration::from_secs(5)).await
}
