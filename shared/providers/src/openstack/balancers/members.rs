//! Changes members, and nothing else: by one pool per call.

use ccm_base::clock;
use ccm_cloud::{Call, CloudError, ErrorKind, IpFamily, MemberChange, MembersSet, Progress};
use tokio::time::Instant;

use super::{
    super::lbaas::{BalancerRow, Child, Provisioning},
    OctaviaBalancers, annotations,
    blame::is_about,
    diff::unchanged,
    ensure::waiting,
    find::{Rows, not_ours},
    ingress,
    memory::{KnownPool, Pools},
    merge::{SeenMember, Shape, changed, usual_port},
    names,
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
    ) -> Result<Progress<MembersSet>, CloudError> {
        let Some(row) = rows.get(&change.id)? else {
            let what = format!("the project has no load balancer {}", change.id);
            let error = CloudError::new(ErrorKind::NotFound, what);
            return Err(error.about(format!("load balancer {}", change.id)));
        };
        if !title::is_ours(row, &change.owner) {
            return Err(not_ours(row, &change.owner));
        }
        match row.provisioning_status {
            Provisioning::Active => {}
            Provisioning::Error | Provisioning::Deleted => {
                let what = format!("load balancer {} is in ERROR and is replaced first", row.id);
                let error = CloudError::new(ErrorKind::Unavailable, what);
                return Err(error.about(format!("load balancer {}", row.id)));
            }
            Provisioning::PendingDelete | Provisioning::Pending(_) => {
                let more = Some("members follow");
                return Ok(Progress::InProgress(ingress::waiting(row, more, clock::wall())));
            }
        }
        let mut pools = match self.memory.pools(&row.id) {
            Some(pools) => pools,
            None => self.pools(row, call).await?,
        };
        let count = pools.by_id.len();
        let ids: Vec<String> = pools.by_id.keys().cloned().collect();
        for (number, id) in ids.iter().enumerate() {
            let line = format!("members of pool {} of {count}", number + 1);
            if let Some(line) = self.set_pool(row, id, &mut pools, change, line, call).await? {
                return Ok(Progress::InProgress(waiting(row, line)));
            }
        }
        self.memory.forget_pools(&row.id);
        let version = row.updated_at.clone().or_else(|| row.created_at.clone());
        Ok(Progress::Done(MembersSet { version, changed: false, pools: None }))
    }

    /// Changes the members of one pool. Returns what is done; None if nothing is to be.
    async fn set_pool(
        &self,
        row: &BalancerRow,
        id: &str,
        pools: &mut Pools,
        change: &MemberChange,
        line: String,
        call: Call,
    ) -> Result<Option<String>, CloudError> {
        let selector = annotations::selector(&change.settings, &self.options);
        let given = annotations::member_subnet(&change.settings, &self.options);
        let own = row.vip_subnet_id.as_deref();
        let subnet = given.as_ref().map(|given| &*given.value).or(own);
        let family = row.vip_address.map_or(IpFamily::V4, IpFamily::of);
        let differing = |members: &[SeenMember], subnet: Option<&str>| {
            let (port, monitor_port) = (usual_port(members)?, usual_check(members));
            let shape = Shape { port, family, selector: &selector, subnet, monitor_port };
            changed(members, &change.members, shape)
        };
        let Some(pool) = pools.by_id.get_mut(id) else { return Ok(None) };
        // A pool without members does not show their port: the next full look finds it.
        let Some(mut wanted) = differing(&pool.members, subnet) else { return Ok(None) };
        if pool.is_left_pending {
            pool.is_left_pending = false;
            self.octavia.update_child(Child::Pool, id, unchanged(&pool.name), call).await?;
            self.memory.keep_pools(&row.id, pools.clone());
            return Ok(Some(format!("{line} become changeable")));
        }
        if needs_details(&pool.members, &change.members, pool.is_http) {
            pool.members = self.details(id, call).await?;
            let Some(again) = differing(&pool.members, subnet) else { return Ok(None) };
            wanted = again;
        }
        let after: Option<Vec<SeenMember>> = wanted.iter().map(written).collect();
        self.memory.forget_pools(&row.id);
        let mut set = self.octavia.set_members(id, wanted, call).await;
        if let (Err(error), Some(given)) = (&set, &given)
            && is_about(error, given)
            && let Some(wanted) = differing(&pool.members, own)
        {
            // The next full look reports the annotation on the Service; its members go on.
            set = self.octavia.set_members(id, wanted, call).await;
        }
        set?;
        if let Some(after) = after {
            pool.members = after;
            self.memory.keep_pools(&row.id, pools.clone());
        }
        Ok(Some(line))
    }

    /// The members of the pools that were made for the load balancer.
    async fn pools(&self, row: &BalancerRow, call: Call) -> Result<Pools, CloudError> {
        let read = Instant::now();
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
        Ok(Pools { read, by_id: pools.collect() })
    }
}

/// Whether the name of a pool says that it was made with its load balancer.
fn is_made_for(pool: &str, row: &BalancerRow) -> bool {
    names::is_child(
        "pool",
        pool,
        [row.name.as_str()].into_iter().chain(row.tags.iter().map(String::as_str)),
    )
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
