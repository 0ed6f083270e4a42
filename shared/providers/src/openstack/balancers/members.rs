//! Changes members, and nothing else: by one pool per call.

use ccm_base::clock;
use ccm_cloud::{Call, CloudError, ErrorKind, IpFamily, MemberChange, Progress, Waiting};

use super::{
    super::lbaas::{BalancerRow, Child, Provisioning},
    OctaviaBalancers, annotations,
    diff::unchanged,
    ensure::waiting,
    find::{Rows, not_ours},
    ingress,
    memory::{KnownPool, Pools},
    merge::{SeenMember, Shape, changed, usual_port},
    read::{HTTP, needs_details},
    seen, title,
};

impl OctaviaBalancers {
    /// One load balancer of [`set_members`](ccm_cloud::LoadBalancers::set_members). Needs nothing
    /// of the configuration but what says which nodes may be members.
    pub(super) async fn set_members_of(
        &self,
        change: &MemberChange,
        rows: &Rows,
        call: Call,
    ) -> Result<Progress<Option<String>>, CloudError> {
        let row = match changeable(change, rows)? {
            Ok(row) => row,
            Err(waiting) => return Ok(Progress::InProgress(waiting)),
        };
        let mut pools = match self.memory.pools(&row.id) {
            Some(pools) => pools,
            None => self.pools(row, call).await?,
        };
        let selector = annotations::selector(&change.settings, &self.options);
        let given = annotations::member_subnet(&change.settings, &self.options);
        let subnet = given.or_else(|| row.vip_subnet_id.clone());
        let count = pools.len();
        let ids: Vec<String> = pools.keys().cloned().collect();
        for (number, id) in ids.into_iter().enumerate() {
            let Some(pool) = pools.get_mut(&id) else { continue };
            let members = &mut pool.members;
            let family = row.vip_address.map_or(IpFamily::V4, IpFamily::of);
            let shape = |members: &[SeenMember]| {
                let port = usual_port(members)?;
                let subnet = subnet.as_deref();
                let monitor_port = usual_check(members);
                Some(Shape { port, family, selector: &selector, subnet, monitor_port })
            };
            let differing =
                |members: &[SeenMember]| changed(members, &change.members, shape(members)?);
            // A pool without members does not show their port: the next full look finds it.
            let Some(mut wanted) = differing(members) else { continue };
            let line = format!("members of pool {} of {count}", number + 1);
            if pool.is_left_pending {
                pool.is_left_pending = false;
                self.octavia.update_child(Child::Pool, &id, unchanged(&pool.name), call).await?;
                self.memory.keep_pools(&row.id, pools);
                return Ok(Progress::InProgress(waiting(row, format!("{line} become changeable"))));
            }
            if needs_details(members, &change.members, pool.is_http) {
                *members = self.details(&id, call).await?;
                let Some(again) = differing(members) else { continue };
                wanted = again;
            }
            let after: Option<Vec<SeenMember>> = wanted.iter().map(written).collect();
            self.memory.forget_pools(&row.id);
            self.octavia.set_members(&id, wanted, call).await?;
            if let Some(after) = after {
                *members = after;
                self.memory.keep_pools(&row.id, pools);
            }
            return Ok(Progress::InProgress(waiting(row, line)));
        }
        self.memory.forget_pools(&row.id);
        let version = row.updated_at.clone().or_else(|| row.created_at.clone());
        Ok(Progress::Done(version))
    }

    /// The members of the pools that were made for the load balancer.
    async fn pools(&self, row: &BalancerRow, call: Call) -> Result<Pools, CloudError> {
        let tree = self.tree(&row.id, call).await?;
        let made = seen::pools(&tree).into_iter().filter(|pool| is_made_for(&pool.name, row));
        let pools = made.map(|pool| {
            let kind = pool.health_monitor.as_ref().map(|monitor| monitor.kind.as_str());
            let known = KnownPool {
                name: pool.name.clone(),
                members: pool.members.iter().map(SeenMember::of_tree).collect(),
                is_http: kind == Some(HTTP),
                is_left_pending: matches!(pool.provisioning_status, Provisioning::Pending(_)),
            };
            (pool.id.clone(), known)
        });
        Ok(pools.collect())
    }
}

/// The load balancer whose members may be changed now, or what is waited for.
fn changeable<'a>(
    change: &MemberChange,
    rows: &'a Rows,
) -> Result<Result<&'a BalancerRow, Waiting>, CloudError> {
    let about = |error: CloudError| error.about(format!("load balancer {}", change.id));
    let Some(row) = rows.get(&change.id)? else {
        let what = format!("the project has no load balancer {}", change.id);
        return Err(about(CloudError::new(ErrorKind::NotFound, what)));
    };
    if !title::is_ours(row, &change.owner) {
        return Err(not_ours(row, &change.owner));
    }
    match row.provisioning_status {
        Provisioning::Active => Ok(Ok(row)),
        Provisioning::Error | Provisioning::Deleted => {
            let what = format!("load balancer {} is in ERROR and is replaced first", row.id);
            Err(about(CloudError::new(ErrorKind::Unavailable, what)))
        }
        Provisioning::PendingDelete | Provisioning::Pending(_) => {
            Ok(Err(ingress::waiting(row, Some("members follow"), clock::wall())))
        }
    }
}

/// Whether the name of a pool says that it was made with its load balancer. The ends of long names
/// are cut off.
fn is_made_for(pool: &str, row: &BalancerRow) -> bool {
    let named = || {
        let (place, balancer) = pool.strip_prefix("pool_")?.split_once('_')?;
        let is_number = place.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && !balancer.is_empty()).then_some(balancer)
    };
    named().is_some_and(|balancer| {
        let of = |name: &String| name.starts_with(balancer);
        of(&row.name) || row.tags.iter().any(of)
    })
}

/// The port at which most members are checked, if that is another one.
fn usual_check(members: &[SeenMember]) -> Option<u16> {
    let checks = members.iter().filter_map(|member| member.details.as_ref()?.monitor_port);
    let mut checks: Vec<u16> = checks.collect();
    checks.sort_unstable();
    let count = checks.len();
    checks.into_iter().nth(count / 2)
}

/// A member as it is after it was written.
fn written(body: &serde_json::Value) -> Option<SeenMember> {
    let mut row = body.clone();
    // Octavia knows its ID, which is not needed here.
    row["id"] = "".into();
    let row: super::super::lbaas::MemberRow = serde_json::from_value(row).ok()?;
    let seen = SeenMember::of_row(row);
    Some(SeenMember { details: None, ..seen })
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
