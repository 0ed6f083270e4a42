//! A standby with an old store takes over.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Result, ensure};
use ccm_sim::{cloud::routes::RouteWriteKind, poll};
use ccm_tests::{
    nodes,
    scenarios::{Env, SOON, takeover::Pair},
};

use crate::common::{
    AGENT, add_bare_nodes, delete_nodes, name, pod_cidrs, reachable, routes, shows, with_cidrs,
};

/// All blocks but one are given when the standby sees no more, and then the last one: it may give
/// none away, and may delete no route.
const NETWORK: &str = "10.244.0.0/22";
const SEEN: usize = 3;
const JOINS: usize = 3;
const LATE: usize = 4;

/// The pod CIDRs of all nodes that have some.
async fn given(env: &Env) -> Result<BTreeMap<String, Vec<String>>> {
    let mut all = BTreeMap::new();
    for number in 0..=JOINS {
        all.insert(name(number), pod_cidrs(env, &name(number)).await?);
    }
    let blocks: BTreeSet<_> = all.values().flatten().collect();
    ensure!(blocks.len() == all.len(), "a block was given twice: {all:?}");
    Ok(all)
}

pub(crate) async fn an_old_store_costs_no_route_and_no_pod_cidr(mut env: Env) -> Result<()> {
    env.cloud().router().configure(|settings| settings.traits.records_owner = true);
    add_bare_nodes(&env, 0..SEEN).await?;
    let mut pair = Pair::start(&env, "route-ccm", |env| with_cidrs(env, NETWORK)).await?;
    reachable(&env, 0..SEEN).await?;
    pair.silence();
    add_bare_nodes(&env, [JOINS]).await?;
    reachable(&env, [JOINS]).await?;
    let (before, table) = (given(&env).await?, routes(&env));
    env.forget_requests().await?;
    env.cloud().router().reset_writes();
    pair.take_over().await?;

    add_bare_nodes(&env, [LATE]).await?;
    nodes::event(&env.client, &name(LATE), "CIDRNotAvailable", SOON).await?;
    poll::always("the routes stay", Duration::from_secs(3), || async {
        let writes = env.cloud().router().writes();
        ensure!(routes(&env) == table && writes.is_empty(), "{writes:?}");
        Ok(())
    })
    .await?;
    ensure!(given(&env).await? == before, "{:?} were {before:?}", given(&env).await?);
    let mut writes = env.node_writes(AGENT).await?;
    writes.retain(|write| write.name != name(LATE));
    ensure!(writes.is_empty(), "{writes:?}");

    // The block of a node that goes is given after its grace time, and its route goes.
    delete_nodes(&env, [0]).await?;
    poll::until("the route of the deleted node to go", SOON, || async {
        Ok((env.cloud().router().written(RouteWriteKind::Delete) == 1).then_some(()))
    })
    .await?;
    shows(&env, &name(JOINS), "False", "RouteCreated").await?;
    Ok(())
}
