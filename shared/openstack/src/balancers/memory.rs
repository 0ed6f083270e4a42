//! Facts about load balancers that this process remembers, because Octavia's lists do not show them
//! or to save requests. All of them can be read again.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
    time::Duration,
};

use ccm_cloud::{Digest, Ingress, Note, Pool};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{current::Parts, merge::SeenMember, pools::PortPool};

/// How long members that were read serve again. Octavia shows the end of a change of members only
/// after seconds, in which the other pools of the same load balancer wait for their turn.
const FRESH: Duration = Duration::from_mins(3);

/// The pools of a load balancer.
#[derive(Clone, Debug)]
pub struct Pools {
    /// When they were read. Later changes by other clients are unknown, whatever this process has
    /// written since.
    pub read: Instant,
    pub by_id: BTreeMap<String, KnownPool>,
    /// True if there are other pools: pools of another owner, or renamed ones.
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

/// The remembered facts, by the ID of the load balancer.
#[derive(Default)]
pub struct Memory {
    balancers: Mutex<HashMap<String, Known>>,
    /// By the UID of the Service, until it has a new load balancer.
    before: Mutex<HashMap<String, Before>>,
    /// The load balancers that this process deletes with their floating IPs.
    deleted: Mutex<HashSet<String>>,
    /// By the UID of the Service: the configuration for which the provider took back the monitors of a
    /// load balancer that it is replacing.
    taken_back: Mutex<HashMap<String, Digest>>,
    /// By the ID of the load balancer: when this process first saw its new health monitors, or `None`
    /// once they have let members through.
    tried: Mutex<HashMap<String, Option<Instant>>>,
    /// By the ID of the load balancer: the configuration for which the cloud refused to create monitors
    /// that the Service had not requested, and why.
    unmonitored: Mutex<HashMap<String, (Digest, String)>>,
}

/// The known addresses of an owner's earlier load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Before {
    /// The next one should have this address.
    Vip(Vip),
    /// The cloud has refused them, with its words.
    Refused(String),
}

/// An address to ask for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vip {
    pub address: IpAddr,
    pub subnet: Option<String>,
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
    pub parts: Parts,
    /// True if the load balancer waits for its turn to get health monitors.
    pub waits_for_monitors: bool,
    /// The pool of each port.
    pub ports: Vec<PortPool>,
    /// Why no node is a member, if this is so.
    pub why_empty: Option<String>,
    /// The members by port with which this process has created the load balancer, until it changes it.
    pub created: Option<Vec<Pool>>,
}

struct Known {
    verified: Option<Verified>,
    touched: bool,
    pools: Option<Pools>,
    /// When something was remembered last.
    at: Instant,
}

impl Default for Known {
    fn default() -> Self {
        Self { verified: None, touched: false, pools: None, at: Instant::now() }
    }
}

impl Memory {
    fn with<R>(&self, id: &str, change: impl FnOnce(&mut Known) -> R) -> R {
        let mut all = self.balancers.lock();
        let known = all.entry(id.to_owned()).or_default();
        known.at = Instant::now();
        change(known)
    }

    /// It is as wanted.
    pub fn verify(&self, id: &str, verified: Verified) {
        self.with(id, |known| (known.verified, known.touched) = (Some(verified), false));
    }

    pub fn verified(&self, id: &str) -> Option<Verified> {
        self.balancers.lock().get(id).and_then(|known| known.verified.clone())
    }

    /// Stores why none of the nodes of the last call is a member, or `None`.
    pub fn explain(&self, id: &str, why_empty: Option<String>) {
        if let Some(verified) =
            self.balancers.lock().get_mut(id).and_then(|it| it.verified.as_mut())
        {
            verified.why_empty = why_empty;
        }
    }

    /// Its configuration is being changed.
    pub fn touch(&self, id: &str) {
        self.with(id, |known| *known = Known { touched: true, ..Known::default() });
    }

    pub fn is_touched(&self, id: &str) -> bool {
        self.balancers.lock().get(id).is_some_and(|known| known.touched)
    }

    /// This process changes the members.
    pub fn forget_created(&self, id: &str) {
        if let Some(known) = self.balancers.lock().get_mut(id)
            && let Some(verified) = &mut known.verified
        {
            verified.created = None;
        }
    }

    /// Its members as they were read, with the changes that this process has made since.
    pub fn keep_pools(&self, id: &str, pools: Pools) {
        self.with(id, |known| known.pools = Some(pools));
    }

    pub fn pools(&self, id: &str) -> Option<Pools> {
        let known = self.balancers.lock();
        known.get(id)?.pools.clone().filter(|pools| pools.read.elapsed() < FRESH)
    }

    /// Its members may be others.
    pub fn forget_pools(&self, id: &str) {
        if let Some(known) = self.balancers.lock().get_mut(id) {
            known.pools = None;
        }
    }

    /// A complete list that began at this time shows the load balancers of these IDs: the others are
    /// gone, unless they came since.
    pub fn keep_only(&self, ids: &HashSet<&str>, began: Instant) {
        self.balancers.lock().retain(|id, known| ids.contains(id.as_str()) || known.at >= began);
        let is_later = |at: Option<Instant>| at.is_some_and(|at| at >= began);
        self.tried.lock().retain(|id, at| ids.contains(id.as_str()) || is_later(*at));
        self.unmonitored.lock().retain(|id, _| ids.contains(id.as_str()));
    }

    /// Returns how long this process has known the new health monitors, until they let members through.
    pub fn tried(&self, id: &str) -> Option<Duration> {
        let mut tried = self.tried.lock();
        tried.entry(id.to_owned()).or_insert_with(|| Some(Instant::now())).map(|at| at.elapsed())
    }

    /// Records that the monitors have let members through: if all fail later, the checks are right.
    pub fn pass(&self, id: &str) {
        self.tried.lock().insert(id.to_owned(), None);
    }

    /// Forgets when the process first saw the monitors: the load balancer gets a new monitor.
    pub fn forget_tried(&self, id: &str) {
        self.tried.lock().remove(id);
    }

    /// It is gone.
    pub fn forget(&self, id: &str) {
        self.balancers.lock().remove(id);
        self.forget_tried(id);
        self.forget_unmonitored(id);
    }

    /// Records that the cloud has refused the monitors that the provider adds for this configuration.
    pub fn keep_unmonitored(&self, id: &str, digest: Digest, why: String) {
        self.unmonitored.lock().insert(id.to_owned(), (digest, why));
    }

    /// Returns why the cloud has refused them.
    pub fn unmonitored(&self, id: &str, digest: Digest) -> Option<String> {
        let all = self.unmonitored.lock();
        all.get(id).filter(|(of, _)| *of == digest).map(|(_, why)| why.clone())
    }

    /// Forgets the refusal: the cloud has created a monitor.
    pub fn forget_unmonitored(&self, id: &str) {
        self.unmonitored.lock().remove(id);
    }

    /// The next load balancer of this Service should have this address.
    pub fn keep_vip(&self, service: &str, vip: Vip) {
        self.before.lock().insert(service.to_owned(), Before::Vip(vip));
    }

    pub fn vip(&self, service: &str) -> Option<Vip> {
        match self.before.lock().get(service)? {
            Before::Vip(vip) => Some(vip.clone()),
            Before::Refused(_) => None,
        }
    }

    /// The cloud does not give the next load balancer of this Service the previous addresses.
    pub fn keep_refusal(&self, service: &str, what: String) {
        self.before.lock().insert(service.to_owned(), Before::Refused(what));
    }

    /// Why it does not.
    pub fn refusal(&self, service: &str) -> Option<String> {
        match self.before.lock().get(service)? {
            Before::Refused(what) => Some(what.clone()),
            Before::Vip(_) => None,
        }
    }

    /// Returns true if anything about an earlier load balancer of this Service is remembered.
    pub fn had_one(&self, service: &str) -> bool {
        self.before.lock().contains_key(service)
    }

    /// Records that the provider must not add monitors to the next load balancer of this Service while
    /// the Service has this configuration.
    pub fn keep_taken_back(&self, service: &str, digest: Digest) {
        self.taken_back.lock().insert(service.to_owned(), digest);
    }

    pub fn taken_back(&self, service: &str) -> Option<Digest> {
        self.taken_back.lock().get(service).copied()
    }

    /// The Service has a new load balancer, or should no longer have one.
    pub fn forget_before(&self, service: &str) {
        self.taken_back.lock().remove(service);
        self.before.lock().remove(service);
    }

    /// It is being deleted, and its floating IPs are.
    pub fn keep_deleted(&self, id: &str) {
        self.deleted.lock().insert(id.to_owned());
    }

    pub fn is_deleted(&self, id: &str) -> bool {
        self.deleted.lock().contains(id)
    }

    pub fn forget_deleted(&self, id: &str) {
        self.deleted.lock().remove(id);
    }

    /// How much is remembered.
    #[cfg(test)]
    pub fn sizes(&self) -> [usize; 3] {
        [self.balancers.lock().len(), self.before.lock().len(), self.deleted.lock().len()]
    }
}
