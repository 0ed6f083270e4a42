//! Lists load balancers.

use std::{collections::BTreeSet, net::IpAddr};

use ccm_base::clock;
use ccm_cloud::{Call, CloudError, ClusterId, Depth, LoadBalancer, LoadBalancerList, Scope, Title};
use ccm_openstack_client::{
    lbaas::{BalancerRow, Filter, Provisioning, Tree},
    network::{FloatingIp, FloatingIps},
};
use futures::{StreamExt as _, stream};
use tokio::time::Instant;

use super::{
    AT_ONCE, OctaviaBalancers,
    ingress::{self, annotations},
    memory::Verified,
    names, pools, seen, title,
};

impl OctaviaBalancers {
    /// See [`LoadBalancers::list`](ccm_cloud::LoadBalancers::list).
    pub async fn listed(
        &self,
        cluster: &ClusterId,
        scope: Scope,
        depth: Depth,
        call: Call,
    ) -> Result<LoadBalancerList, CloudError> {
        let (began, tag) = (Instant::now(), names::cluster_tag(&cluster.uid));
        let filter = match &scope {
            Scope::All => Filter::All,
            Scope::Cluster => Filter::Tags(&[&tag]),
            Scope::Ids(ids) => Filter::Ids(ids),
        };
        let listed = self.octavia.balancers(filter, call).await?;
        let mut rows = listed.rows;
        rows.retain(|row| row.provisioning_status != Provisioning::Deleted);
        if listed.malformed.is_empty() && !matches!(scope, Scope::Ids(_)) {
            let ids = rows.iter().map(|row| row.id.as_str()).collect();
            self.memory.keep_only(&ids, began);
            self.failures.keep_only(&ids);
        }
        for row in rows.iter().filter(|row| row.provisioning_status == Provisioning::Active) {
            self.failures.forget(&row.id);
        }
        if matches!(scope, Scope::Cluster) {
            self.pace.counted(rows.len());
        }
        let mut list = LoadBalancerList {
            load_balancers: rows.iter().map(|row| self.shown(row, cluster)).collect(),
            malformed: listed.malformed,
        };
        if depth == Depth::Members {
            self.look_below(&rows, &mut list, call).await?;
        }
        Ok(list)
    }

    /// A load balancer as a row of Octavia and the memory show it. What only annotations and
    /// floating IPs tell is empty until this process has compared it with what is wanted.
    pub fn shown(&self, row: &BalancerRow, cluster: &ClusterId) -> LoadBalancer {
        let now = clock::wall();
        let (owner, title) = title::of(row, cluster);
        let mut balancer = LoadBalancer::new(&row.id, &row.name, owner);
        balancer.digest = names::digest(&row.tags).filter(|_| title == Title::Ours);
        balancer.phase = ingress::phase(row, &title, self.failures.others(&row.id), now);
        balancer.version.clone_from(&row.updated_at);
        // One that was never changed has the time of its creation.
        balancer.version = balancer.version.or_else(|| row.created_at.clone());
        balancer.age = seen::since(row.created_at.as_deref(), now);
        let driver = row.provider.as_deref().unwrap_or("load balancer");
        balancer.cost = Some(driver.to_owned());
        if let Some(verified) = self.memory.verified(&row.id).filter(|_| title == Title::Ours) {
            if verified.floating {
                balancer.cost = Some(format!("{driver} with floating IP"));
            }
            balancer.annotations = annotations(&row.id, verified.address);
            balancer.ingress = verified.ingress;
            balancer.notes = verified.notes;
            balancer.pools = verified.created;
        }
        balancer.title = title;
        balancer
    }

    /// Adds the members, and withdraws the digest of what is not as it was. One whose status cannot
    /// be read is left out with a line that says so; fails if that is true of all.
    async fn look_below(
        &self,
        rows: &[BalancerRow],
        list: &mut LoadBalancerList,
        call: Call,
    ) -> Result<(), CloudError> {
        let verified: Vec<Option<Verified>> =
            rows.iter().map(|row| self.memory.verified(&row.id)).collect();
        let floating = self.floating_of_verified(rows, &verified, call);
        let trees: Vec<_> = rows.iter().map(|row| self.octavia.tree(&row.id, call)).collect();
        let trees = stream::iter(trees).buffered(AT_ONCE).collect::<Vec<_>>();
        let (floating, trees) = tokio::join!(floating, trees);
        let floating: Vec<FloatingIp> = floating?;
        if let Some(error) = trees.iter().find_map(|tree| tree.as_ref().err())
            && trees.iter().all(Result::is_err)
        {
            return Err(error.clone());
        }
        let mut turns = self.pace.room();
        let summaries = std::mem::take(&mut list.load_balancers).into_iter();
        for (((row, mut balancer), tree), known) in
            rows.iter().zip(summaries).zip(trees).zip(verified)
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
            balancer.members = Some(seen::nodes(&seen::members(&tree)));
            // Withdraws the digest: the controller then calls ensure, which adds the monitors.
            let has_turn = turns > 0 && known.as_ref().is_some_and(|it| it.waits_for_monitors);
            turns = turns.saturating_sub(usize::from(has_turn));
            balancer.pools = known.as_ref().and_then(|known| {
                let there = seen::filled(&tree);
                pools::shown(&known.ports, there.iter().copied(), known.why_empty.as_deref())
            });
            let address = |known: &Verified| known.address.filter(|_| known.floating);
            let is_whole = known.is_some_and(|known| {
                let is_whole = seen::parts(&tree) == known.parts && seen::failed(&tree).is_empty();
                stands(&floating, row, address(&known)) && is_whole
            });
            balancer.digest = balancer.digest.filter(|_| is_whole && !has_turn);
            list.load_balancers.push(balancer);
        }
        Ok(())
    }

    /// Reads the floating IPs of the load balancers that are known to have one.
    async fn floating_of_verified(
        &self,
        rows: &[BalancerRow],
        verified: &[Option<Verified>],
        call: Call,
    ) -> Result<Vec<FloatingIp>, CloudError> {
        let is_external = |known: &Option<Verified>| known.as_ref().is_some_and(|it| it.floating);
        let external = rows.iter().zip(verified).filter(|(_, known)| is_external(known));
        let ports: BTreeSet<String> =
            external.filter_map(|(row, _)| row.vip_port_id.clone()).collect();
        if ports.is_empty() {
            return Ok(Vec::new());
        }
        let ports: Vec<String> = ports.into_iter().collect();
        self.neutron.floating_ips(FloatingIps::Ports(&ports), call).await
    }
}

/// Whether the floating IP still stands for the virtual address.
fn stands(floating: &[FloatingIp], row: &BalancerRow, address: Option<IpAddr>) -> bool {
    address.is_none_or(|address| {
        floating.iter().any(|ip| ip.address == address && ip.port_id == row.vip_port_id)
    })
}
