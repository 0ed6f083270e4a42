//! The blocks that each node holds.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use ccm_base::At;
use ccm_objects::Node;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Allocator, AllocatorType, Config, Pool};
use crate::{
    networks::{network, overlap},
    node_ipam::ipam::{networks::Uid, problem::Problem, rival::Writes},
};

/// The blocks that a node holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) name: Arc<str>,
    /// The networks without host bits, in their order.
    pub(super) networks: Box<[IpNet]>,
    /// Pod CIDRs that are not networks.
    pub(super) unreadable: Box<[Box<str>]>,
    /// Our writes, if the networks are only reserved. `None` if the node shows them.
    pub(super) writes: Option<Writes>,
    /// True if the node does not show them any more, and will get them again.
    #[serde(default)]
    pub(super) is_lost: bool,
    /// The version of the node at our last write. The API server refuses a write that was decided on another version.
    #[serde(default)]
    pub(super) version: Box<str>,
    /// True if a network that is wider than a block counts.
    pub(super) may_be_wide: bool,
}

/// A node that is gone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Gone {
    pub(super) record: Record,
    pub(super) since: At,
    /// Its networks to which there may be a route.
    pub(super) waiting: Vec<IpNet>,
}

impl Record {
    /// Returns the record of what the node shows.
    pub(super) fn shown(node: &Node) -> Self {
        let (mut networks, mut unreadable) = (Vec::new(), Vec::new());
        for text in &node.pod_cidrs {
            match network(text) {
                Some(network) => networks.push(network.trunc()),
                None => unreadable.push(text.clone()),
            }
        }
        Self {
            name: Arc::clone(&node.name),
            networks: networks.into(),
            unreadable: unreadable.into(),
            may_be_wide: true,
            ..Self::default()
        }
    }

    /// Returns true if it is reserved, and no write of it can be carried out.
    pub(super) fn is_unwritten(&self) -> bool {
        self.writes.is_some_and(|writes| !writes.may_have_landed())
    }

    /// Records that a write begins.
    pub(super) fn begin_write(&mut self, node: &Node) {
        self.version.clone_from(&node.resource_version);
        self.writes.iter_mut().for_each(|writes| writes.pending = true);
    }

    /// Records that the node has another version, and is still without pod CIDRs: a write of ours
    /// cannot be carried out any more.
    pub(super) fn forget_old_writes(&mut self, node: &Node) {
        if self.version != node.resource_version {
            self.writes.iter_mut().for_each(|writes| writes.possible = false);
        }
    }

    /// Returns true if the node shows exactly this.
    pub(super) fn shows(&self, node: &Node) -> bool {
        let shown = Self::shown(node);
        self.networks == shown.networks && self.unreadable == shown.unreadable
    }

    /// Returns the networks that no other node gets. A network that was already in the node's spec
    /// and is wider than a block takes nothing from other nodes.
    pub(super) fn counted(&self, config: &Config) -> impl Iterator<Item = IpNet> {
        let counts = |cidr: &&IpNet| self.may_be_wide || config.wider_than_block(**cidr).is_none();
        self.networks.iter().filter(counts).copied()
    }

    /// Recognises a node with its networks.
    pub(super) fn fingerprint(&self, uid: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        (uid, &self.networks, &self.unreadable).hash(&mut hasher);
        hasher.finish()
    }
}

impl Allocator {
    /// Records what the node shows, in place of what was known.
    pub(super) fn insert(&mut self, node: &Node) {
        let may_be_wide = self.config.is_older(node);
        let shown = Record { may_be_wide, ..Record::shown(node) };
        match self.nodes.get_mut(&*node.uid) {
            Some(known) if known.networks == shown.networks => *known = shown,
            _ => {
                self.remove(&node.uid);
                self.put(Arc::from(&*node.uid), shown);
            }
        }
    }

    /// Records a reservation, for a write that begins now.
    pub(super) fn keep(&mut self, node: &Node, cidrs: &[IpNet]) {
        let record = Record {
            name: Arc::clone(&node.name),
            networks: cidrs.into(),
            writes: Some(Writes { pending: true, possible: false }),
            version: node.resource_version.clone(),
            may_be_wide: true,
            ..Record::default()
        };
        self.put(Arc::from(&*node.uid), record);
    }

    fn put(&mut self, uid: Uid, record: Record) {
        for network in record.counted(&self.config) {
            self.holders.insert(network, &uid);
            let pools = self.pools.iter_mut().filter(|pool| !pool.is_all(network));
            pools.for_each(|pool| pool.mark(network));
        }
        self.nodes.insert(uid, record);
    }

    /// Forgets what a node holds, and frees it.
    pub(super) fn remove(&mut self, uid: &str) {
        if let Some((uid, record)) = self.nodes.remove_entry(uid) {
            self.free(&uid, &record.networks);
        }
    }

    /// Frees what no other node holds.
    pub(super) fn free(&mut self, uid: &Uid, networks: &[IpNet]) {
        for network in networks {
            self.holders.remove(*network, uid);
        }
        for network in networks {
            self.refresh(*network);
        }
    }

    /// Looks again at who holds the blocks that the network touches.
    pub(super) fn refresh(&mut self, network: IpNet) {
        let Self { pools, holders, routes, config, .. } = self;
        for pool in pools {
            let Some(span) = pool.span(network) else { continue };
            let routes = routes
                .iter()
                .flat_map(|routes| routes.range(span..).take_while(|route| span.contains(*route)));
            let held = holders.overlapping(span).map(|(network, _)| network);
            let held: Vec<_> = held.filter(|network| !pool.is_all(*network)).collect();
            let held = held.into_iter().chain(config.services.iter().copied());
            pool.refresh(span, held.chain(routes.copied()));
        }
    }

    /// Returns the other node that has a part of the network.
    pub(super) fn shared(&self, uid: &str, network: IpNet) -> Option<Problem> {
        self.shared_with(uid, network, |_| true)
    }

    /// Returns the other node that has a part of the network, so that this node cannot get it. A
    /// node that claims more than the block of one node takes nothing from other nodes.
    pub(super) fn taken(&self, uid: &str, network: IpNet) -> Option<Problem> {
        let is_cloud = self.config.allocator == AllocatorType::CloudAllocator;
        self.shared_with(uid, network, |others| {
            let is_wider = others != network && others.contains(&network);
            !(is_cloud && is_wider || self.pools.iter().any(|pool| pool.is_all(others)))
        })
    }

    fn shared_with(
        &self,
        uid: &str,
        network: IpNet,
        counts: impl Fn(IpNet) -> bool,
    ) -> Option<Problem> {
        let (others, holder) = self.holders.overlapping(network).find(|(others, holder)| {
            &***holder != uid && self.nodes.contains_key(*holder) && counts(*others)
        })?;
        let other = Arc::clone(&self.nodes.get(holder)?.name);
        Some(Problem::Shared { cidr: network, other, others })
    }

    /// Looks at what is wrong with the node, and with those that have a part of its networks.
    /// Returns what is new.
    pub(super) fn examine(&mut self, uid: &str) -> Vec<(Arc<str>, Problem)> {
        let networks = self.nodes.get(uid).map(|record| record.networks.clone());
        let mut new = self.examine_one(uid);
        for network in networks.unwrap_or_default() {
            new.extend(self.examine_holders(network));
        }
        new.sort();
        new.dedup();
        new
    }

    /// Examines all nodes that have a part of the network, and returns their new problems.
    pub(super) fn examine_holders(&mut self, network: IpNet) -> Vec<(Arc<str>, Problem)> {
        let uids: BTreeSet<Uid> =
            self.holders.overlapping(network).map(|(_, uid)| Arc::clone(uid)).collect();
        uids.iter().flat_map(|uid| self.examine_one(uid)).collect()
    }

    fn examine_one(&mut self, uid: &str) -> Vec<(Arc<str>, Problem)> {
        let before = self.problems.remove(uid).unwrap_or_default();
        let Some((uid, record)) = self.nodes.get_key_value(uid) else { return Vec::new() };
        // We gave a reservation ourselves, so only pod CIDRs that are shown are examined.
        if record.writes.is_some() {
            return Vec::new();
        }
        let unreadable =
            record.unreadable.iter().map(|text| Problem::Unreadable { text: text.clone() });
        let wrong = record.counted(&self.config).flat_map(|cidr| {
            let shared = self.shared(uid, cidr);
            self.misplaced(cidr).into_iter().chain(shared)
        });
        let refused = record.networks.iter().filter(|_| !record.may_be_wide).filter_map(|cidr| {
            Some(Problem::Wide { cidr: *cidr, mask: self.config.wider_than_block(*cidr)? })
        });
        let problems: Vec<_> = unreadable.chain(wrong).chain(refused).collect();
        let new = problems.iter().filter(|problem| !before.contains(problem));
        let new = new.map(|problem| (Arc::clone(&record.name), problem.clone())).collect();
        if !problems.is_empty() {
            self.problems.insert(Arc::clone(uid), problems);
        }
        new
    }

    /// Returns true if the networks are a block of each cluster CIDR; false if the cloud decides.
    pub(super) fn can_give(&self, networks: &[IpNet]) -> bool {
        let is_block = |(pool, one): (&Pool, &IpNet)| pool.range.network.contains(one);
        let are_of_pools = self.pools.iter().zip(networks).all(is_block);
        let is_right = |one: &IpNet| self.misplaced(*one).is_none();
        let is_one_of_each = !self.pools.is_empty() && self.pools.len() == networks.len();
        is_one_of_each && are_of_pools && networks.iter().all(is_right)
    }

    /// Returns the problem of a pod CIDR, for any node.
    fn misplaced(&self, cidr: IpNet) -> Option<Problem> {
        let mut clusters = self.config.ranges.iter().map(|range| range.network);
        let other_size = |pool: &&Pool| {
            pool.range.network.contains(&cidr) && pool.range.mask != cidr.prefix_len()
        };
        if let Some(services) = self.config.services.iter().find(|one| overlap(**one, cidr)) {
            return Some(Problem::Services { cidr, services: *services });
        }
        if !self.config.ranges.is_empty() && !clusters.clone().any(|one| one.contains(&cidr)) {
            return Some(Problem::Outside { cidr, clusters: clusters.by_ref().collect() });
        }
        let pool = self.pools.iter().find(other_size)?;
        Some(Problem::Size { cidr, mask: pool.range.mask })
    }
}
