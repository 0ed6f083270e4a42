//! What this process remembers of load balancers: what no list of Octavia shows, and what saves
//! requests. Nothing of it is needed: what is forgotten is read again.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
    time::Duration,
};

use ccm_cloud::{Ingress, Note};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::merge::SeenMember;

/// How long members that were read serve again. Octavia shows the end of a change of members only
/// after seconds, in which the other pools of the same load balancer wait for their turn.
const FRESH: Duration = Duration::from_mins(1);

/// The pools of a load balancer, by ID.
pub(super) type Pools = BTreeMap<String, KnownPool>;

/// A pool, as far as its members need it.
#[derive(Clone, Debug)]
pub(super) struct KnownPool {
    pub(super) name: String,
    pub(super) members: Vec<SeenMember>,
    /// Whether it has an HTTP monitor.
    pub(super) is_http: bool,
    /// Whether it must be changed itself before its members can be: see
    /// [`TreePool`](super::super::lbaas::TreePool).
    pub(super) is_left_pending: bool,
}

/// What is remembered, by the ID of the load balancer.
#[derive(Default)]
pub(super) struct Memory {
    balancers: Mutex<HashMap<String, Known>>,
    /// Addresses that replacements of failed load balancers are to get, by the UID of the Service.
    vips: Mutex<HashMap<String, Vip>>,
    /// What this process deletes with its floating IPs.
    deleted: Mutex<HashSet<String>>,
}

/// An address to ask for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Vip {
    pub(super) address: IpAddr,
    pub(super) subnet: Option<String>,
}

/// What was seen of a load balancer when it was as wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Verified {
    pub(super) ingress: Vec<Ingress>,
    /// The published address, for the annotation.
    pub(super) address: Option<IpAddr>,
    /// Whether that is a floating IP.
    pub(super) floating: bool,
    pub(super) notes: Vec<Note>,
    pub(super) listeners: usize,
    /// Pools with members.
    pub(super) filled: usize,
}

#[derive(Default)]
struct Known {
    verified: Option<Verified>,
    touched: bool,
    pools: Option<(Instant, Pools)>,
}

impl Memory {
    fn with<R>(&self, id: &str, change: impl FnOnce(&mut Known) -> R) -> R {
        change(self.balancers.lock().entry(id.to_owned()).or_default())
    }

    /// It is as wanted.
    pub(super) fn verify(&self, id: &str, verified: Verified) {
        self.with(id, |known| (known.verified, known.touched) = (Some(verified), false));
    }

    pub(super) fn verified(&self, id: &str) -> Option<Verified> {
        self.balancers.lock().get(id).and_then(|known| known.verified.clone())
    }

    /// Its configuration is being changed.
    pub(super) fn touch(&self, id: &str) {
        self.with(id, |known| *known = Known { touched: true, ..Known::default() });
    }

    pub(super) fn is_touched(&self, id: &str) -> bool {
        self.balancers.lock().get(id).is_some_and(|known| known.touched)
    }

    /// Its members were read, or changed by this process.
    pub(super) fn keep_pools(&self, id: &str, pools: Pools) {
        self.with(id, |known| known.pools = Some((Instant::now(), pools)));
    }

    pub(super) fn pools(&self, id: &str) -> Option<Pools> {
        let known = self.balancers.lock();
        let (at, pools) = known.get(id)?.pools.as_ref()?;
        (at.elapsed() < FRESH).then(|| pools.clone())
    }

    /// Its members may be others.
    pub(super) fn forget_pools(&self, id: &str) {
        self.with(id, |known| known.pools = None);
    }

    /// It is gone.
    pub(super) fn forget(&self, id: &str) {
        self.balancers.lock().remove(id);
    }

    pub(super) fn keep_vip(&self, service: &str, vip: Vip) {
        self.vips.lock().insert(service.to_owned(), vip);
    }

    pub(super) fn vip(&self, service: &str) -> Option<Vip> {
        self.vips.lock().get(service).cloned()
    }

    pub(super) fn forget_vip(&self, service: &str) {
        self.vips.lock().remove(service);
    }

    /// It is being deleted, and its floating IPs are.
    pub(super) fn keep_deleted(&self, id: &str) {
        self.deleted.lock().insert(id.to_owned());
    }

    pub(super) fn is_deleted(&self, id: &str) -> bool {
        self.deleted.lock().contains(id)
    }

    pub(super) fn forget_deleted(&self, id: &str) {
        self.deleted.lock().remove(id);
    }
}
