//! A standby with an old store takes over.

use std::{collections::BTreeSet, ops::Range, time::Duration};

use anyhow::{Result, ensure};
use ccm_sim::{cloud::routes::RouteWriteKind, poll};
use ccm_tests::{
    nodes,
    scenarios::{Env, SOON, takeover::Pair},
};

use crate::common::{
    AGENT, add_bare_nodes, delete_nodes, name, pod_cidrs, reachable, routes, with_cidrs,
};

/// A network of four blocks. The nodes that the standby has seen have three of them, the node that
/// joins then has the last one, and a late node does not get one.
const NETWORK: &str = "10.244.0.0/22";
const SEEN: Range<usize> = 0..3;
const JOINS: usize = 3;
const LATE: usize = 4;

/// Returns the pod CIDRs of the nodes, which have one each.
async fn given(env: &Env) -> Result<BTreeSet<String>> {
    poll::until("a pod CIDR for each node", SOON, || async {
        let (mut all, nodes) = (BTreeSet::new(), nodes::names(&env.client).await?);
        for name in &nodes {
            all.extend(pod_cidrs(env, name).await?);
        }
        ensure!(all.len() == nodes.len(), "{nodes:?} have {all:?}");
        Ok(Some(all))
    })
    .await
}

/// The cloud records the owner of a route. A route of a node that is not in the store is an orphan.
pub(crate) async fn an_old_store_costs_no_route(mut env: Env) -> Result<()> {
    env.cloud().router().configure(|settings| settings.records_owner = true);
    add_bare_nodes(&env, SEEN).await?;
    let mut pair = Pair::start(&env, "route-ccm", |env| with_cidrs(env, NETWORK)).await?;
    reachable(&env, SEEN).await?;
    pair.silence();
    add_bare_nodes(&env, [JOINS]).await?;
    reachable(&env, [JOINS]).await?;
    let (before, table) = (given(&env).await?, routes(&env));
    env.forget_requests().await?;
    env.cloud().router().reset_writes();
    pair.take_over().await?;

    poll::always("the routes stay", Duration::from_secs(3), || async {
        let writes = env.cloud().router().writes();
        ensure!(routes(&env) == table && writes.is_empty(), "{writes:?}");
        Ok(())
    })
    .await?;
    ensure!(given(&env).await? == before, "{:?} were {before:?}", given(&env).await?);
    let writes = env.node_writes(AGENT).await?;
    ensure!(writes.is_empty(), "{writes:?}");
    delete_nodes(&env, [0]).await?;
    poll::until("the route of the deleted node to go", SOON, || async {
        Ok((env.cloud().router().written(RouteWriteKind::Delete) == 1).then_some(()))
    })
    .await
}

/// Without routes, only the nodes show which blocks are assigned.
pub(crate) async fn an_old_store_gives_no_pod_cidr_twice(env: Env) -> Result<()> {
    add_bare_nodes(&env, SEEN).await?;
    let launch = |env: &Env| with_cidrs(env, NETWORK).arg("--configure-cloud-routes=false");
    let mut pair = Pair::start(&env, "route-ccm", launch).await?;
    given(&env).await?;
    pair.silence();
    add_bare_nodes(&env, [JOINS]).await?;
    let before = given(&env).await?;
    pair.take_over().await?;

    add_bare_nodes(&env, [LATE]).await?;
    let told = nodes::event(&env.client, &name(LATE), "CIDRNotAvailable", SOON).await;
    let late = pod_cidrs(&env, &name(LATE)).await?;
    ensure!(late.is_empty(), "{late:?} was given twice: {before:?}");
    told?;
    delete_nodes(&env, [LATE]).await?;
    ensure!(given(&env).await? == before, "{:?} were {before:?}", given(&env).await?);
    Ok(())
}
