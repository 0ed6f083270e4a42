//! Reads one load balancer with all that belongs to it.

use ccm_cloud::{CloudError, ErrorKind, Members, Owner, Traffic};
use ccm_openstack_client::{
    lbaas::{BalancerRow, Tree},
    network::{FloatingIp, FloatingIps},
};

use super::{
    Context, balancer_error,
    current::{self, Seen},
    differences::members_subnet,
    floating::{Elsewhere, Search},
    job::Job,
    local::decide,
    merge::{SeenMember, has_foreign},
    names,
    spec::{HTTP, Unasked},
};

/// Returns all that belongs to a load balancer.
pub async fn read(job: &Job<'_>, row: BalancerRow) -> Result<Seen, CloudError> {
    let cx = job.cx;
    let floating = floating_of(cx, &row);
    let (listeners, pools, tree, floating) = tokio::try_join!(
        cx.octavia.listeners(&row.id, cx.call),
        cx.octavia.pools(&row.id, cx.call),
        tree(cx, &row.id),
        floating,
    )?;
    let checked = pools.iter().filter(|pool| pool.healthmonitor_id.is_some());
    let checked: Vec<String> = checked.map(|pool| pool.id.clone()).collect();
    let monitors = cx.octavia.monitors(&checked, cx.call).await?;
    let members = current::members(&tree);
    let failing = current::failing(&tree);
    let mut seen = Seen { row, listeners, pools, monitors, members, failing, floating };
    // Members may still have a monitor port although the provider took back their monitors.
    let may_name = job.settings.local_checks.is_some() && decide(&seen, job) != Unasked::Kept;
    let checks_another_port = (job.settings.checks.is_some() || may_name)
        && matches!(job.wanted.front_end.traffic, Traffic::Local { .. });
    let compares_subnets = members_subnet(&job.settings).is_some();
    let needs_details: Vec<String> = seen
        .pools
        .iter()
        .filter(|pool| {
            // The members of a pool that will get its first monitor may have one, too.
            let is_http = || match seen.monitor_of(pool) {
                Some(monitor) => monitor.kind == HTTP,
                None => job.settings.checks.is_some(),
            };
            let foreign = || has_foreign(seen.members_of(&pool.id), &job.wanted.members);
            checks_another_port || compares_subnets || is_http() || foreign()
        })
        .map(|pool| pool.id.clone())
        .collect();
    for pool in needs_details {
        let members = details(cx, &pool).await?;
        seen.members.insert(pool, members);
    }
    Ok(seen)
}

/// Returns the members of a pool with all their fields.
pub async fn details(cx: Context<'_>, pool: &str) -> Result<Vec<SeenMember>, CloudError> {
    let rows = cx.octavia.members(pool, cx.call).await?;
    Ok(rows.into_iter().map(SeenMember::of_row).collect())
}

/// Returns the status tree of a load balancer that exists.
pub async fn tree(cx: Context<'_>, id: &str) -> Result<Tree, CloudError> {
    cx.octavia.tree(id, cx.call).await?.ok_or_else(|| {
        let what = format!("load balancer {id} was deleted in the meantime");
        balancer_error(ErrorKind::Busy, id, what)
    })
}

/// Returns the floating IPs that may be used.
pub async fn elsewhere(job: &Job<'_>, search: Search) -> Result<Elsewhere, CloudError> {
    let cx = job.cx;
    let mut elsewhere = Elsewhere::default();
    if let Some(address) = search.address {
        let found = cx.neutron.floating_ips(FloatingIps::Address(address), cx.call).await?;
        elsewhere.wished = found.into_iter().next();
    }
    if search.tags {
        elsewhere.tagged = floating_of_owner(cx, &job.wanted.front_end.owner).await?;
    }
    Ok(elsewhere)
}

/// Returns the floating IPs with the tags of an owner.
pub async fn floating_of_owner(
    cx: Context<'_>,
    owner: &Owner,
) -> Result<Vec<FloatingIp>, CloudError> {
    let tags = names::owner_tags(owner);
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    cx.neutron.floating_ips(FloatingIps::Tags(&tags), cx.call).await
}

/// Returns the floating IPs of a load balancer's virtual address.
pub async fn floating_of(
    cx: Context<'_>,
    row: &BalancerRow,
) -> Result<Vec<FloatingIp>, CloudError> {
    match &row.vip_port_id {
        Some(port) => {
            let port = std::slice::from_ref(port);
            cx.neutron.floating_ips(FloatingIps::Ports(port), cx.call).await
        }
        None => Ok(Vec::new()),
    }
}

/// Returns true if all fields of a pool's members must be known before they are written.
pub fn needs_details(members: &[SeenMember], change: &Members, is_http: bool) -> bool {
    let are_known = members.iter().all(|member| member.details.is_some());
    !are_known && (is_http || has_foreign(members, change))
}
