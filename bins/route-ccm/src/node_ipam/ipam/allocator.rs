//! Gives nodes their blocks. Pure: the caller passes the time, writes and reads as values.
//!
//! ```text
//! rebuild(all nodes) -> reserve(node) -> PATCH -> answered(node) -> observe(node)
//!                         ^    |                                        |
//!                         +----+ the same blocks, until the node shows its pod CIDRs
//!
//! release(uid) -> held: route_gone(cidr), or a table without it; and the grace time -> free
//! ```
//!
//! A block is held by the UID of a node, so that only this node's end frees it. A pod CIDR that
//! nodes show is held wherever it is, by all nodes that show it. A block is free when no node holds
//! a part of it.

mod held;
mod records;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ccm_objects::Node;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use self::records::{Gone, Record};
use super::{
    blocks::Pool,
    networks::{Networks, Uid},
    problem::{Exhausted, Problem, Refusal},
    rival::{Foreign, Rival, Signs, Writes, is_foreign},
};
use crate::networks::{AllocatorType, Config, overlap};

/// When the blocks of a node that is gone become free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldUntil {
    /// The shortest time.
    pub grace: Duration,
    /// True if the routes to them must be gone as well.
    pub routes: bool,
}

/// The blocks for one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// One network per cluster CIDR, in their order; the first is `spec.podCIDR`.
    pub cidrs: Vec<IpNet>,
    /// How many places were tried for each. Empty if the blocks were reserved before.
    pub tries: Vec<u32>,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The API server has carried it out.
    Yes,
    /// It was not sent, or the API server has refused it each time.
    No,
    /// The outcome is not known. It may also be carried out later.
    Unknown,
}

/// The result of the look at a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// New problems, with the name of the node: this node, or one that shares a network with it.
    pub problems: Vec<(Arc<str>, Problem)>,
    /// The pod CIDRs of the node, if another client has written them.
    pub foreign: Option<Foreign>,
    /// The reason why nodes do not get blocks any more, if that begins now.
    pub rival: Option<Rival>,
}

/// How full a cluster CIDR is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// The cluster CIDR.
    pub cluster: IpNet,
    /// The number of its blocks.
    pub capacity: u128,
    /// The blocks that are taken by nodes, routes and Services.
    pub used: u128,
    /// Blocks that became taken since the process began.
    pub allocations: u64,
    /// Blocks that became free since the process began.
    pub releases: u64,
}

impl Usage {
    /// Returns the part that is taken, from 0 to 1.
    pub fn fraction(&self) -> f64 {
        self.used as f64 / self.capacity as f64
    }
}

/// Blocks of a node that is gone, for the next leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBlocks {
    /// The UID of the node.
    pub uid: Box<str>,
    /// Its pod CIDRs.
    pub cidrs: Vec<IpNet>,
    /// When the node was gone.
    pub since: At,
}

/// The blocks of a cluster, and who holds them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Allocator {
    config: Config,
    hold: HoldUntil,
    /// One per cluster CIDR, in their order. Empty if the cloud decides.
    pools: Vec<Pool>,
    nodes: BTreeMap<Uid, Record>,
    /// Nodes that are gone but still hold their networks.
    gone: BTreeMap<Uid, Gone>,
    /// The held blocks whose routes are gone, by the end of the grace time.
    due: BTreeSet<(At, Uid)>,
    /// The networks of `nodes` and `gone`.
    holders: Networks,
    /// The destinations of routes inside blocks. `None` until a table was read.
    routes: Option<BTreeSet<IpNet>>,
    /// Nodes that existed with these networks. If a list without them was wrong, they come back.
    former: HashSet<u64>,
    /// Nodes that exist without pod CIDRs.
    bare: HashSet<Uid>,
    problems: BTreeMap<Uid, Vec<Problem>>,
    signs: Signs,
}

impl Allocator {
    /// Returns the state of a new leader. The nodes must have been read after the leadership began,
    /// so that the writes of the last leader are among them. `left` is what it [held](Self::held),
    /// if known.
    pub fn rebuild<'a>(
        config: Config,
        hold: HoldUntil,
        nodes: impl IntoIterator<Item = &'a Node>,
        left: Vec<HeldBlocks>,
    ) -> Self {
        let ranges: &[_] = match config.allocator {
            AllocatorType::RangeAllocator => &config.ranges,
            AllocatorType::CloudAllocator => &[],
        };
        let mut pools: Vec<_> = ranges.iter().map(|range| Pool::new(*range)).collect();
        for pool in &mut pools {
            config.services.iter().for_each(|services| pool.mark(*services));
        }
        let mut new = Self { config, hold, pools, ..Self::default() };
        for node in nodes {
            match node.pod_cidrs.is_empty() {
                true => drop(new.bare.insert(Uid::from(&*node.uid))),
                false => new.insert(node),
            }
        }
        for held in left {
            new.take_over(held);
        }
        let uids: Vec<Uid> = new.nodes.keys().cloned().collect();
        for uid in uids {
            let networks = new.nodes.get(&uid).map(|node| node.networks.clone());
            networks.iter().flatten().for_each(|network| new.end_waiting(*network));
            drop(new.examine(&uid));
        }
        new
    }

    /// Looks at a node as it is now.
    pub fn observe(&mut self, node: &Node, now: At) -> Seen {
        self.revive(&node.uid);
        let known = self.nodes.get(&*node.uid);
        if node.pod_cidrs.is_empty() {
            self.bare.insert(Uid::from(&*node.uid));
            return Seen::default();
        }
        if known.is_some_and(|known| known.writes.is_none() && known.shows(node)) {
            if let Some(known) = self.nodes.get_mut(&*node.uid) {
                known.is_lost = false;
            }
            return Seen::default();
        }
        let shown = Record::shown(node);
        let has_come_back = self.former.contains(&shown.fingerprint(&node.uid));
        let is_foreign = !has_come_back
            && match known {
                Some(known) if known.unreadable == shown.unreadable => {
                    is_foreign(&shown.networks, Some((&known.networks, known.writes)))
                }
                _ => true,
            };
        let reserved = known.filter(|known| known.writes.is_some());
        let foreign = is_foreign.then(|| Foreign {
            node: Arc::clone(&node.name),
            shown: node.pod_cidrs.clone(),
            reserved: reserved.map(|known| known.networks.to_vec()).unwrap_or_default(),
        });
        let takes_ours = shown.networks.iter().any(|network| self.is_ours(&node.uid, *network));
        let was_bare = self.bare.remove(&*node.uid);
        self.insert(node);
        shown.networks.iter().for_each(|network| self.end_waiting(*network));
        let signs = foreign.as_ref().filter(|_| was_bare);
        let rival = signs.and_then(|sign| self.signs.add(sign, takes_ours, now)).cloned();
        Seen { problems: self.examine(&node.uid), foreign, rival }
    }

    /// Returns true if our allocator has given a part of the network to a node, or would give it next.
    fn is_ours(&self, uid: &str, network: IpNet) -> bool {
        let kept = self.nodes.get(uid).into_iter().flat_map(|known| known.networks.iter().copied());
        let next = self.pools.iter().filter_map(|pool| Some(pool.find()?.block));
        let mut near = kept.chain(next);
        near.any(|one| overlap(one, network)) || self.shared(uid, network).is_some()
    }

    /// Respects what a node shows, no matter who assigned it: for a process that only observes and
    /// does not compete with other writers. Returns new problems, as [`Seen::problems`].
    pub fn accept(&mut self, node: &Node) -> Vec<(Arc<str>, Problem)> {
        self.revive(&node.uid);
        let is_known = |known: &Record| known.writes.is_none() && known.shows(node);
        if node.pod_cidrs.is_empty() || self.nodes.get(&*node.uid).is_some_and(is_known) {
            return Vec::new();
        }
        self.insert(node);
        Record::shown(node).networks.iter().for_each(|network| self.end_waiting(*network));
        self.examine(&node.uid)
    }

    /// Reserves one block of each cluster CIDR for the node, or nothing at all. A node keeps what
    /// is reserved for it until it shows its pod CIDRs, or is gone: an earlier write may be carried
    /// out later. The caller writes the blocks and tells the [answer](Self::record_outcome).
    ///
    /// # Errors
    ///
    /// The reason why it does not get blocks now.
    pub fn reserve(&mut self, node: &Node, now: At) -> Result<Reservation, Refusal> {
        self.expire(now);
        self.revive_or_refuse(node, now)?;
        if let Some(kept) = self.kept(node, now)? {
            return Ok(kept);
        }
        let mut found = Vec::with_capacity(self.pools.len());
        for pool in &self.pools {
            found.push(pool.find().ok_or_else(|| Refusal::Exhausted(self.exhausted(pool)))?);
        }
        for (pool, found) in self.pools.iter_mut().zip(&found) {
            pool.take(found.block);
        }
        let cidrs: Vec<_> = found.iter().map(|found| found.block).collect();
        self.keep(node, &cidrs);
        Ok(Reservation { cidrs, tries: found.iter().map(|found| found.tries).collect() })
    }

    /// Reserves what the cloud has assigned to the node's instance, unless another node has a part of
    /// it. Blocks that only a node that is gone holds are the cloud's to give.
    ///
    /// # Errors
    ///
    /// The reason why it does not get blocks now.
    pub fn reserve_given(
        &mut self,
        node: &Node,
        cidrs: &[IpNet],
        now: At,
    ) -> Result<Reservation, Refusal> {
        self.expire(now);
        self.revive_or_refuse(node, now)?;
        let known = self.nodes.get(&*node.uid);
        if known.is_some_and(|known| *known.networks != *cidrs && known.is_unwritten()) {
            // The cloud has changed its answer in time.
            self.remove(&node.uid);
        }
        if let Some(kept) = self.kept(node, now)? {
            return Ok(kept);
        }
        if let Some(problem) = cidrs.iter().find_map(|cidr| self.taken(&node.uid, *cidr)) {
            return Err(Refusal::Taken(problem));
        }
        self.keep(node, cidrs);
        Ok(Reservation { cidrs: cidrs.to_vec(), tries: Vec::new() })
    }

    /// Records the outcome of the write of a reservation. Without an answer it counts as unknown. `node` is the node
    /// in the answer, or else the one that was written.
    pub fn record_outcome(&mut self, node: &Node, written: Written) {
        let gone = self.gone.get_mut(&*node.uid).map(|gone| &mut gone.record);
        let Some(record) = self.nodes.get_mut(&*node.uid).or(gone) else { return };
        if let Some(writes) = record.writes.as_mut() {
            writes.pending = false;
            writes.possible |= written != Written::No;
            record.version.clone_from(&node.resource_version);
        }
    }

    /// Records that the node has lost its pod CIDRs: the API server shows an older copy of it, for
    /// example after a restore of etcd. If the allocator can give them, it keeps them for the node,
    /// and gives them to it again. Otherwise the node will get others, and these are held like the
    /// blocks of a node that is gone.
    pub fn lost(&mut self, node: &Node, now: At) {
        let shown = self.nodes.get(&*node.uid).filter(|record| record.writes.is_none());
        let Some(record) = shown else { return };
        let can_give = record.unreadable.is_empty() && self.can_give(&record.networks);
        match self.nodes.get_mut(&*node.uid) {
            Some(record) if can_give => record.is_lost = true,
            _ => self.give_up(&node.uid, now),
        }
    }

    /// Records that the node gets other blocks. The blocks that it has shown are held under an
    /// artificial UID until their routes are gone. A node can lose pod CIDRs more than once.
    fn give_up(&mut self, uid: &str, now: At) {
        let Some(record) = self.nodes.get(uid).cloned() else { return };
        self.remember(uid, &record);
        self.problems.remove(uid);
        self.remove(uid);
        let cidrs = record.counted(&self.config).collect();
        let before: Box<str> = format!("{uid} until {now}").into();
        self.take_over(HeldBlocks { uid: before.clone(), cidrs, since: now });
        if let Some(gone) = self.gone.get_mut(&*before) {
            gone.record.name = record.name;
        }
    }

    /// Forgets that the node was gone, and its old writes.
    ///
    /// # Errors
    ///
    /// The reason why the node gets no blocks now.
    fn revive_or_refuse(&mut self, node: &Node, now: At) -> Result<(), Refusal> {
        self.revive(&node.uid);
        if let Some(record) = self.nodes.get_mut(&*node.uid) {
            record.forget_old_writes(node);
        }
        let known = self.nodes.get(&*node.uid);
        let has_some = known.is_some_and(|known| known.writes.is_none() && !known.is_lost);
        if !node.pod_cidrs.is_empty() || has_some {
            return Err(Refusal::Assigned);
        }
        if node.deleting {
            return Err(Refusal::Deleting);
        }
        match self.signs.stops(&node.uid, now) {
            Some(rival) => Err(Refusal::Stopped(rival.clone())),
            None if self.hold.routes && self.routes.is_none() => Err(Refusal::RoutesUnknown),
            None => Ok(()),
        }
    }

    /// Returns the existing reservation of the node.
    fn kept(&mut self, node: &Node, now: At) -> Result<Option<Reservation>, Refusal> {
        let Some(record) = self.nodes.get(&*node.uid) else { return Ok(None) };
        let cidrs = record.networks.to_vec();
        let is_unwritten = record.is_unwritten();
        let is_lost = record.is_lost && record.version != node.resource_version;
        match cidrs.iter().find_map(|cidr| self.taken(&node.uid, *cidr)) {
            Some(_) if is_unwritten => {
                self.remove(&node.uid);
                Ok(None)
            }
            Some(_) if is_lost => {
                self.give_up(&node.uid, now);
                Ok(None)
            }
            Some(problem) => Err(Refusal::Taken(problem)),
            None => {
                if let Some(record) = self.nodes.get_mut(&*node.uid) {
                    record.begin_write(node);
                }
                Ok(Some(Reservation { cidrs, tries: Vec::new() }))
            }
        }
    }

    fn exhausted(&self, pool: &Pool) -> Exhausted {
        let network = pool.range.network;
        let all = self.nodes.values().flat_map(|known| {
            let networks = known.counted(&self.config).filter(|one| !pool.is_all(*one));
            networks.map(|one| (Arc::clone(&known.name), one, pool.blocks_of(one)))
        });
        let holds = |record: &Record| record.counted(&self.config).any(|one| overlap(one, network));
        let widest = all.filter(|(.., blocks)| *blocks > 1).max_by_key(|(.., blocks)| *blocks);
        Exhausted {
            cluster: network,
            mask: pool.range.mask,
            capacity: pool.capacity(),
            held: self.gone.values().filter(|gone| holds(&gone.record)).count(),
            widest,
        }
    }

    /// Returns why no node gets blocks any more, if that is so.
    pub const fn rival(&self) -> Option<&Rival> {
        self.signs.stop()
    }

    /// Returns how many nodes can get blocks: as many as the fullest cluster CIDR has free ones.
    pub fn room(&self) -> u128 {
        let free = self.pools.iter().map(|pool| pool.capacity().saturating_sub(pool.used()));
        free.min().unwrap_or_default()
    }

    /// Returns the problems, by the UID of the node. Nodes that are not here have no problem.
    pub fn problems(&self) -> impl Iterator<Item = (&str, &[Problem])> {
        self.problems.iter().map(|(uid, problems)| (&**uid, &**problems))
    }

    /// Returns the blocks that the allocator reserves for a node that does not show them, and true if the API server
    /// has not answered their write yet.
    pub fn reserved(&self, uid: &str) -> Option<(&[IpNet], bool)> {
        let record = self.nodes.get(uid)?;
        let writes = record.writes.or_else(|| record.is_lost.then(Writes::default));
        writes.map(|writes| (&*record.networks, writes.pending))
    }

    /// Returns how full each cluster CIDR is.
    pub fn usage(&self) -> impl Iterator<Item = Usage> {
        self.pools.iter().map(|pool| Usage {
            cluster: pool.range.network,
            capacity: pool.capacity(),
            used: pool.used(),
            allocations: pool.allocations,
            releases: pool.releases,
        })
    }
}

#[cfg(test)]
mod tests;
