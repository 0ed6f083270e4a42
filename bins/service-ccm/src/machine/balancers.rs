//! The memory of all load balancers.

use std::{collections::BTreeMap, sync::Arc};

use ccm_base::At;
use ccm_cloud::{Digest, Member};
use ccm_controller::repeats::Repeats;
use ccm_objects::{Service, Shared as Name};
use serde::{Deserialize, Serialize};

use super::{entry::BalancerEntry, left::LeaderNote};
use crate::plan::{
    BalancerState, List,
    eligible::digest,
    members::{Departures, Membership},
};

/// The memory of all load balancers. The maps are sorted, so that the order of what follows does not depend
/// on the process.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Balancers {
    entries: BTreeMap<Name, Box<BalancerEntry>>,
    /// The memory of Services that service-ccm does not serve now: the confirmed writes to them, which another
    /// client may undo again and again; and the departures from their load balancers, which get no new budget.
    kept: BTreeMap<Name, Box<BalancerEntry>>,
    /// The state of the list of the cluster's load balancers since this process leads.
    pub(super) list: List,
    /// When this process began to lead, and the last leader's note about members.
    pub(super) inherited: (At, LeaderNote),
    /// The digest of the nodes that load balancers should have now.
    pub(super) nodes: Option<Digest>,
}

impl Balancers {
    /// Forgets all others than the load balancer of this Service.
    pub(super) fn retain(&mut self, name: &str) {
        self.entries.retain(|service, _| **service == *name);
        self.kept.retain(|service, _| **service == *name);
    }

    /// Returns the memory of the load balancer of this Service. Nothing is remembered of another
    /// Service of the same name.
    pub(crate) fn entry(&mut self, service: &Service) -> &mut BalancerEntry {
        let is_known = self.entries.get(&service.key).is_some_and(|one| one.uid == service.uid);
        if !is_known {
            let kept = self.kept.remove(&service.key).filter(|kept| kept.uid == service.uid);
            let entry = kept.unwrap_or_else(|| Box::new(self.resumed(service)));
            self.entries.insert(Name::clone(&service.key), entry);
        }
        self.entries.entry(Name::clone(&service.key)).or_default()
    }

    /// Returns the memory of the load balancer of the Service with this name and UID, if there is
    /// one.
    pub(crate) fn with_uid(&mut self, name: &str, uid: &str) -> Option<&mut BalancerEntry> {
        self.named(name).filter(|entry| *entry.uid == *uid)
    }

    /// Returns the memory of the load balancer of the Service with this name, if there is one.
    pub(crate) fn named(&mut self, name: &str) -> Option<&mut BalancerEntry> {
        self.entries.get_mut(name).map(|entry| &mut **entry)
    }

    /// Returns the memory of the load balancer of the Service with this name, for reading.
    pub(crate) fn get(&self, name: &str) -> Option<&BalancerEntry> {
        self.entries.get(name).map(|entry| &**entry)
    }

    /// Returns all load balancers by the names of their Services.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Name, &BalancerEntry)> + Clone {
        self.entries.iter().map(|(name, entry)| (name, &**entry))
    }

    /// Returns all load balancers for changes.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = (&Name, &mut BalancerEntry)> {
        self.entries.iter_mut().map(|(name, entry)| (name, &mut **entry))
    }

    /// Returns the memory of a new Service: the departures that the last leader has recorded.
    fn resumed(&self, service: &Service) -> BalancerEntry {
        let (since, left) = &self.inherited;
        let mut membership = Membership::resume(*since, &left.members);
        if left.settled.is_none() || left.settled != self.nodes {
            membership.relabelled();
        }
        BalancerEntry { uid: service.uid.clone(), membership, ..BalancerEntry::default() }
    }

    /// Records which nodes load balancers should have from now on.
    pub(crate) fn publish(&mut self, members: &Arc<[Member]>) {
        self.nodes = Some(digest(members));
    }

    /// Records that the nodes have further labels, by which no load balancer selected before.
    pub(crate) fn relabel(&mut self, members: &Arc<[Member]>) {
        let before = self.nodes;
        self.publish(members);
        let now = self.nodes;
        for entry in self.entries.values_mut() {
            entry.relabelled(before, now);
        }
    }

    /// Returns the digest of the nodes that all load balancers have, as far as this leader or the
    /// last one has seen it. `None` if one has others, or may have.
    pub(crate) fn settled(&self) -> Option<Digest> {
        let (nodes, left) = (self.nodes?, self.inherited.1.settled);
        let agree = || self.entries.values().all(|entry| entry.has(nodes, left));
        (self.list == List::Compared && agree()).then_some(nodes)
    }

    /// Marks all load balancers, so that their members are read soon. If the handover note says that
    /// the members match the current nodes, only load balancers on which the cloud works are marked.
    /// Returns true if the note says that the members do not match.
    pub(crate) fn await_members(&mut self) -> bool {
        let (nodes, left) = (self.nodes, self.inherited.1.settled);
        let differs = left.is_none() || left != nodes;
        let is_due = |one: &&mut Box<BalancerEntry>| differs || one.state.pending.is_some();
        for entry in self.entries.values_mut().filter(is_due) {
            entry.await_members();
        }
        left.is_some() && differs
    }

    /// Returns the members that have left any load balancer since this time.
    pub(crate) fn departures(&self, since: At) -> Departures {
        let mut left = self.inherited.1.members.clone();
        left.retain(since);
        for entry in self.entries.values() {
            entry.membership.add_departures(since, &mut left);
        }
        for kept in self.kept.values() {
            kept.membership.add_departures(since, &mut left);
        }
        left
    }

    /// Forgets a Service, but not the writes to it, nor the members that have left.
    pub(crate) fn forget(&mut self, name: &Name) {
        let Some(entry) = self.entries.remove(name) else { return };
        let BalancerEntry { uid, state: BalancerState { repeats, .. }, mut membership, .. } =
            *entry;
        if repeats != Repeats::default() || membership.has_departures(self.inherited.0) {
            membership.forget();
            let state = BalancerState { repeats, ..BalancerState::default() };
            let kept = BalancerEntry { uid, state, membership, ..BalancerEntry::default() };
            self.kept.insert(Name::clone(name), Box::new(kept));
        }
    }

    /// Forgets a Service that is gone.
    pub(crate) fn remove(&mut self, name: &str) {
        self.entries.remove(name);
        self.kept.remove(name);
    }
}

#[cfg(test)]
mod tests;
