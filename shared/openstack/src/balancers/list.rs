//! Lists load balancers.

use std::{collections::BTreeSet, net::IpAddr};

use ccm_cloud::{CloudError, ClusterId, Depth, LoadBalancerList, Scope};
use ccm_openstack_client::{
    lbaas::{BalancerRow, Filter, Provisioning, Tree},
    network::{FloatingIp, FloatingIps},
};
use futures::{StreamExt as _, stream};
use tokio::time::Instant;

use super::{
    AT_ONCE, Context, current,
    memory::Verified,
    names,
    pools::{self, PortPool},
    view,
};

/// Lists load balancers: see [`LoadBalancers::list`](ccm_cloud::LoadBalancers::list).
pub async fn list(
    cx: Context<'_>,
    cluster: &ClusterId,
    scope: Scope,
    depth: Depth,
) -> Result<LoadBalancerList, CloudError> {
    let (began, tag) = (Instant::now(), names::tag(names::CLUSTER, &cluster.uid));
    let filter = match &scope {
        Scope::All => Filter::All,
        Scope::Cluster => Filter::Tags(&[&tag]),
        Scope::Ids(ids) => Filter::Ids(ids),
    };
    let listed = cx.octavia.balancers(filter, cx.call).await?;
    let mut rows = listed.rows;
    rows.retain(|row| row.provisioning_status != Provisioning::Deleted);
    if listed.malformed.is_empty() && !matches!(scope, Scope::Ids(_)) {
        let ids = rows.iter().map(|row| row.id.as_str()).collect();
        cx.memory.keep_only(&ids, began);
        cx.failures.keep_only(&ids);
    }
    for row in rows.iter().filter(|row| row.provisioning_status == Provisioning::Active) {
        cx.failures.forget(&row.id);
    }
    if matches!(scope, Scope::Cluster) {
        cx.pace.counted(rows.len());
    }
    let mut list = LoadBalancerList {
        load_balancers: rows.iter().map(|row| view::view(cx, row, cluster)).collect(),
        malformed: listed.malformed,
    };
    if depth == Depth::Members {
        look_below(cx, &rows, &mut list).await?;
    }
    Ok(list)
}

/// Adds the members, and withdraws the digest of what is not as it was. A load balancer whose
/// status cannot be read is not listed, and a line says so. Fails if no status can be read.
async fn look_below(
    cx: Context<'_>,
    rows: &[BalancerRow],
    list: &mut LoadBalancerList,
) -> Result<(), CloudError> {
    let verified: Vec<Option<Verified>> =
        rows.iter().map(|row| cx.memory.verified(&row.id)).collect();
    let floating = floating_of_verified(cx, rows, &verified);
    let trees: Vec<_> = rows.iter().map(|row| cx.octavia.tree(&row.id, cx.call)).collect();
    let trees = stream::iter(trees).buffered(AT_ONCE).collect::<Vec<_>>();
    let (floating, trees) = tokio::join!(floating, trees);
    let floating: Vec<FloatingIp> = floating?;
    if let Some(error) = trees.iter().find_map(|tree| tree.as_ref().err())
        && trees.iter().all(Result::is_err)
    {
        return Err(error.clone());
    }
    let mut turns = cx.pace.room();
    let summaries = std::mem::take(&mut list.load_balancers).into_iter();
    for (((row, mut balancer), tree), known) in rows.iter().zip(summaries).zip(trees).zip(verified)
    {
        let tree = match tree {
            Ok(tree) => tree,
            Err(error) => {
                list.malformed.push(format!("load balancer {}: {error}", row.id));
                continue;
            }
        };
        let tree = tree.unwrap_or_else(|| Tree {
            id: row.id.clone(),
            provisioning_status: Provisioning::Deleted,
            listeners: Vec::new(),
            pools: Vec::new(),
        });
        balancer.members = Some(current::nodes(&current::members(&tree)));
        // This withdraws the digest: the controller then calls ensure, which adds the monitors.
        let has_turn = turns > 0 && known.as_ref().is_some_and(|it| it.waits_for_monitors);
        turns = turns.saturating_sub(usize::from(has_turn));
        balancer.pools = known.as_ref().and_then(|known| {
            let count = |port: &PortPool| {
                let mut pools = current::pools(&tree).into_iter();
                pools.find(|pool| port.is(&pool.id, &pool.name)).map(|pool| pool.members.len())
            };
            pools::shown(&known.ports, count, known.why_empty.as_deref())
        });
        let address = |known: &Verified| known.address.filter(|_| known.floating);
        let is_whole = known.is_some_and(|known| {
            let is_whole =
                current::parts(&tree) == known.parts && current::failed(&tree).is_empty();
            stands(&floating, row, address(&known)) && is_whole
        });
        balancer.digest = balancer.digest.filter(|_| is_whole && !has_turn);
        list.load_balancers.push(balancer);
    }
    Ok(())
}

/// Reads the floating IPs of the load balancers that are known to have one.
async fn floating_of_verified(
    cx: Context<'_>,
    rows: &[BalancerRow],
    verified: &[Option<Verified>],
) -> Result<Vec<FloatingIp>, CloudError> {
    let is_external = |known: &Option<Verified>| known.as_ref().is_some_and(|it| it.floating);
    let external = rows.iter().zip(verified).filter(|(_, known)| is_external(known));
    let ports: BTreeSet<String> = external.filter_map(|(row, _)| row.vip_port_id.clone()).collect();
    if ports.is_empty() {
        return Ok(Vec::new());
    }
    let ports: Vec<String> = ports.into_iter().collect();
    cx.neutron.floating_ips(FloatingIps::Ports(&ports), cx.call).await
}

/// Returns true if the floating IP is still attached to the virtual address.
fn stands(floating: &[FloatingIp], row: &BalancerRow, address: Option<IpAddr>) -> bool {
    address.is_none_or(|address| {
        floating.iter().any(|ip| ip.address == address && ip.port_id == row.vip_port_id)
    })
}
