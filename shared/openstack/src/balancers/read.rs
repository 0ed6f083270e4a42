//! Reads one load balancer with all that belongs to it.

use ccm_cloud::{Call, CloudError, ErrorKind, Members, Owner, Traffic};
use ccm_openstack_client::{
    lbaas::{BalancerRow, Tree},
    network::{FloatingIp, FloatingIps},
};

use super::{
    OctaviaBalancers,
    current::{self, Seen},
    differences::members_subnet,
    floating::{Elsewhere, Look},
    job::Job,
    local::decide,
    merge::{SeenMember, has_foreign},
    names,
    spec::{HTTP, Unasked},
};

impl OctaviaBalancers {
    /// All that belongs to a load balancer.
    pub async fn read(
        &self,
        row: BalancerRow,
        job: &Job<'_>,
        call: Call,
    ) -> Result<Seen, CloudError> {
        let floating = self.floating_of(&row, call);
        let (listeners, pools, tree, floating) = tokio::try_join!(
            self.octavia.listeners(&row.id, call),
            self.octavia.pools(&row.id, call),
            self.tree(&row.id, call),
            floating,
        )?;
        let checked = pools.iter().filter(|pool| pool.healthmonitor_id.is_some());
        let checked: Vec<String> = checked.map(|pool| pool.id.clone()).collect();
        let monitors = self.octavia.monitors(&checked, call).await?;
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
                // So may the members of a pool that will get its first monitor.
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
            let members = self.details(&pool, call).await?;
            seen.members.insert(pool, members);
        }
        Ok(seen)
    }

    /// The members of a pool with all their fields.
    pub async fn details(&self, pool: &str, call: Call) -> Result<Vec<SeenMember>, CloudError> {
        let rows = self.octavia.members(pool, call).await?;
        Ok(rows.into_iter().map(SeenMember::of_row).collect())
    }

    /// The status tree of a load balancer that exists.
    pub async fn tree(&self, id: &str, call: Call) -> Result<Tree, CloudError> {
        self.octavia.tree(id, call).await?.ok_or_else(|| {
            let what = format!("load balancer {id} was deleted in the meantime");
            CloudError::new(ErrorKind::Busy, what).about(format!("load balancer {id}"))
        })
    }

    /// The floating IPs that may be used.
    pub async fn elsewhere(
        &self,
        look: Look,
        job: &Job<'_>,
        call: Call,
    ) -> Result<Elsewhere, CloudError> {
        let mut elsewhere = Elsewhere::default();
        if let Look::Address(address) | Look::Both(address) = look {
            let found = self.neutron.floating_ips(FloatingIps::Address(address), call).await?;
            elsewhere.wished = found.into_iter().next();
        }
        if let Look::Tags | Look::Both(_) = look {
            elsewhere.tagged = self.floating_of_owner(&job.wanted.front_end.owner, call).await?;
        }
        Ok(elsewhere)
    }

    /// The floating IPs with the tags of an owner.
    pub async fn floating_of_owner(
        &self,
        owner: &Owner,
        call: Call,
    ) -> Result<Vec<FloatingIp>, CloudError> {
        let tags = names::owner_tags(owner);
        let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
        self.neutron.floating_ips(FloatingIps::Tags(&tags), call).await
    }

    /// The floating IPs of a load balancer's virtual address.
    pub async fn floating_of(
        &self,
        row: &BalancerRow,
        call: Call,
    ) -> Result<Vec<FloatingIp>, CloudError> {
        match &row.vip_port_id {
            Some(port) => {
                let port = std::slice::from_ref(port);
                self.neutron.floating_ips(FloatingIps::Ports(port), call).await
            }
            None => Ok(Vec::new()),
        }
    }
}

/// Returns true if all fields of a pool's members must be known before they are written.
pub fn needs_details(members: &[SeenMember], change: &Members, is_http: bool) -> bool {
    let are_known = members.iter().all(|member| member.details.is_some());
    !are_known && (is_http || has_foreign(members, change))
}
