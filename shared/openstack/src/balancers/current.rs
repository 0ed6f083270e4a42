//! The data of one load balancer as it was read.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use ccm_cloud::{AddressKind, IpFamily, Member, NodeAddress};
use ccm_openstack_client::{
    lbaas::{BalancerRow, ListenerRow, MonitorRow, PoolRow, Provisioning, Tree, TreePool},
    network::FloatingIp,
};
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use super::{merge::SeenMember, names};

/// The numbers of parts, which show that parts are missing in a status tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartCounts {
    /// The number of all listeners, others' included.
    pub listeners: usize,
    /// The number of listeners without a pool.
    pub bare: usize,
    /// The number of pools with members.
    pub filled: usize,
}

/// A load balancer with all that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub row: BalancerRow,
    pub listeners: Vec<ListenerRow>,
    pub pools: Vec<PoolRow>,
    pub monitors: Vec<MonitorRow>,
    /// The members by pool.
    pub members: BTreeMap<String, Vec<SeenMember>>,
    /// The IDs of pools that have members and whose members all fail the checks.
    pub failing: BTreeSet<String>,
    /// The floating IPs of the virtual address.
    pub floating: Vec<FloatingIp>,
}

impl Seen {
    /// Returns the pool of a listener.
    pub fn pool_of(&self, listener: &ListenerRow) -> Option<&PoolRow> {
        let by_id = |pool: &&PoolRow| Some(&pool.id) == listener.default_pool_id.as_ref();
        let refers = |pool: &&PoolRow| pool.listeners.iter().any(|own| own.id == listener.id);
        self.pools.iter().find(by_id).or_else(|| self.pools.iter().find(refers))
    }

    /// Returns the monitor of a pool.
    pub fn monitor_of(&self, pool: &PoolRow) -> Option<&MonitorRow> {
        let id = pool.healthmonitor_id.as_ref()?;
        self.monitors.iter().find(|monitor| monitor.id == *id)
    }

    /// Returns the numbers of its parts.
    pub fn parts(&self) -> PartCounts {
        PartCounts {
            listeners: self.listeners.len(),
            bare: self.listeners.iter().filter(|one| self.pool_of(one).is_none()).count(),
            filled: self.members.values().filter(|members| !members.is_empty()).count(),
        }
    }

    /// Returns the members of a pool.
    pub fn members_of(&self, pool: &str) -> &[SeenMember] {
        self.members.get(pool).map_or(&[], Vec::as_slice)
    }
}

/// Returns the families of the virtual addresses, the main one's first.
pub fn families(row: &BalancerRow) -> Vec<IpFamily> {
    let additional = row.additional_vips.iter().filter_map(|vip| vip.ip_address);
    let mut families: Vec<IpFamily> = Vec::new();
    for address in row.vip_address.into_iter().chain(additional) {
        let family = IpFamily::from_address(address);
        if !families.contains(&family) {
            families.push(family);
        }
    }
    families
}

/// Returns the addresses of a load balancer, as far as Octavia shows them.
pub fn vips(row: &BalancerRow) -> Vec<IpAddr> {
    let additional = row.additional_vips.iter().filter_map(|vip| vip.ip_address);
    row.vip_address.into_iter().chain(additional).collect()
}

/// Returns all pools of a tree, each once.
pub fn pools(tree: &Tree) -> Vec<&TreePool> {
    let of_listeners = tree.listeners.iter().flat_map(|listener| &listener.pools);
    let mut pools: Vec<&TreePool> = Vec::new();
    for pool in of_listeners.chain(&tree.pools) {
        if pools.iter().all(|known| known.id != pool.id) {
            pools.push(pool);
        }
    }
    pools
}

/// Returns the numbers of parts of a tree.
pub fn parts(tree: &Tree) -> PartCounts {
    PartCounts {
        listeners: tree.listeners.len(),
        bare: tree.listeners.iter().filter(|listener| listener.pools.is_empty()).count(),
        filled: pools(tree).iter().filter(|pool| !pool.members.is_empty()).count(),
    }
}

/// Returns the members of a tree by pool.
pub fn members(tree: &Tree) -> BTreeMap<String, Vec<SeenMember>> {
    let pools = pools(tree).into_iter();
    pools
        .map(|pool| (pool.id.clone(), pool.members.iter().map(SeenMember::of_tree).collect()))
        .collect()
}

/// Returns the IDs of pools that have members and whose members all fail the checks.
pub fn failing(tree: &Tree) -> BTreeSet<String> {
    let fail = |pool: &&TreePool| {
        let members = &pool.members;
        !members.is_empty() && members.iter().all(|one| one.operating_status == "ERROR")
    };
    pools(tree).into_iter().filter(fail).map(|pool| pool.id.clone()).collect()
}

/// Returns the members of a load balancer for a controller: a node is one that is a member of every
/// pool that has members.
pub fn nodes(pools: &BTreeMap<String, Vec<SeenMember>>) -> Arc<[Member]> {
    let filled = pools.values().filter(|members| !members.is_empty()).count();
    let mut found: BTreeMap<(String, IpAddr), usize> = BTreeMap::new();
    for members in pools.values() {
        let mut own: Vec<_> =
            members.iter().map(|one| (names::node(&one.name).to_owned(), one.address)).collect();
        own.sort_unstable();
        own.dedup();
        for key in own {
            *found.entry(key).or_default() += 1;
        }
    }
    let whole = found.into_iter().filter(|(_, count)| *count == filled);
    let member = |((node, address), _): ((String, IpAddr), usize)| Member {
        node,
        provider_id: None,
        addresses: vec![NodeAddress::new(AddressKind::InternalIp, address.to_string())],
        labels: Arc::default(),
    };
    whole.map(member).collect()
}

/// Parses a time from Octavia, which writes UTC without a time zone.
pub fn time(text: Option<&str>) -> Option<Timestamp> {
    let time: DateTime = text?.trim_end_matches('Z').parse().ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// Returns how long before `now` this time from Octavia was.
pub fn since(text: Option<&str>, now: Timestamp) -> Option<Duration> {
    Some(now.duration_since(time(text)?).try_into().unwrap_or_default())
}

/// Returns the failed parts below a load balancer, the deepest first.
pub fn failed(tree: &Tree) -> Vec<String> {
    let mut failed = Vec::new();
    for pool in pools(tree) {
        let is_error = |status: &Provisioning| *status == Provisioning::Error;
        for member in pool.members.iter().filter(|one| is_error(&one.provisioning_status)) {
            failed.push(format!("member {} {}", member.name, member.address));
        }
        if is_error(&pool.provisioning_status) {
            failed.push(format!("pool {} ({})", pool.id, pool.name));
        }
    }
    let listeners = tree.listeners.iter();
    for listener in listeners.filter(|one| one.provisioning_status == Provisioning::Error) {
        failed.push(format!("listener {} ({})", listener.id, listener.name));
    }
    failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octavias_time_is_utc() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        for (time, expect) in [
            (Some("2026-01-01T00:00:00"), Some(600)),
            (Some("2026-01-01T00:00:00Z"), Some(600)),
            (Some("2026-01-01T00:20:00"), Some(0)),
            (Some("yesterday"), None),
            (None, None),
        ] {
            assert_eq!(since(time, now), expect.map(Duration::from_secs), "{time:?}");
        }
    }

    #[test]
    fn a_node_is_a_member_if_it_is_in_every_pool_that_has_members() {
        let seen = |name: &str, last: u8| SeenMember {
            name: name.to_owned(),
            address: [10, 0, 0, last].into(),
            port: 30_000 + u16::from(last),
            details: None,
        };
        let pools = BTreeMap::from([
            ("a".to_owned(), vec![seen("n1", 1), seen("n2", 2)]),
            ("b".to_owned(), vec![seen("n1", 1)]),
            ("without node port".to_owned(), Vec::new()),
        ]);
        let shown = nodes(&pools);
        assert_eq!(shown.iter().map(|one| &*one.node).collect::<Vec<_>>(), ["n1"]);
        assert_eq!(nodes(&BTreeMap::new()).len(), 0);
    }
}
