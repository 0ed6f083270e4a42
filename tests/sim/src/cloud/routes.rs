//! The routes of the simulated cloud: one router of a project, which several clusters share.
//!
//! [`Router`] is the cloud's own side: its contents and settings, foreign writes, and the record
//! of all writes. The provider's side is the contract `Routes` of [`SimCloud`](super::SimCloud).

mod service;
mod store;

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use ccm_cloud::{Cure, Owner, Route, RouteTarget, RouteTraits};
use ipnet::IpNet;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use self::store::Store;

/// The kind of a route's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// The address of the next hop.
    Address,
    /// An instance.
    Instance,
    /// The name of a node.
    Node,
}

/// The properties of the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterSettings {
    /// True if the cloud has routes.
    pub offered: bool,
    /// The properties that the provider reports.
    pub traits: RouteTraits,
    /// The kind of a route's target.
    pub targets: TargetKind,
    /// The most routes.
    pub quota: Option<u32>,
    /// True if the table has a version.
    pub versions: bool,
    /// True if the cloud records the owner of a route.
    pub records_owner: bool,
    /// True if the cloud refuses writes of a former term.
    pub fences: bool,
    /// How long the cloud needs to make a new route, which has a defect until then.
    pub create: Duration,
}

impl Default for RouterSettings {
    fn default() -> Self {
        Self {
            offered: true,
            traits: RouteTraits {
                target_ids: false,
                target_addresses: true,
                max_batch: 500,
                ..RouteTraits::default()
            },
            targets: TargetKind::Address,
            quota: None,
            versions: true,
            records_owner: false,
            fences: false,
            create: Duration::ZERO,
        }
    }
}

/// The reason why a route does not carry traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The cloud's words.
    pub why: String,
    /// The effect of the next creation of the same route.
    pub cure: Cure,
    /// The time when it ends on its own.
    pub until: Option<Instant>,
}

/// A route of the simulated cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimRoute {
    /// Its ID.
    pub id: String,
    /// The packets that it takes.
    pub destination: IpNet,
    /// Where it sends the packets. `None` for a route that drops them.
    pub target: Option<RouteTarget>,
    /// The owner recorded with it.
    pub owner: Option<Owner>,
    /// The reason why it does not carry traffic.
    pub defect: Option<Defect>,
}

impl SimRoute {
    /// Returns a route that a person has made. Without a target it drops packets.
    pub fn foreign(
        id: impl Into<String>,
        destination: IpNet,
        target: impl Into<Option<RouteTarget>>,
    ) -> Self {
        Self { id: id.into(), destination, target: target.into(), owner: None, defect: None }
    }

    /// Returns the route as the cloud shows it.
    pub fn describe(&self) -> Route {
        Route {
            id: Some(self.id.clone()),
            destination: self.destination,
            target: self.target.clone(),
            owner: self.owner.clone(),
            defect: self.defect.as_ref().map(|defect| defect.why.clone()),
        }
    }

    /// Returns its destination and its owner's name: how faults name it.
    fn names(&self) -> Vec<String> {
        let owner = self.owner.iter().map(|owner| owner.name.clone());
        std::iter::once(self.destination.trunc().to_string()).chain(owner).collect()
    }
}

/// A write that the cloud has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteWrite {
    /// Its kind.
    pub kind: RouteWriteKind,
    /// The destination.
    pub destination: IpNet,
    /// The target before and after it.
    pub targets: (Option<RouteTarget>, Option<RouteTarget>),
    /// The cluster's UID.
    pub cluster: String,
    /// The term of leadership that it came with.
    pub term: Option<u64>,
}

/// The kinds of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteWriteKind {
    /// A new route.
    Create,
    /// A repair of a defect.
    Repair,
    /// Another target for a destination, in one step.
    Replace,
    /// A deletion.
    Delete,
}

/// The router of a cloud.
#[derive(Default)]
pub struct Router(Mutex<Store>);

impl Router {
    /// Changes the properties of the router.
    pub fn configure(&self, change: impl FnOnce(&mut RouterSettings)) {
        change(&mut self.0.lock().settings);
    }

    /// Returns the properties of the router.
    pub fn settings(&self) -> RouterSettings {
        self.0.lock().settings.clone()
    }

    /// Returns all routes, by destination.
    pub fn all(&self) -> Vec<SimRoute> {
        self.settled(|store| store.routes.values().flatten().cloned().collect())
    }

    /// Returns the routes of one destination.
    pub fn to(&self, destination: IpNet) -> Vec<SimRoute> {
        self.settled(|store| store.at(destination).to_vec())
    }

    /// Returns the number of routes.
    pub fn len(&self) -> usize {
        self.settled(|store| store.routes.values().map(Vec::len).sum())
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the version of the table.
    pub fn version(&self) -> u64 {
        self.settled(|store| store.version)
    }

    /// Adds a route as a person would, even if the destination has one.
    pub fn add(&self, route: SimRoute) {
        self.settled(|store| {
            store.routes.entry(route.destination.trunc()).or_default().push(route);
            store.version += 1;
        });
    }

    /// Changes the first route of a destination as a person would. Returns false if the destination
    /// has no route.
    pub fn update(&self, destination: IpNet, change: impl FnOnce(&mut SimRoute)) -> bool {
        self.settled(|store| {
            let routes = store.routes.get_mut(&destination.trunc());
            let Some(route) = routes.and_then(|routes| routes.first_mut()) else { return false };
            change(route);
            route.destination = destination;
            store.version += 1;
            true
        })
    }

    /// Deletes all routes of a destination as a person would, and returns their number.
    pub fn remove(&self, destination: IpNet) -> usize {
        self.settled(|store| {
            let removed = store.routes.remove(&destination.trunc()).map_or(0, |all| all.len());
            store.version += u64::from(removed > 0);
            removed
        })
    }

    /// Deletes all routes.
    pub fn clear(&self) {
        self.settled(|store| {
            store.routes.clear();
            store.version += 1;
        });
    }

    /// Adds an address that exists, but does not belong to an instance.
    pub fn add_port(&self, address: IpAddr) {
        self.0.lock().ports.insert(address);
    }

    /// Removes such an address. Returns false if it does not exist.
    pub fn remove_port(&self, address: IpAddr) -> bool {
        self.0.lock().ports.remove(&address)
    }

    /// Returns the addresses that exist and do not belong to an instance.
    pub fn ports(&self) -> BTreeSet<IpAddr> {
        self.0.lock().ports.clone()
    }

    /// Returns the accepted writes since the last call of [`Router::reset_writes`].
    pub fn writes(&self) -> Vec<RouteWrite> {
        self.settled(|store| store.writes.clone())
    }

    /// Returns the number of accepted writes of this kind.
    pub fn written(&self, kind: RouteWriteKind) -> usize {
        self.settled(|store| store.writes.iter().filter(|write| write.kind == kind).count())
    }

    /// Forgets the accepted writes and returns them.
    pub fn reset_writes(&self) -> Vec<RouteWrite> {
        self.settled(|store| std::mem::take(&mut store.writes))
    }

    fn settled<T>(&self, act: impl FnOnce(&mut Store) -> T) -> T {
        let mut store = self.0.lock();
        store.settle(Instant::now());
        act(&mut store)
    }
}

#[cfg(test)]
mod tests;
