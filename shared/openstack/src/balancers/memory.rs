//! Remembers facts about load balancers, because Octavia's lists do not show them or to save
//! requests. All of them can be read again.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
    time::Duration,
};

use ccm_cloud::{Digest, Ingress, Note, Pool};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{current::PartCounts, merge::SeenMember, pools::PortPool};

/// How long members that were read are used again. Octavia shows the end of a change of members
/// only after seconds, during which the other pools of the same load balancer wait for their turn.
const FRESH: Duration = Duration::from_mins(3);

/// The pools of a load balancer.
#[derive(Clone, Debug)]
pub struct Pools {
    /// The time at which they were read. Later changes by other clients are unknown, even if
    /// this process has written since.
    pub read: Instant,
    pub by_id: BTreeMap<String, KnownPool>,
    /// True if the load balancer has other pools: pools of another owner, or renamed ones.
    pub has_others: bool,
}

/// A pool, as far as its members need it.
#[derive(Clone, Debug)]
pub struct KnownPool {
    pub name: String,
    pub members: Vec<SeenMember>,
    /// True if it has an HTTP monitor.
    pub is_http: bool,
    /// True if it must be changed itself before its members can be: see
    /// [`TreePool`](super::super::lbaas::TreePool).
    pub is_left_pending: bool,
}

/// The remembered facts.
#[derive(Default)]
pub struct Memory {
    /// Facts by the ID of the load balancer.
    balancers: Mutex<HashMap<String, BalancerFacts>>,
    /// Facts by the UID of the Service, until the Service has a new load balancer.
    before: Mutex<HashMap<String, Before>>,
    /// The load balancers that this process deletes with their floating IPs, with the addresses of
    /// the floating IPs that it keeps.
    deleted: Mutex<HashMap<String, Vec<IpAddr>>>,
}

/// The facts about an owner's earlier load balancer.
#[derive(Clone, Debug, Default)]
pub struct Before {
    /// The virtual address that the next one should have.
    pub vip: Option<IpAddr>,
    /// The reason why the cloud does not give the next load balancer the previous addresses.
    pub refused: Option<String>,
    /// The configuration for which the provider took back the health monitors.
    pub taken_back: Option<Digest>,
}

/// The state of a load balancer when it was last as wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verified {
    pub ingress: Vec<Ingress>,
    /// The published address, for the annotation.
    pub address: Option<IpAddr>,
    /// True if the address is a floating IP.
    pub floating: bool,
    pub notes: Vec<Note>,
    pub parts: PartCounts,
    /// True if the load balancer waits for its turn to get health monitors.
    pub waits_for_monitors: bool,
    /// The pool of each port.
    pub ports: Vec<PortPool>,
    /// The reason why no node is a member, if that is the case.
    pub why_empty: Option<String>,
    /// The members by port with which this process has created the load balancer, until it changes it.
    pub created: Option<Vec<Pool>>,
}

/// The trial of new health monitors.
#[derive(Clone, Copy)]
pub enum Trial {
    /// This process first saw the monitors at this time.
    Since(Instant),
    /// The monitors have passed members: if all members fail later, the checks are right.
    Passed,
}

/// The facts about a load balancer.
pub struct BalancerFacts {
    pub verified: Option<Verified>,
    /// True if its configuration is being changed.
    pub touched: bool,
    /// The members as they were read, with the changes that this process has made since.
    pools: Option<Pools>,
    /// The trial of its new health monitors.
    pub tried: Option<Trial>,
    /// The configuration for which the cloud refused to create monitors that the Service had not
    /// requested, and why.
    pub unmonitored: Option<(Digest, String)>,
    /// The time of the last change of this memory.
    at: Instant,
}

impl Default for BalancerFacts {
    fn default() -> Self {
        let (verified, pools, tried, unmonitored) = (None, None, None, None);
        Self { verified, touched: false, pools, tried, unmonitored, at: Instant::now() }
    }
}

impl BalancerFacts {
    /// Records that the load balancer is as wanted.
    pub fn verify(&mut self, verified: Verified) {
        (self.verified, self.touched) = (Some(verified), false);
    }
}

impl Memory {
    /// Changes what is remembered of a load balancer.
    pub fn change<R>(&self, id: &str, change: impl FnOnce(&mut BalancerFacts) -> R) -> R {
        let mut all = self.balancers.lock();
        let known = all.entry(id.to_owned()).or_default();
        known.at = Instant::now();
        change(known)
    }

    /// Returns a fact about a load balancer.
    pub fn read<R>(&self, id: &str, read: impl FnOnce(&BalancerFacts) -> Option<R>) -> Option<R> {
        self.balancers.lock().get(id).and_then(read)
    }

    pub fn verified(&self, id: &str) -> Option<Verified> {
        self.read(id, |known| known.verified.clone())
    }

    /// Changes what is remembered of a load balancer that was as wanted.
    pub fn change_verified(&self, id: &str, change: impl FnOnce(&mut Verified)) {
        let mut all = self.balancers.lock();
        all.get_mut(id).and_then(|known| known.verified.as_mut()).map(change);
    }

    /// Records that the configuration of the load balancer is being changed.
    pub fn touch(&self, id: &str) {
        self.change(id, |known| {
            (known.verified, known.touched, known.pools) = (None, true, None);
        });
    }

    pub fn keep_pools(&self, id: &str, pools: Pools) {
        self.change(id, |known| known.pools = Some(pools));
    }

    /// Returns the members that were read, unless that was long ago.
    pub fn pools(&self, id: &str) -> Option<Pools> {
        let pools = self.read(id, |known| known.pools.clone());
        pools.filter(|pools| pools.read.elapsed() < FRESH)
    }

    /// Forgets the members of the load balancer, which may have changed.
    pub fn forget_pools(&self, id: &str) {
        if let Some(known) = self.balancers.lock().get_mut(id) {
            known.pools = None;
        }
    }

    /// Handles a complete list that began at this time and shows the load balancers of these IDs:
    /// the others are gone, unless they came since.
    pub fn keep_only(&self, ids: &HashSet<&str>, began: Instant) {
        self.balancers.lock().retain(|id, known| ids.contains(id.as_str()) || known.at >= began);
    }

    /// Forgets a load balancer that is gone.
    pub fn forget(&self, id: &str) {
        self.balancers.lock().remove(id);
    }

    /// Returns the memory of the earlier load balancer of this Service.
    pub fn before(&self, service: &str) -> Option<Before> {
        self.before.lock().get(service).cloned()
    }

    pub fn change_before(&self, service: &str, change: impl FnOnce(&mut Before)) {
        change(self.before.lock().entry(service.to_owned()).or_default());
    }

    /// Records that the Service has a new load balancer, or should no longer have one.
    pub fn forget_before(&self, service: &str) {
        self.before.lock().remove(service);
    }

    /// Records that the load balancer is being deleted, with its floating IPs except these.
    pub fn keep_deleted(&self, id: &str, kept: Vec<IpAddr>) {
        self.deleted.lock().insert(id.to_owned(), kept);
    }

    pub fn is_deleted(&self, id: &str) -> bool {
        self.deleted.lock().contains_key(id)
    }

    /// Returns the addresses of the floating IPs that were kept.
    pub fn forget_deleted(&self, id: &str) -> Vec<IpAddr> {
        self.deleted.lock().remove(id).unwrap_or_default()
    }

    /// How much is remembered.
    #[cfg(test)]
    pub fn sizes(&self) -> [usize; 3] {
        [self.balancers.lock().len(), self.before.lock().len(), self.deleted.lock().len()]
    }
}
