//! The memory of all load balancers.

use std::{collections::BTreeMap, sync::Arc};

use ccm_base::At;
use ccm_cloud::{Digest, Member};
use ccm_controller::repeats::Repeats;
use ccm_objects::{Service, Shared as Name};
use serde::{Deserialize, Serialize};

use super::entry::Entry;
use crate::plan::{
    List, State,
    eligible::digest,
    members::{Departures, Membership},
};

/// The memory of all load balancers. The maps are sorted, so that the order of what follows does not depend
/// on the process.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Balancers {
    entries: BTreeMap<Name, Box<Entry>>,
    /// The records of Services that service-ccm does not serve now.
    kept: BTreeMap<Name, Kept>,
    /// The state of the list of the cluster's load balancers since this process leads.
    list: List,
    /// When this process began to lead, and what the last leader has left.
    inherited: (At, Inherited),
    /// The digest of the nodes that load balancers should have now.
    nodes: Option<Digest>,
}

/// The note of the last leader about members.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Inherited {
    /// The members that have left.
    pub(crate) departures: Departures,
    /// The digest of the nodes that all load balancers had. `None` if some had others.
    pub(crate) settled: Option<Digest>,
}

/// The record of a Service that service-ccm does not serve now. Its load balancer may still exist, and
/// service-ccm may serve the Service again.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// The UID of the Service.
    uid: Box<str>,
    /// The confirmed writes to it: another client may undo them again and again.
    repeats: Repeats,
    /// The departures from its load balancer, without the members: when service-ccm serves the
    /// Service again, the load balancer gets no new budget.
    membership: Membership,
}

impl Balancers {
    /// Forgets all others than the load balancer of this Service.
    pub(super) fn retain(&mut self, name: &str) {
        self.entries.retain(|service, _| **service == *name);
        self.kept.retain(|service, _| **service == *name);
    }

    /// The memory of the load balancer of this Service. Nothing is remembered of another Service of the
    /// same name.
    pub(crate) fn entry(&mut self, service: &Service) -> &mut Entry {
        let is_known = self.entries.get(&service.key).is_some_and(|one| one.uid == service.uid);
        if !is_known {
            let kept = self.kept.remove(&service.key).filter(|kept| kept.uid == service.uid);
            let Kept { uid, repeats, membership } = kept.unwrap_or_else(|| self.resumed(service));
            let entry = Box::new(Entry::new(uid, repeats, membership));
            self.entries.insert(Name::clone(&service.key), entry);
        }
        self.entries.entry(Name::clone(&service.key)).or_default()
    }

    /// The memory of the load balancer of the Service with this name and UID, if there is one.
    pub(crate) fn of(&mut self, name: &str, uid: &str) -> Option<&mut Entry> {
        self.named(name).filter(|entry| *entry.uid == *uid)
    }

    /// The memory of the load balancer of the Service with this name, if there is one.
    pub(crate) fn named(&mut self, name: &str) -> Option<&mut Entry> {
        self.entries.get_mut(name).map(|entry| &mut **entry)
    }

    /// The same to look at.
    pub(crate) fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name).map(|entry| &**entry)
    }

    /// All load balancers by the names of their Services.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Name, &Entry)> + Clone {
        self.entries.iter().map(|(name, entry)| (name, &**entry))
    }

    /// The same to be changed.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = (&Name, &mut Entry)> {
        self.entries.iter_mut().map(|(name, entry)| (name, &mut **entry))
    }

    /// Returns the record of a new Service: the departures that the last leader has recorded.
    fn resumed(&self, service: &Service) -> Kept {
        let (since, left) = &self.inherited;
        let mut membership = Membership::resume(*since, &left.departures);
        if left.settled.is_none() || left.settled != self.nodes {
            membership.relabelled();
        }
        Kept { uid: service.uid.clone(), repeats: Repeats::default(), membership }
    }

    /// Takes over what the last leader has left.
    pub(crate) fn inherit(&mut self, now: At, left: Inherited) {
        self.inherited = (now, left);
    }

    /// Records which nodes load balancers should have from now on.
    pub(crate) fn publish(&mut self, members: &Arc<[Member]>) {
        self.nodes = Some(digest(members));
    }

    /// The digest of the nodes that load balancers should have now.
    pub(crate) fn published(&self) -> Option<Digest> {
        self.nodes
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

    /// The digest of the nodes that all load balancers have, as far as this leader or the last one
    /// has seen it. `None` if one has others, or may have.
    pub(crate) fn settled(&self) -> Option<Digest> {
        let (nodes, left) = (self.nodes?, self.inherited.1.settled);
        let agree = || self.entries.values().all(|entry| entry.has(nodes, left));
        (self.list == List::Compared && agree()).then_some(nodes)
    }

    /// Has the members of all load balancers read soon, unless the last leader has left that they
    /// match the current nodes. Returns true if the last leader has left that they do not.
    pub(crate) fn await_members(&mut self) -> bool {
        let (nodes, left) = (self.nodes, self.inherited.1.settled);
        let differs = left.is_none() || left != nodes;
        for entry in self.entries.values_mut() {
            entry.resume_members(differs);
        }
        left.is_some() && differs
    }

    /// The members that have left any load balancer since this time.
    pub(crate) fn departures(&self, since: At) -> Departures {
        let mut left = self.inherited.1.departures.clone();
        left.retain(since);
        for entry in self.entries.values() {
            entry.add_departures(since, &mut left);
        }
        for kept in self.kept.values() {
            kept.membership.add_departures(since, &mut left);
        }
        left
    }

    /// Forgets a Service, but not the writes to it, nor the members that have left.
    pub(crate) fn forget(&mut self, name: &Name) {
        let Some(entry) = self.entries.remove(name) else { return };
        let (uid, State { repeats, .. }, mut membership) = entry.into_record();
        if repeats != Repeats::default() || membership.has_departures(self.inherited.0) {
            membership.forget();
            self.kept.insert(Name::clone(name), Kept { uid, repeats, membership });
        }
    }

    /// Forgets a Service that is gone.
    pub(crate) fn remove(&mut self, name: &str) {
        self.entries.remove(name);
        self.kept.remove(name);
    }

    /// Returns the state of the list.
    pub(crate) fn list(&self) -> List {
        self.list
    }

    /// Records the state of the list.
    pub(crate) fn set_list(&mut self, list: List) {
        self.list = list;
    }
}

#[cfg(test)]
mod tests;
