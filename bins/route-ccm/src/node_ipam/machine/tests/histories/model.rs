//! A model of node IPAM: from the events it computes which node holds which blocks, with plain sets and without an index.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ccm_base::At;
use ccm_objects::{Node, Shared as Name};
use ipnet::IpNet;

use super::super::{
    super::{Event, Written},
    GRACE,
};
use crate::{
    networks::{AllocatorType, Config, network, overlap},
    node_ipam::ipam,
};

/// Blocks by their number, as bits, of each cluster CIDR.
pub(super) type Blocks = [u64; 2];

/// The blocks that a node holds.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) name: Name,
    /// The networks that no other node gets.
    pub(super) networks: Vec<IpNet>,
    blocks: Blocks,
    /// False if the blocks are only reserved.
    is_shown: bool,
    pending: bool,
    possible: bool,
    /// The version of the node at the last write.
    version: Box<str>,
}

impl Record {
    /// Returns true if a node without pod CIDRs has shown these.
    pub(super) const fn is_lost(&self) -> bool {
        self.is_shown
    }

    /// Returns true if the node shows them, or a write of them may be carried out.
    pub(super) const fn may_be_there(&self) -> bool {
        self.is_shown || self.pending || self.possible
    }
}

/// A node that is gone.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) record: Record,
    pub(super) at: At,
    /// The networks to which there may be a route.
    pub(super) routes: Vec<IpNet>,
}

impl End {
    pub(super) fn is_over(&self, now: At) -> bool {
        self.routes.is_empty() && self.at + GRACE <= now
    }
}

/// The events that one leader has heard.
pub(super) struct Model {
    config: Config,
    holds_routes: bool,
    observes: bool,
    all: Vec<Vec<IpNet>>,
    services: Blocks,
    /// True from the beginning of the term on.
    pub(super) has_begun: bool,
    pub(super) here: BTreeMap<Name, Arc<Node>>,
    pub(super) records: BTreeMap<Box<str>, Record>,
    /// The nodes that existed without pod CIDRs, and those that have had some.
    pub(super) bare: BTreeSet<Box<str>>,
    pub(super) had: BTreeSet<Box<str>>,
    /// The nodes that have lost pod CIDRs that they do not get again.
    pub(super) lost: BTreeSet<Box<str>>,
    pub(super) ends: BTreeMap<Box<str>, End>,
    routes: Option<BTreeMap<IpNet, Blocks>>,
    early: Option<(Vec<IpNet>, At)>,
}

impl Model {
    pub(super) fn new(config: Config, holds_routes: bool, observes: bool) -> Self {
        let is_range = config.allocator == AllocatorType::RangeAllocator;
        let ranges = config.ranges.iter().filter(|_| is_range);
        let all = ranges.map(|range| range.network.subnets(range.mask).unwrap().collect());
        let mut new = Self {
            all: all.collect(),
            services: [0; 2],
            config,
            holds_routes,
            observes,
            has_begun: false,
            here: BTreeMap::new(),
            records: BTreeMap::new(),
            bare: BTreeSet::new(),
            had: BTreeSet::new(),
            lost: BTreeSet::new(),
            ends: BTreeMap::new(),
            routes: None,
            early: None,
        };
        new.services = new.blocks(&new.config.services.clone());
        new
    }

    /// Returns the blocks that these networks touch. A network with all blocks does not take any.
    fn blocks(&self, networks: &[IpNet]) -> Blocks {
        let mut blocks = [0; 2];
        for (bits, all) in blocks.iter_mut().zip(&self.all) {
            for (number, block) in all.iter().enumerate() {
                let touches = |one: &&IpNet| {
                    let is_all = all.iter().all(|block| one.contains(block));
                    overlap(**one, *block) && !is_all
                };
                *bits |= u64::from(networks.iter().any(|one| touches(&one))) << number;
            }
        }
        blocks
    }

    /// Returns the networks of a node that no other node gets.
    pub(super) fn counted(&self, node: &Node) -> Vec<IpNet> {
        let is_older = || {
            let since = self.config.since.unwrap_or_default();
            node.created.is_none_or(|created| At::from(created) <= since)
        };
        let ranges = self.config.ranges.iter().take(self.all.len());
        let is_wide = |cidr: &IpNet| {
            let mut near = ranges.clone().filter(|range| overlap(range.network, *cidr));
            near.any(|range| cidr.prefix_len() < range.mask)
        };
        let shown = node.pod_cidrs.iter().filter_map(|text| network(text)).map(|one| one.trunc());
        shown.filter(|cidr| !is_wide(cidr) || is_older()).collect()
    }

    fn record(&self, name: &Name, networks: Vec<IpNet>, is_shown: bool) -> Record {
        let blocks = self.blocks(&networks);
        let name = Name::clone(name);
        let version = "".into();
        Record { name, networks, blocks, is_shown, pending: false, possible: false, version }
    }

    /// Returns the blocks of the range that are taken. `all`: also those that the next look at the
    /// time frees.
    pub(super) fn used(&self, range: usize, now: At, all: bool) -> u32 {
        let held = self.records.values().map(|record| record.blocks);
        let ends = self.ends.values().filter(|end| all || !end.is_over(now));
        let ends = ends.map(|end| end.record.blocks);
        let routes = self.routes.iter().flat_map(BTreeMap::values).copied();
        let all = held.chain(ends).chain(routes).chain([self.services]);
        all.fold(0, |taken, blocks| taken | blocks[range]).count_ones()
    }

    /// Returns the nodes that are gone and hold their blocks: at least, and at most.
    pub(super) fn held(&self, now: At) -> (usize, usize) {
        (self.ends.values().filter(|end| !end.is_over(now)).count(), self.ends.len())
    }

    /// Returns the networks whose routes must end.
    pub(super) fn awaited(&self) -> BTreeSet<IpNet> {
        self.ends.values().flat_map(|end| end.routes.iter().copied()).collect()
    }

    /// Returns true if the machine was told of a table.
    pub(super) const fn knows_routes(&self) -> bool {
        self.routes.is_some()
    }

    /// Returns the route in this block that the machine was told of. It keeps the block from nodes.
    pub(super) fn told_route(&self, cidr: IpNet) -> Option<IpNet> {
        self.routes.iter().flat_map(BTreeMap::keys).find(|one| overlap(**one, cidr)).copied()
    }

    pub(super) fn hear(&mut self, event: &Event, now: At) {
        match event {
            Event::RoutesAre { destinations, read } if !self.has_begun => {
                self.early = Some((destinations.clone(), *read));
            }
            _ if !self.has_begun => {}
            Event::Changed { before, after } => self.changed(before.as_ref(), after, now),
            Event::Gone(node) => self.gone(node, now),
            Event::Written(written) => self.written(written, now),
            Event::RoutesAre { destinations, read } => self.routes_are(destinations, *read),
            Event::RouteGone(destination) => self.route_gone(*destination),
            Event::Time => self.ends.retain(|_, end| !end.is_over(now)),
            _ => {}
        }
    }

    pub(super) fn begin(
        &mut self,
        nodes: &[Arc<Node>],
        left: &[ipam::HeldBlocks],
        since: At,
        now: At,
    ) {
        (self.has_begun, self.config.since) = (true, Some(since));
        for node in nodes {
            self.here.insert(Name::clone(&node.name), Arc::clone(node));
            match node.pod_cidrs.is_empty() {
                true => drop(self.bare.insert(node.uid.clone())),
                false => drop(self.shows(node)),
            }
        }
        for ipam::HeldBlocks { uid, cidrs, since } in left {
            if nodes.iter().any(|node| node.uid == *uid) {
                continue;
            }
            let mut record = self.record(&"".into(), cidrs.clone(), true);
            record.is_shown = true;
            self.end(uid.clone(), record, (*since).min(now));
        }
        let shown = nodes.iter().flat_map(|node| node.pod_cidrs.iter());
        let shown = shown.filter_map(|text| network(text));
        shown.for_each(|network| self.end_waiting(network.trunc()));
        if let Some((destinations, read)) = self.early.take() {
            self.routes_are(&destinations, read);
        }
    }

    fn changed(&mut self, before: Option<&Arc<Node>>, after: &Arc<Node>, now: At) {
        self.sees(after);
        let is_lost = before.is_none_or(|before| !before.pod_cidrs.is_empty());
        if is_lost && after.pod_cidrs.is_empty() {
            self.loses(after, now);
        }
    }

    fn sees(&mut self, node: &Arc<Node>) {
        self.here.insert(Name::clone(&node.name), Arc::clone(node));
        if let Some(end) = self.ends.remove(&node.uid) {
            let shown = if end.record.is_shown { networks(node) } else { Vec::new() };
            self.records.insert(node.uid.clone(), end.record);
            for network in shown {
                self.end_waiting(network.trunc());
            }
        }
        match node.pod_cidrs.is_empty() {
            true if self.observes => {}
            true => drop(self.bare.insert(node.uid.clone())),
            false if self.shows(node) => {
                let networks = node.pod_cidrs.iter().filter_map(|text| network(text));
                networks.for_each(|network| self.end_waiting(network.trunc()));
            }
            false => {}
        }
    }

    /// Records that the node no longer shows pod CIDRs. It keeps those that it can get again.
    fn loses(&mut self, node: &Node, now: At) {
        let Some(known) = self.records.get(&node.uid).filter(|known| known.is_shown) else {
            return;
        };
        self.had.remove(&node.uid);
        let Config { ranges, services, .. } = &self.config;
        let are_blocks = self.all.len() == known.networks.len()
            && ranges.iter().zip(&known.networks).all(|(range, one)| {
                range.network.contains(one)
                    && range.mask == one.prefix_len()
                    && !services.iter().any(|services| overlap(*services, *one))
            });
        if self.all.is_empty() || !are_blocks {
            self.gives_up(&node.uid, now);
        }
    }

    /// Records that the node will get other blocks. Those that it has shown are held.
    fn gives_up(&mut self, uid: &str, now: At) {
        self.lost.insert(uid.into());
        if let Some(record) = self.records.remove(uid) {
            self.end(format!("{uid} until {now}").into(), record, now);
        }
    }

    /// Returns true if the node shows them for the first time.
    fn shows(&mut self, node: &Arc<Node>) -> bool {
        self.had.insert(node.uid.clone());
        let known = self.records.get(&node.uid);
        let record = self.record(&node.name, self.counted(node), true);
        if known.is_some_and(|known| known.is_shown && known.networks == record.networks) {
            return false;
        }
        self.records.insert(node.uid.clone(), record);
        true
    }

    /// Records the networks that the machine keeps for the node. Returns the record that it replaces.
    pub(super) fn keeps(&mut self, node: &Node, cidrs: &[IpNet], now: At) -> Option<Record> {
        let mut record = self.record(&node.name, cidrs.to_vec(), false);
        record.pending = !self.observes;
        record.version = node.resource_version.clone();
        self.forget_old_writes(node);
        let before = self.records.get(&node.uid).cloned();
        let is_lost = before.as_ref().is_some_and(|before| before.is_shown);
        record.is_shown = is_lost && before.as_ref().is_some_and(|one| one.networks == cidrs);
        if is_lost && !record.is_shown {
            self.gives_up(&node.uid, now);
        }
        record.possible = before.as_ref().is_some_and(|before| before.possible);
        self.records.insert(node.uid.clone(), record);
        before
    }

    /// Returns true if another node holds a part of what is kept for the node.
    pub(super) fn is_shared(&self, node: &Node) -> bool {
        let own = self.records.get(&node.uid);
        let others = self.records.iter().filter(|(uid, _)| **uid != node.uid);
        let others: Vec<IpNet> = others.flat_map(|(_, one)| one.networks.clone()).collect();
        let mut own = own.into_iter().flat_map(|own| &own.networks);
        own.any(|own| others.iter().any(|other| overlap(*own, *other)))
    }

    /// Forgets writes that the API server refuses, because they were decided on another version of
    /// the node.
    pub(super) fn forget_old_writes(&mut self, node: &Node) {
        if let Some(known) = self.records.get_mut(&node.uid) {
            known.possible &= known.version == node.resource_version;
        }
    }

    /// Checks that the machine keeps nothing for the node that no write may have brought to it.
    pub(super) fn has_none(&mut self, node: &Node) {
        if self.records.get(&node.uid).is_some_and(|record| !record.may_be_there()) {
            self.records.remove(&node.uid);
        }
    }

    fn gone(&mut self, node: &Node, now: At) {
        if self.here.get(&node.name).is_some_and(|here| here.uid == node.uid) {
            self.here.remove(&node.name);
        }
        self.bare.remove(&node.uid);
        if let Some((uid, record)) = self.records.remove_entry(&node.uid)
            && record.may_be_there()
        {
            self.end(uid, record, now);
        }
    }

    fn end(&mut self, uid: Box<str>, record: Record, at: At) {
        let shown = self.records.values().filter(|one| one.is_shown);
        let shown: Vec<IpNet> = shown.flat_map(|one| one.networks.clone()).collect();
        let routes = record.networks.iter().filter(|one| self.holds_routes && !shown.contains(one));
        let routes = routes.copied().collect();
        self.ends.insert(uid, End { record, at, routes });
    }

    fn written(&mut self, written: &Written, at: At) {
        let Written { asked, cidrs, node: now, answer } = written;
        let shown = answer.as_ref().ok().map(|node| networks(node));
        let may_be = match (answer, shown) {
            (Err(error), _) => error.as_ref().is_some_and(ccm_kube::ApiError::is_uncertain),
            (Ok(_), shown) => shown.is_none_or(|shown| shown.is_empty() || shown == *cidrs),
        };
        let ended = self.ends.get_mut(&asked.uid).map(|end| &mut end.record);
        if let Some(record) = self.records.get_mut(&asked.uid).or(ended)
            && !record.is_shown
        {
            record.pending = false;
            record.possible |= may_be;
            let of = answer.as_ref().unwrap_or(asked);
            record.version = of.resource_version.clone();
        }
        let answer = answer.as_ref().ok().filter(|node| !node.pod_cidrs.is_empty());
        let here =
            |node: &&Arc<Node>| self.here.get(&node.name).is_some_and(|here| here.uid == node.uid);
        let Some(node) = answer.filter(here) else { return };
        self.sees(node);
        if let Some(later) = now.as_ref().filter(|now| now.is_later_than(node)) {
            self.changed(Some(node), later, at);
        }
    }

    /// Returns true if the answer shows what was written.
    pub(super) fn is_stored(written: &Written) -> bool {
        written.answer.as_ref().is_ok_and(|node| networks(node) == written.cidrs)
    }

    fn routes_are(&mut self, destinations: &[IpNet], read: At) {
        let in_block = destinations.iter().filter_map(|one| {
            let mut blocks = self.all.iter().flatten();
            let is_within = blocks.any(|block| block.contains(one));
            is_within.then(|| (*one, self.blocks(&[*one])))
        });
        self.routes = Some(in_block.collect());
        for end in self.ends.values_mut().filter(|end| end.at <= read) {
            end.routes.retain(|network| destinations.contains(network));
        }
    }

    fn route_gone(&mut self, destination: IpNet) {
        if let Some(routes) = &mut self.routes {
            routes.remove(&destination);
        }
        self.end_waiting(destination);
    }

    fn end_waiting(&mut self, destination: IpNet) {
        for end in self.ends.values_mut() {
            end.routes.retain(|network| *network != destination);
        }
    }
}

fn networks(node: &Node) -> Vec<IpNet> {
    node.pod_cidrs.iter().filter_map(|text| network(text)).collect()
}
