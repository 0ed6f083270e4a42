//! Changes members and nothing else: one pool per call.

use ccm_cloud::{CloudError, ErrorKind, IpFamily, MemberChange, MembersSet, Progress};
use ccm_openstack_client::lbaas::{BalancerRow, Child, Provisioning, TreePool};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Context,
    annotations::{self, Selector},
    balancer_error, current,
    error_source::refuses_subnet,
    find::{Rows, unknown},
    memory::{KnownPool, Pools},
    merge::{SeenMember, Shape, changed, usual_port},
    names, ownership,
    pools::{self, PortPool, Targets, why_none},
    read::{self, needs_details},
    spec::HTTP,
    steps::unchanged,
    view,
};

/// A change of the members of a load balancer.
struct Change<'a> {
    cx: Context<'a>,
    row: &'a BalancerRow,
    wanted: &'a MemberChange,
    selector: Selector,
    /// The pool of each port, as far as this process knows them.
    ports: Vec<PortPool>,
}

/// Changes one load balancer of [`set_members`](ccm_cloud::LoadBalancers::set_members). Needs only
/// the part of the configuration that says which nodes may be members.
pub async fn set_members(
    cx: Context<'_>,
    change: &MemberChange,
    rows: &Rows,
) -> Result<Progress<MembersSet>, CloudError> {
    let row = rows.get(&change.id)?.ok_or_else(|| unknown(&change.id))?;
    ownership::check(row, &change.owner)?;
    match row.provisioning_status {
        Provisioning::Active => {}
        Provisioning::Error | Provisioning::Deleted => {
            let what = format!("load balancer {} is in ERROR and is replaced first", row.id);
            return Err(balancer_error(ErrorKind::Unavailable, &row.id, what));
        }
        Provisioning::PendingDelete | Provisioning::Pending(_) => {
            return Ok(view::in_progress(row, Some("members follow")));
        }
    }
    cx.memory.change_verified(&row.id, |verified| verified.created = None);
    let ports = cx.memory.verified(&row.id).map(|known| known.ports).unwrap_or_default();
    let selector = annotations::selector(&change.settings, &cx.config);
    let change = Change { cx, row, wanted: change, selector, ports };
    let mut pools = match cx.memory.pools(&row.id) {
        Some(pools) => pools,
        None => pools(&change).await?,
    };
    let count = pools.by_id.len();
    let ids: Vec<String> = pools.by_id.keys().cloned().collect();
    let names_any = !change.wanted.members.present.is_empty();
    let mut not_seen = missing(row, &pools, &change.ports).filter(|_| names_any);
    for (number, id) in ids.iter().enumerate() {
        let which = format!("pool {} of {count}", number + 1);
        let line = match set_pool(&change, id, &mut pools).await? {
            PoolResult::Changed(how) => format!("members of {which}{how}"),
            PoolResult::Same => continue,
            PoolResult::NotSeen => {
                let why = format!("{which} has no member that shows its port");
                not_seen = not_seen.or(names_any.then_some(why));
                continue;
            }
        };
        return Ok(Progress::InProgress(view::after_change(row, line)));
    }
    cx.memory.forget_pools(&row.id);
    if let Some(why) = not_seen {
        return Ok(Progress::NotSeen(why));
    }
    Ok(Progress::Done(members_set(&change, &pools)))
}

/// Returns the answer if no pool differs.
fn members_set(
    Change { cx, row, wanted, selector, ports }: &Change<'_>,
    pools: &Pools,
) -> MembersSet {
    let why_empty = why_none(&wanted.members, selector, family(row));
    let count = |port: &PortPool| {
        let pool = pools.by_id.iter().find(|(id, pool)| port.is(id, &pool.name));
        pool.map(|(_, pool)| pool.members.len())
    };
    let shown = pools::shown(ports, count, why_empty.as_deref());
    cx.memory.change_verified(&row.id, |verified| verified.why_empty = why_empty);
    let version = row.updated_at.clone().or_else(|| row.created_at.clone());
    MembersSet { version, changed: false, pools: shown }
}

/// Changes the members of one pool.
async fn set_pool(
    change: &Change<'_>,
    id: &str,
    pools: &mut Pools,
) -> Result<PoolResult, CloudError> {
    let Change { cx, row, wanted: change, selector, ports } = change;
    let given = annotations::member_subnet(&change.settings, &cx.config);
    let own = row.vip_subnet_id.as_deref();
    let subnet = given.as_ref().map(|given| &*given.value).or(own);
    let Some(pool) = pools.by_id.get_mut(id) else { return Ok(PoolResult::NotSeen) };
    let port = ports.iter().find(|port| port.is(id, &pool.name));
    let differing = |members: &[SeenMember], subnet: Option<&str>| {
        let Targets { port, monitor_port } = targets(members, port)?;
        let shape = Shape { port, family: family(row), selector, subnet, monitor_port };
        changed(members, &change.members, shape)
    };
    // An empty pool does not show the port of its members, so the process must have compared it
    // earlier.
    let same = |members: &[SeenMember]| match members.is_empty() && port.is_none() {
        true => PoolResult::NotSeen,
        false => PoolResult::Same,
    };
    let Some(mut wanted) = differing(&pool.members, subnet) else {
        return Ok(same(&pool.members));
    };
    if pool.is_left_pending {
        pool.is_left_pending = false;
        cx.octavia.update_child(Child::Pool, id, unchanged(&pool.name), cx.call).await?;
        cx.memory.keep_pools(&row.id, pools.clone());
        return Ok(PoolResult::Changed(" become changeable"));
    }
    if needs_details(&pool.members, &change.members, pool.is_http) {
        pool.members = read::details(*cx, id).await?;
        let Some(again) = differing(&pool.members, subnet) else {
            return Ok(same(&pool.members));
        };
        wanted = again;
    }
    let after: Option<Vec<SeenMember>> = wanted.iter().map(written).collect();
    cx.memory.forget_pools(&row.id);
    let mut set = cx.octavia.set_members(id, wanted, cx.call).await;
    if let (Err(error), Some(given)) = (&set, &given)
        && refuses_subnet(error, given)
        && let Some(wanted) = differing(&pool.members, own)
    {
        // The next full look reports the annotation on the Service. Its members continue to be
        // updated.
        set = cx.octavia.set_members(id, wanted, cx.call).await;
    }
    set?;
    if let Some(after) = after {
        pool.members = after;
        cx.memory.keep_pools(&row.id, pools.clone());
    }
    Ok(PoolResult::Changed(""))
}

/// Returns the members of the pools that were made for the load balancer.
async fn pools(Change { cx, row, ports, .. }: &Change<'_>) -> Result<Pools, CloudError> {
    let read = Instant::now();
    let tree = read::tree(*cx, &row.id).await?;
    let is_own = |pool: &&TreePool| {
        let is_known = ports.iter().any(|port| port.is(&pool.id, &pool.name));
        is_known || is_made_for(&pool.name, row)
    };
    let (made, others): (Vec<_>, Vec<_>) = current::pools(&tree).into_iter().partition(is_own);
    let pools = made.into_iter().map(|pool| {
        let kind = pool.health_monitor.as_ref().map(|monitor| monitor.kind.as_str());
        let known = KnownPool {
            name: pool.name.clone(),
            members: pool.members.iter().map(SeenMember::of_tree).collect(),
            is_http: kind == Some(HTTP),
            is_left_pending: matches!(pool.provisioning_status, Provisioning::Pending(_)),
        };
        (pool.id.clone(), known)
    });
    Ok(Pools { read, by_id: pools.collect(), has_others: !others.is_empty() })
}

/// The result for one pool.
enum PoolResult {
    /// The members were written, or the pool itself was updated, so that its members can be changed
    /// next.
    Changed(&'static str),
    /// Nothing differs.
    Same,
    /// The pool has no members, and the port of its members is not known.
    NotSeen,
}

/// Describes a missing pool in one line.
fn missing(row: &BalancerRow, pools: &Pools, ports: &[PortPool]) -> Option<String> {
    if pools.by_id.is_empty() && ports.is_empty() {
        return Some(format!("load balancer {} has no pool that is named after it", row.id));
    }
    // Before a full comparison, a renamed pool cannot be told from another owner's pool.
    if pools.has_others && ports.is_empty() {
        let id = &row.id;
        return Some(format!("load balancer {id} has a pool of another name behind a listener"));
    }
    let is_there = |port: &PortPool| pools.by_id.iter().any(|(id, pool)| port.is(id, &pool.name));
    let mut filled = ports.iter().filter(|port| port.to.is_some());
    filled.find(|port| !is_there(port)).map(|port| format!("{} has no pool", port.shown()))
}

/// Returns the address family of the members.
fn family(row: &BalancerRow) -> IpFamily {
    row.vip_address.map_or(IpFamily::V4, IpFamily::from_address)
}

/// Returns the ports for new members: the ports of most existing members, otherwise the known ones.
fn targets(members: &[SeenMember], known: Option<&PortPool>) -> Option<Targets> {
    let usual = usual_port(members);
    let usual = usual.map(|port| Targets { port, monitor_port: usual_check(members) });
    usual.or_else(|| known?.to)
}

/// Returns true if the name of a pool says that it was made with its load balancer.
fn is_made_for(pool: &str, row: &BalancerRow) -> bool {
    names::is_child(
        "pool",
        pool,
        [row.name.as_str()].into_iter().chain(row.tags.iter().map(String::as_str)),
    )
}

/// Returns the port at which most members are checked, if that is another one.
fn usual_check(members: &[SeenMember]) -> Option<u16> {
    let checks = members.iter().filter_map(|member| member.details.as_ref()?.monitor_port);
    let mut checks: Vec<u16> = checks.collect();
    checks.sort_unstable();
    let count = checks.len();
    checks.into_iter().nth(count / 2)
}

/// Returns a member as it is after it was written.
fn written(body: &Value) -> Option<SeenMember> {
    let name = body["name"].as_str()?.to_owned();
    let address = body["address"].as_str()?.parse().ok()?;
    let port = u16::try_from(body["protocol_port"].as_u64()?).ok()?;
    Some(SeenMember { name, address, port, details: None })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pools_of_others_are_known_by_their_names() {
        let row = json!({
            "id": "lb", "name": "kube_service_prod_default_web", "tags": ["kube_service_old_default_web"],
            "provisioning_status": "ACTIVE",
        });
        let row: BalancerRow = serde_json::from_value(row).unwrap();
        for (name, expect) in [
            ("pool_0_kube_service_prod_default_web", true),
            ("pool_12_kube_service_old_default_web", true),
            ("pool_0_kube_service_prod_default_api", false),
            ("pool_x_kube_service_prod_default_web", false),
            ("pool_0_", false),
            ("mine", false),
        ] {
            assert_eq!(is_made_for(name, &row), expect, "{name}");
        }
    }
}
