//! The blocks of nodes that are gone: held until the routes to them are gone, and for a grace time.

use std::{collections::BTreeSet, sync::Arc};

use ccm_base::At;
use ipnet::IpNet;

use super::{Allocator, Gone, HeldBlocks, Record};

/// The maximum number of former nodes that are remembered.
const FORMER: usize = 50_000;

impl Allocator {
    /// Records that the node is gone. Its pod CIDRs [stay held](Self::waiting_for_routes) until the
    /// caller says that no route leads to them: by [`route_gone`](Self::route_gone), also if
    /// no route ever did, or by [a table without them](Self::routes_are).
    ///
    /// Another node of the same name, or with the same blocks, is not affected.
    pub fn release(&mut self, uid: &str, now: At) {
        self.bare.remove(uid);
        self.signs.forget(uid);
        let Some((uid, record)) = self.nodes.remove_entry(uid) else { return };
        self.problems.remove(&uid);
        let networks: Box<[IpNet]> = record.counted(&self.config).collect();
        if record.is_unwritten() {
            // These blocks were never written.
            return self.free(&uid, &networks);
        }
        let held = networks.iter().filter(|network| self.hold.routes && !self.is_shown(**network));
        let waiting: Vec<IpNet> = held.copied().collect();
        if waiting.is_empty() {
            self.due.insert((now + self.hold.grace, Arc::clone(&uid)));
        }
        self.gone.insert(uid, Gone { record, since: now, waiting });
        // Nodes that shared a network with it may be alone now.
        networks.iter().for_each(|network| drop(self.examine_holders(*network)));
    }

    /// Returns true if a node that is here shows exactly this network: the route to it stays.
    fn is_shown(&self, network: IpNet) -> bool {
        let shows = |uid| self.nodes.get(uid).is_some_and(|record| record.writes.is_none());
        self.holders.overlapping(network).any(|(one, uid)| one == network && shows(uid))
    }

    /// Records that a route with this destination no longer exists, and that no route is being
    /// made.
    pub fn route_gone(&mut self, destination: IpNet) {
        let destination = destination.trunc();
        if self.routes.as_mut().is_some_and(|routes| routes.remove(&destination)) {
            self.refresh(destination);
        }
        self.end_waiting(destination);
    }

    /// Stops nodes that are gone from waiting for the end of this route: it does not exist, or a
    /// living node has the block, so the route stays.
    pub(super) fn end_waiting(&mut self, destination: IpNet) {
        let holders = self.holders.overlapping(destination);
        let exact = holders.filter(|(network, _)| *network == destination);
        let uids: Vec<_> = exact.map(|(_, uid)| Arc::clone(uid)).collect();
        for uid in uids {
            let Some(gone) = self.gone.get_mut(&uid) else { continue };
            gone.waiting.retain(|network| *network != destination);
            if gone.waiting.is_empty() {
                self.due.insert((gone.since + self.hold.grace, uid));
            }
        }
    }

    /// Records the destinations of all routes, of any owner, in a table that the cloud was
    /// asked for at `read`. A block with a route in it is given to no node. No route to a node that
    /// is gone may have been in the making at that time.
    pub fn routes_are(&mut self, destinations: impl IntoIterator<Item = IpNet>, read: At) {
        let all: BTreeSet<IpNet> = destinations.into_iter().map(|one| one.trunc()).collect();
        let is_in_block = |one: &&IpNet| self.pools.iter().any(|pool| pool.is_within_block(**one));
        let within: BTreeSet<IpNet> = all.iter().filter(is_in_block).copied().collect();
        let before = self.routes.replace(within.clone()).unwrap_or_default();
        before.symmetric_difference(&within).for_each(|changed| self.refresh(*changed));
        let asked = self.gone.values().filter(|gone| gone.since <= read);
        let waiting: Vec<IpNet> = asked.flat_map(|gone| gone.waiting.clone()).collect();
        for network in waiting.into_iter().filter(|network| !all.contains(network)) {
            self.route_gone(network);
        }
    }

    /// Returns true if a table of the routes was read.
    pub const fn knows_routes(&self) -> bool {
        self.routes.is_some()
    }

    /// Returns the pod CIDRs of nodes that are gone, to which there may be a route.
    pub fn waiting_for_routes(&self) -> impl Iterator<Item = IpNet> {
        self.gone.values().flat_map(|gone| gone.waiting.iter().copied())
    }

    /// Returns the holdings of deleted nodes with this name: their blocks, the time of the
    /// deletion, and the blocks to which there may be a route.
    pub fn held_by(&self, name: &str) -> impl Iterator<Item = (&[IpNet], At, &[IpNet])> {
        let named = self.gone.values().filter(move |gone| *gone.record.name == *name);
        named.map(|gone| (&*gone.record.networks, gone.since, &*gone.waiting))
    }

    /// Returns how many nodes are gone and hold their blocks.
    pub fn held_nodes(&self) -> usize {
        self.gone.len()
    }

    /// Returns the data for the next leader: the blocks of the nodes that were deleted last, at
    /// most this many.
    pub fn held(&self, most: usize) -> Vec<HeldBlocks> {
        let mut held: Vec<_> = self
            .gone
            .iter()
            .map(|(uid, gone)| HeldBlocks {
                uid: uid.as_ref().into(),
                cidrs: gone.record.counted(&self.config).collect(),
                since: gone.since,
            })
            .collect();
        held.sort_by(|one, other| (other.since, &other.uid).cmp(&(one.since, &one.uid)));
        held.truncate(most);
        held
    }

    /// Holds what the last leader has held. A node that is here was not gone: what it shows counts, and the writes
    /// of the last leader are among that.
    pub(super) fn take_over(&mut self, held: HeldBlocks) {
        let HeldBlocks { uid, cidrs, since } = held;
        if self.nodes.contains_key(&*uid) || self.bare.contains(&*uid) {
            return;
        }
        let node = ccm_objects::Node { uid: uid.clone(), name: "".into(), ..Default::default() };
        self.keep(&node, &cidrs);
        if let Some(record) = self.nodes.get_mut(&*uid) {
            record.writes = None;
        }
        self.release(&uid, since);
    }

    /// Records that a node that was taken for gone exists, and that the routes to its networks
    /// stay.
    pub(super) fn revive(&mut self, uid: &str) {
        if let Some((uid, gone)) = self.gone.remove_entry(uid) {
            self.due.remove(&(gone.since + self.hold.grace, Arc::clone(&uid)));
            let shown = gone.record.writes.is_none().then(|| gone.record.networks.clone());
            self.nodes.insert(uid, gone.record);
            shown.iter().flatten().for_each(|network| self.end_waiting(*network));
        }
    }

    /// Returns when the next blocks of nodes that are gone become free.
    pub fn next_release(&self) -> Option<At> {
        self.due.first().map(|(until, _)| *until)
    }

    /// Frees what need not be held any longer.
    pub fn expire(&mut self, now: At) {
        while let Some((until, uid)) = self.due.first().cloned() {
            if until > now {
                return;
            }
            self.due.pop_first();
            if let Some(Gone { record, .. }) = self.gone.remove(&uid) {
                self.remember(&uid, &record);
                self.free(&uid, &record.networks);
            }
        }
    }

    pub(super) fn remember(&mut self, uid: &str, record: &Record) {
        if self.former.len() >= FORMER {
            self.former.clear();
        }
        self.former.insert(record.fingerprint(uid));
    }
}
