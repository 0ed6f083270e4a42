//! The load balancers of the simulated cloud.
//!
//! [`Balancers`] is the cloud's own side: its contents and settings, foreign writes, and the
//! record of all writes. The provider's side is the contract `LoadBalancers` of
//! [`SimCloud`](super::SimCloud).
//!
//! Each write is one change of one load balancer. Then the cloud works on it for a while
//! ([`Times`]) and accepts no other change. A *floating address* is a separate object: it is
//! attached after the creation, and outlives a load balancer that another client deletes.
//!
//! Annotations that these load balancers read:
//!
//! | annotation | effect |
//! |---|---|
//! | `sim/floating` | `true`: clients reach the load balancer at a floating address |
//! | `sim/keep-address` | `true`: the floating address stays after a deletion; only a Service of its name may ask for it |
//! | `sim/elsewhere` | not empty: another controller is responsible, for this reason |
//! | `sim/node-selector` | with `member_labels`: the labels of the nodes that may be members, as `pool=edge,zone` |
//! | `sim/note` | a remark |
//! | others with `sim/` | stored |
//!
//! `sim/load-balancer-id` is not read: these load balancers write it.

mod apply;
mod changes;
mod check;
mod deletions;
mod describe;
mod requests;
mod service;
mod store;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use ccm_cloud::{
    Cure, Digest, FrontEnd, FrontEndPort, IpFamily, LoadBalancerTraits, Member, Owner, Pool,
    Protocol, Traffic,
};
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use self::store::Store;

/// The beginning of the annotations that are read.
const PREFIX: &str = "sim/";
const FLOATING: &str = "sim/floating";
const KEEP_ADDRESS: &str = "sim/keep-address";
const ELSEWHERE: &str = "sim/elsewhere";
const NOTE: &str = "sim/note";
const SELECTOR: &str = "sim/node-selector";
/// The annotation that is written to the Service, and not read.
const OWN_ID: &str = "sim/load-balancer-id";

/// How long the cloud works after a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// After a creation or a repair.
    pub create: Duration,
    /// After a change of the configuration or of the owner.
    pub configure: Duration,
    /// After a change of members.
    pub members: Duration,
    /// After a deletion.
    pub delete: Duration,
}

/// The properties of these load balancers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalancerSettings {
    /// True if the cloud has load balancers.
    pub offered: bool,
    /// The properties that the provider reports.
    pub traits: LoadBalancerTraits,
    /// How long the cloud works after a write.
    pub times: Times,
    /// True if the write that creates the load balancer also makes listeners and members. Otherwise
    /// each of them takes one write.
    pub nested: bool,
    /// True if the cloud refuses writes of a former term, and a second load balancer of one owner.
    pub fences: bool,
    /// True if clients reach load balancers by DNS names.
    pub hostnames: bool,
    /// True if a load balancer without members shows the port of its members. If false, as with
    /// OpenStack, a change of its members returns [`NotSeen`](ccm_cloud::Progress::NotSeen).
    pub shows_empty: bool,
    /// The time after which the provider wants to be asked again.
    pub check_after: Duration,
    /// The labels of the nodes that may be members, unless a Service sets its own; as
    /// `pool=edge,zone`.
    pub node_selector: String,
}

impl Default for BalancerSettings {
    fn default() -> Self {
        Self {
            offered: true,
            traits: LoadBalancerTraits {
                annotations: vec![PREFIX.to_owned()],
                own_annotations: vec![OWN_ID.to_owned()],
                id_annotation: Some(OWN_ID.to_owned()),
                protocols: vec![Protocol::Tcp, Protocol::Udp, Protocol::Sctp],
                ..LoadBalancerTraits::default()
            },
            times: Times::default(),
            nested: true,
            fences: false,
            hostnames: false,
            shows_empty: true,
            check_after: Duration::from_secs(1),
            node_selector: String::new(),
        }
    }
}

/// The configuration of a load balancer, without its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The listeners.
    pub listeners: BTreeMap<(Protocol, u16), FrontEndPort>,
    /// The networks that may connect; empty means all.
    pub source_ranges: Vec<IpNet>,
    /// How long a client's connections go to the same member.
    pub affinity: Option<Duration>,
    /// The members that get a connection.
    pub traffic: Traffic,
    /// The annotations.
    pub settings: BTreeMap<String, String>,
}

/// The state of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It can be changed.
    Ready,
    /// The cloud works on it.
    Pending {
        /// The object that it works on.
        what: &'static str,
        /// The end of the work. `None`: a person must end it.
        until: Option<Instant>,
        /// The outcome at that time.
        then: Outcome,
    },
    /// The cloud could not carry out a change.
    Failed {
        /// The cloud's words.
        why: String,
        /// Who can repair it.
        cure: Cure,
    },
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is carried out.
    Done,
    /// It fails.
    Fails(Cure),
    /// The load balancer is deleted.
    Deleted,
}

/// A load balancer of the simulated cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimBalancer {
    /// Its ID.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The recorded owners. Several owners share a load balancer by port; the owners of a
    /// controller that does not record them have no UIDs.
    pub owners: Vec<Owner>,
    /// The Service for which a controller that does not record owners has made it: names without
    /// UIDs.
    pub made_for: Option<Owner>,
    /// Its configuration.
    pub configuration: Configuration,
    /// Its members, as far as the cloud knows them.
    pub members: Vec<Member>,
    /// Its own addresses.
    pub addresses: Vec<IpAddr>,
    /// The digest that is stored with it, and its content.
    pub applied: Option<Applied>,
    /// Its state.
    pub state: State,
    /// Changes with every write.
    pub version: u64,
    /// When it was created.
    pub created: Instant,
}

/// A stored digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The digest.
    pub digest: Digest,
    /// The configuration when it was stored.
    configured: String,
}

/// Returns the front end of this owner's Service if it sets only its ports: TCP and IPv4, no
/// settings.
pub fn plain_front_end(owner: Owner, ports: Vec<FrontEndPort>) -> FrontEnd {
    FrontEnd {
        owner,
        digest: Digest { version: 1, hash: 1 },
        families: vec![IpFamily::V4],
        requires_families: false,
        ports,
        source_ranges: Vec::new(),
        address: None,
        affinity: None,
        traffic: Traffic::Cluster,
        class: None,
        settings: BTreeMap::new(),
        service: None,
    }
}

/// Returns a port for TCP without a name.
pub fn plain_port(port: u16, member_port: u16) -> FrontEndPort {
    FrontEndPort {
        name: String::new(),
        protocol: Protocol::Tcp,
        port,
        member_port: Some(member_port),
        app_protocol: None,
    }
}

impl SimBalancer {
    /// Returns a load balancer that a person has made: one listener for TCP, no owner, no members.
    pub fn foreign(id: impl Into<String>, address: IpAddr, port: u16) -> Self {
        let id = id.into();
        let listener = plain_port(port, port);
        Self {
            name: id.clone(),
            id,
            owners: Vec::new(),
            made_for: None,
            configuration: Configuration {
                listeners: BTreeMap::from([((Protocol::Tcp, port), listener)]),
                source_ranges: Vec::new(),
                affinity: None,
                traffic: Traffic::Cluster,
                settings: BTreeMap::new(),
            },
            members: Vec::new(),
            addresses: vec![address],
            applied: None,
            state: State::Ready,
            version: 1,
            created: Instant::now(),
        }
    }

    /// Returns the names of its members, sorted.
    pub fn member_names(&self) -> BTreeSet<&str> {
        self.members.iter().map(|member| member.node.as_str()).collect()
    }

    /// Returns its members by port. Each port with a member port has all members.
    pub fn pools(&self) -> Vec<Pool> {
        let listeners = self.configuration.listeners.iter();
        let filled = listeners.filter(|(_, listener)| listener.member_port.is_some());
        let pool = |(&(protocol, port), _): (&(Protocol, u16), _)| Pool {
            protocol,
            port,
            members: self.members.len(),
            why_empty: None,
        };
        filled.map(pool).collect()
    }

    /// Returns true if this is its only owner.
    fn is_of(&self, owner: &Owner) -> bool {
        matches!(self.owners.as_slice(), [only] if only.is(owner))
    }

    fn families(&self) -> Vec<IpFamily> {
        self.addresses.iter().copied().map(IpFamily::from_address).collect()
    }

    /// Returns its name, and its owners': how faults name it.
    fn names(&self) -> Vec<String> {
        let owners = self.owners.iter().map(ToString::to_string);
        std::iter::once(self.name.clone()).chain(owners).collect()
    }
}

/// A write that the cloud has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The ID of the load balancer.
    pub id: String,
    /// Its kind.
    pub kind: WriteKind,
    /// The change.
    pub line: String,
    /// The term of leadership that it came with.
    pub term: Option<u64>,
}

/// The kinds of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteKind {
    /// A creation or a repair.
    Create,
    /// A change of the configuration or of the owner.
    Configure,
    /// A change of members.
    Members,
    /// A deletion.
    Delete,
}

/// The load balancers of a cloud.
#[derive(Default)]
pub struct Balancers(Mutex<Store>, Notify);

impl Balancers {
    /// Changes the properties of these load balancers.
    pub fn configure(&self, change: impl FnOnce(&mut BalancerSettings)) {
        change(&mut self.0.lock().settings);
        self.1.notify_waiters();
    }

    /// Waits until the properties change.
    pub(super) async fn configured(&self) {
        self.1.notified().await;
    }

    /// Returns the properties of these load balancers.
    pub fn settings(&self) -> BalancerSettings {
        self.0.lock().settings.clone()
    }

    /// Returns all load balancers, by ID.
    pub fn all(&self) -> Vec<SimBalancer> {
        self.settled(|store| store.balancers.values().cloned().collect())
    }

    /// Returns the load balancer with this ID.
    pub fn get(&self, id: &str) -> Option<SimBalancer> {
        self.settled(|store| store.balancers.get(id).cloned())
    }

    /// Returns the load balancers of this owner, by ID.
    pub fn of(&self, owner: &Owner) -> Vec<SimBalancer> {
        let mut all = self.all();
        all.retain(|balancer| balancer.owners.iter().any(|its| its.is(owner)));
        all
    }

    /// Adds a load balancer, or replaces the one with the same ID.
    pub fn add(&self, balancer: SimBalancer) {
        self.0.lock().balancers.insert(balancer.id.clone(), balancer);
    }

    /// Changes a load balancer as a person would: the stored digest stays, the version changes.
    /// Returns false if no load balancer has this ID.
    pub fn update(&self, id: &str, change: impl FnOnce(&mut SimBalancer)) -> bool {
        self.settled(|store| {
            let Some(balancer) = store.balancers.get_mut(id) else { return false };
            change(balancer);
            id.clone_into(&mut balancer.id);
            balancer.version += 1;
            true
        })
    }

    /// Deletes a load balancer as a person would: its floating address stays.
    pub fn remove(&self, id: &str) -> Option<SimBalancer> {
        self.settled(|store| store.take(id))
    }

    /// Returns all floating addresses with their owners. The owner of an address that was kept is
    /// `None`.
    pub fn floating(&self) -> BTreeMap<IpAddr, Option<Owner>> {
        self.settled(|store| {
            store
                .floating
                .iter()
                .map(|(ip, of)| (*ip, (!of.is_kept).then(|| of.owner.clone())))
                .collect()
        })
    }

    /// Returns the accepted writes since the last call of [`Balancers::reset_writes`].
    pub fn writes(&self) -> Vec<Write> {
        self.settled(|store| store.writes.clone())
    }

    /// Returns the number of accepted writes of this kind.
    pub fn written(&self, kind: WriteKind) -> usize {
        self.settled(|store| store.writes.iter().filter(|write| write.kind == kind).count())
    }

    /// Forgets the accepted writes and returns them.
    pub fn reset_writes(&self) -> Vec<Write> {
        self.settled(|store| std::mem::take(&mut store.writes))
    }

    /// Returns true if the cloud has load balancers.
    pub(super) fn offered(&self) -> bool {
        self.0.lock().settings.offered
    }

    fn settled<T>(&self, act: impl FnOnce(&mut Store) -> T) -> T {
        let mut store = self.0.lock();
        store.settle(Instant::now());
        act(&mut store)
    }
}

#[cfg(test)]
mod tests;
