//! Nodes get their pod CIDRs from this program.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, ensure};
use ccm_sim::{
    cloud::Operation,
    faults::{Fault, FaultEffect},
    poll,
    program::Signal,
};
use ccm_tests::{
    cluster::Request,
    nodes,
    scenarios::{Env, SOON},
};
use serde_json::json;
use tokio::time::sleep;

use crate::common::{
    AGENT, add_bare_nodes, address, delete_nodes, name, pod_cidrs, reachable, routes, shows,
    with_cidrs, writes_to,
};

/// A node registers, gets its pod CIDR, its route and its condition: two writes.
pub(crate) async fn a_node_gets_its_cidr_its_route_and_its_condition(mut env: Env) -> Result<()> {
    const NODES: usize = 10;
    add_bare_nodes(&env, 0..4).await?;
    let leader = env.start(&with_cidrs(&env, "10.244.0.0/16")).await?;
    add_bare_nodes(&env, 4..NODES).await?;
    reachable(&env, 0..NODES).await?;
    let mut given = BTreeSet::new();
    for number in 0..NODES {
        let name = name(number);
        let cidrs = pod_cidrs(&env, &name).await?;
        let [cidr] = &*cidrs else { anyhow::bail!("{name} has {cidrs:?}") };
        let target = routes(&env).remove(cidr);
        ensure!(target == Some(address(&name).to_string()), "{cidr} leads to {target:?}");
        given.insert(cidr.clone());
        let writes: Vec<_> = writes_to(&env, &name).await?.iter().map(Request::what).collect();
        ensure!(writes == ["patch nodes", "patch nodes/status"], "{name}: {writes:?}");
    }
    ensure!(given.len() == NODES && routes(&env).len() == NODES, "{given:?}");

    // The next leader does not write anything, and does not give out any of these blocks again.
    ensure!(leader.terminate().await?.success(), "it ends in order");
    env.forget_requests().await?;
    env.cloud().router().reset_writes();
    delete_nodes(&env, [0]).await?;
    let _leader = env.start(&with_cidrs(&env, "10.244.0.0/16")).await?;
    add_bare_nodes(&env, [NODES]).await?;
    reachable(&env, [NODES]).await?;
    let cidrs = pod_cidrs(&env, &name(NODES)).await?;
    ensure!(!given.contains(&cidrs[0]), "{cidrs:?} was given to another node");
    let written = env.node_writes(AGENT).await?;
    ensure!(written.iter().all(|write| write.name == name(NODES)), "{written:?}");
    Ok(())
}

/// The leader freezes while nodes register and its calls are under way. When it wakes, another one has led.
pub(crate) async fn a_frozen_leader_gives_no_block_twice(env: Env) -> Result<()> {
    const NODES: usize = 20;
    const GONE: usize = 3;
    let slow = FaultEffect::Latency(Duration::from_millis(500));
    env.cloud().faults().add(Fault::new(slow).on(Operation::ApplyRoutes));
    let mut leader = env.start(&with_cidrs(&env, "10.244.0.0/16")).await?;
    let standby = env.start_standby(&with_cidrs(&env, "10.244.0.0/16")).await?;
    add_bare_nodes(&env, 0..NODES / 2).await?;
    leader.signal(Signal::STOP)?;
    add_bare_nodes(&env, NODES / 2..NODES).await?;
    delete_nodes(&env, [GONE]).await?;
    standby.leading(2 * SOON).await?;
    let left = || (0..NODES).filter(|number| *number != GONE);
    reachable(&env, left()).await?;
    let writes = env.node_writes(AGENT).await?.len();
    leader.signal(Signal::CONT)?;
    let ended = leader.wait(SOON).await?;
    ensure!(ended.code() == Some(1), "the deposed leader ends with 1, not with {ended}");
    poll::until("the route of the node that is gone to go", SOON, || async {
        Ok((routes(&env).len() == NODES - 1).then_some(()))
    })
    .await?;
    // The writes that it was sending when it froze arrive now, and are refused because others have
    // written these nodes.
    let mut more = env.node_writes(AGENT).await?.split_off(writes);
    more.retain(|write| !matches!(write.code, 404 | 409));
    ensure!(more.is_empty(), "something more was stored: {more:?}");
    for number in left() {
        let cidrs = pod_cidrs(&env, &name(number)).await?;
        let target = routes(&env).remove(&cidrs[0]);
        ensure!(target == Some(address(&name(number)).to_string()), "{cidrs:?}: {target:?}");
    }
    Ok(())
}

/// With two blocks, the third node gets an event but no block. Another client gives it one. Then
/// others get the blocks of the second node, as from another allocator.
pub(crate) async fn a_full_range_and_another_allocator_are_reported(env: Env) -> Result<()> {
    let leader = env.start(&with_cidrs(&env, "10.244.0.0/23")).await?;
    add_bare_nodes(&env, 0..2).await?;
    reachable(&env, 0..2).await?;
    add_bare_nodes(&env, [2]).await?;
    let why = shows(&env, &name(2), "True", "NoRouteCreated").await?;
    ensure!(why.contains("10.244.0.0/23"), "{why}");
    nodes::event(&env.client, &name(2), "CIDRNotAvailable", SOON).await?;
    ensure!(pod_cidrs(&env, &name(2)).await?.is_empty(), "no block is free");

    let theirs = |cidr: &str| json!({"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}});
    nodes::patch(&env.client, &name(2), theirs("10.99.0.0/24")).await?;
    let event = nodes::event(&env.client, &name(2), "ForeignPodCIDR", SOON).await?;
    ensure!(event.contains("--allocate-node-cidrs"), "{event}");
    ensure!(leader.metric("ccm_ipam_stopped").await?.abs() < 0.5, "it has stopped");

    add_bare_nodes(&env, 3..5).await?;
    let taken = pod_cidrs(&env, &name(1)).await?;
    for number in 3..5 {
        nodes::event(&env.client, &name(number), "CIDRNotAvailable", SOON).await?;
        nodes::patch(&env.client, &name(number), theirs(&taken[0])).await?;
    }
    let event = nodes::event(&env.client, &name(4), "AnotherCIDRAllocator", SOON).await?;
    ensure!(event.contains("--allocate-node-cidrs"), "{event}");
    poll::until("the page to say so", SOON, || async {
        let page = leader.get("/readyz?verbose").await?.1;
        Ok(page.contains("another allocator").then_some(()))
    })
    .await?;
    ensure!((leader.metric("ccm_ipam_stopped").await? - 1.0).abs() < 0.5, "it does not say so");
    // Routes are still made and removed.
    delete_nodes(&env, [0]).await?;
    poll::until("the route of the deleted node to go", SOON, || async {
        Ok((routes(&env).len() == 1).then_some(()))
    })
    .await?;
    sleep(Duration::from_secs(1)).await;
    ensure!(pod_cidrs(&env, &name(1)).await?.len() == 1, "it keeps its own");
    Ok(())
}

/// Without routes the cloud is not called, whatever it offers.
pub(crate) async fn without_routes_no_call_is_made(env: Env) -> Result<()> {
    let launch = with_cidrs(&env, "10.244.0.0/16").arg("--configure-cloud-routes=false");
    let _leader = env.start(&launch).await?;
    add_bare_nodes(&env, 0..5).await?;
    for number in 0..5 {
        poll::until("a pod CIDR", SOON, || async {
            Ok((pod_cidrs(&env, &name(number)).await?.len() == 1).then_some(()))
        })
        .await?;
    }
    sleep(Duration::from_secs(2)).await;
    ensure!(env.cloud().calls().total() == 0, "{}", env.cloud().calls());
    ensure!(routes(&env).is_empty(), "{:?}", routes(&env));
    let writes = env.node_writes(AGENT).await?;
    ensure!(writes.len() == 5, "one write for each node: {writes:?}");
    Ok(())
}
