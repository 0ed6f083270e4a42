//! The route table of the cloud: it compares each request with its contents.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::{
    CloudError, ErrorKind, IpFamily, Owner, ProviderId, Route, RouteChange, RouteTable,
    RouteTarget, RouteTraits, WantedRoute,
};
use ccm_objects::Node;
use ipnet::IpNet;
use rand::{Rng as _, rngs::StdRng};

/// The kind of target that the cloud gives a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Address,
    Instance,
    Node,
}

/// A machine of the cloud.
#[derive(Clone, Debug)]
pub(super) struct Computer {
    pub(super) name: String,
    pub(super) ips: Vec<IpAddr>,
}

/// A route as it is in the cloud.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) route: Route,
    /// True for a route of others, which stays.
    pub(super) is_foreign: bool,
    /// The time at which its defect ends on its own.
    until: Option<At>,
}

/// The effect of a change on the table.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// The route after it.
    pub(super) route: Option<Route>,
    /// The route that is gone.
    pub(super) gone: Option<Entry>,
    /// True if the table has changed.
    pub(super) is_written: bool,
}

/// The table, and what its targets may be.
#[derive(Debug)]
pub(super) struct Router {
    pub(super) routes: BTreeMap<IpNet, Vec<Entry>>,
    /// By provider ID.
    pub(super) machines: BTreeMap<String, Computer>,
    /// Addresses that exist and do not belong to a machine.
    pub(super) ports: BTreeSet<IpAddr>,
    pub(super) traits: RouteTraits,
    /// True if the cloud records the owner of a route.
    pub(super) records_owner: bool,
    pub(super) quota: Option<usize>,
    pub(super) kind: Kind,
    /// How long a new route does not carry traffic.
    pub(super) create: Duration,
    pub(super) version: u64,
    has_versions: bool,
    made: u32,
}

impl Router {
    /// Creates the table of some cloud.
    pub(super) fn new(dice: &mut StdRng) -> Self {
        let kind = [Kind::Address, Kind::Instance, Kind::Node][dice.random_range(0..3)];
        let compares_version = dice.random();
        let (several_targets, replaces) = (dice.random_bool(0.3), dice.random());
        let records_owner = dice.random();
        let traits = RouteTraits {
            families: vec![IpFamily::V4, IpFamily::V6],
            several_targets,
            replaces,
            compares_version,
            target_ids: kind == Kind::Instance,
            target_addresses: kind == Kind::Address,
            max_batch: [1, 3, 500][dice.random_range(0..3)],
        };
        Self {
            routes: BTreeMap::new(),
            machines: BTreeMap::new(),
            ports: BTreeSet::new(),
            traits,
            records_owner,
            quota: dice.random_bool(0.2).then_some(24),
            kind,
            create: Duration::from_secs(if dice.random_bool(0.2) { 4 } else { 0 }),
            version: 0,
            has_versions: compares_version || dice.random(),
            made: 0,
        }
    }

    /// Returns the routes of a destination.
    pub(super) fn to(&self, destination: IpNet) -> &[Entry] {
        self.routes.get(&destination).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Entry> {
        self.routes.values().flatten()
    }

    /// Returns the routes of this cluster, except those to a destination for which others have a
    /// route.
    pub(super) fn only_ours(&self) -> Vec<Route> {
        let only_ours = self.routes.values().filter(|all| all.iter().all(|one| !one.is_foreign));
        only_ours.flatten().map(|entry| entry.route.clone()).collect()
    }

    pub(super) fn shown_version(&self) -> Option<String> {
        self.has_versions.then(|| self.version.to_string())
    }

    fn room(&self) -> Option<u32> {
        let room = self.quota?.saturating_sub(self.all().count());
        u32::try_from(room).ok()
    }

    /// Returns all routes as the cloud shows them.
    pub(super) fn table(&self) -> RouteTable {
        let routes = self.all().map(|entry| entry.route.clone()).collect();
        let (version, room) = (self.shown_version(), self.room());
        RouteTable { routes, version, room, ..RouteTable::default() }
    }

    /// Returns true if something with this target exists.
    pub(super) fn exists(&self, target: &RouteTarget) -> bool {
        match target {
            RouteTarget::Node(name) => self.machines.values().any(|one| one.name == *name),
            RouteTarget::Instance(id) => self.machines.contains_key(id.as_str()),
            RouteTarget::Address(ip) => self.ports.contains(ip) || self.has_address(*ip),
            RouteTarget::Blackhole(_) => false,
        }
    }

    pub(super) fn has_address(&self, ip: IpAddr) -> bool {
        self.machines.values().any(|one| one.ips.contains(&ip))
    }

    /// Returns the machine with the provider ID of a node, or else with its name. Several of that
    /// name are an error.
    pub(super) fn machine_of(&self, node: &Node) -> Result<Option<(&String, &Computer)>, ()> {
        if let Some(id) = &node.provider_id {
            return Ok(self.machines.get_key_value(&**id));
        }
        let mut named = self.machines.iter().filter(|(_, one)| *one.name == *node.name);
        let first = named.next();
        if named.next().is_some() { Err(()) } else { Ok(first) }
    }

    /// Ends defects with time.
    pub(super) fn tick(&mut self, now: At) {
        for entry in self.routes.values_mut().flatten() {
            if entry.until.is_some_and(|until| until <= now) {
                (entry.until, entry.route.defect) = (None, None);
            }
        }
    }

    /// Adds a route for another client, even if the destination has one.
    pub(super) fn add(&mut self, route: Route, is_foreign: bool) {
        let entry = Entry { route, is_foreign, until: None };
        self.routes.entry(entry.route.destination).or_default().push(entry);
        self.version += 1;
    }

    /// Deletes all routes of a destination for another client.
    pub(super) fn remove(&mut self, destination: IpNet) {
        self.routes.remove(&destination);
        self.version += 1;
    }

    /// Makes one change that the program asks for. `breaks`: a new route carries no traffic until it is made again.
    pub(super) fn change(
        &mut self,
        change: &RouteChange,
        breaks: bool,
        now: At,
    ) -> Result<Done, CloudError> {
        let done = match change {
            RouteChange::Create(new) => self.create(new, None, breaks, now),
            RouteChange::Replace { .. } if self.traits.several_targets => {
                Err(CloudError::new(ErrorKind::Invalid, "a destination may have both targets"))
            }
            RouteChange::Replace { old, new } => self.create(new, Some(old), breaks, now),
            RouteChange::Delete(old) => self.delete(old),
        }?;
        self.version += u64::from(done.is_written);
        Ok(done)
    }

    fn create(
        &mut self,
        new: &WantedRoute,
        old: Option<&Route>,
        breaks: bool,
        now: At,
    ) -> Result<Done, CloudError> {
        let (destination, target) = (new.destination, self.select(new)?);
        let place =
            self.to(destination).iter().position(|one| one.route.target == Some(target.clone()));
        if let Some(place) = place {
            return Ok(self.repair(destination, place, breaks));
        }
        let first = self.to(destination).first().cloned();
        let gone = match (first, old) {
            (None, _) => None,
            (Some(_), None) if self.traits.several_targets => None,
            (Some(there), Some(old)) if self.is_same(&there.route, old) => Some(there),
            (Some(_), Some(_)) => return Err(CloudError::new(ErrorKind::Busy, "it has changed")),
            (Some(_), None) => {
                return Err(CloudError::new(ErrorKind::Conflict, "there is a route"));
            }
        };
        if gone.is_none() && self.room() == Some(0) {
            return Err(CloudError::new(ErrorKind::QuotaExceeded, "the table is full"));
        }
        if gone.is_some() {
            self.routes.remove(&destination);
        }
        self.made += 1;
        let is_slow = !breaks && !self.create.is_zero();
        let defect = match (breaks, is_slow) {
            (true, _) => Some("the port does not allow it".to_owned()),
            (false, true) => Some("the cloud is still making it".to_owned()),
            (false, false) => None,
        };
        let route = Route {
            id: Some(format!("rt-{}", self.made)),
            destination,
            target: Some(target),
            owner: self.records_owner.then(|| new.owner.clone()),
            defect,
        };
        let until = is_slow.then(|| now + self.create);
        let entry = Entry { route: route.clone(), is_foreign: false, until };
        self.routes.entry(destination).or_default().push(entry);
        Ok(Done { route: Some(route), gone, is_written: true })
    }

    fn repair(&mut self, destination: IpNet, place: usize, breaks: bool) -> Done {
        let Some(entry) = self.routes.get_mut(&destination).and_then(|all| all.get_mut(place))
        else {
            return Done::default();
        };
        let is_broken = entry.route.defect.is_some() && entry.until.is_none();
        if is_broken && !breaks {
            entry.route.defect = None;
        }
        Done { route: Some(entry.route.clone()), gone: None, is_written: is_broken }
    }

    fn delete(&mut self, old: &Route) -> Result<Done, CloudError> {
        let destination = old.destination.trunc();
        let there = self.to(destination);
        let changed = || Err(CloudError::new(ErrorKind::Busy, "it has changed"));
        let place = match there.iter().position(|one| one.route.id == old.id) {
            Some(place) if self.is_same(&there[place].route, old) => place,
            Some(_) => return changed(),
            // The route is gone, or another one has replaced it.
            None if self.traits.several_targets => return Ok(Done::default()),
            None if there.iter().all(|one| one.route.target == old.target) => {
                return Ok(Done::default());
            }
            None => return changed(),
        };
        let mut gone = None;
        if let Some(routes) = self.routes.get_mut(&destination) {
            gone = Some(routes.remove(place));
            if routes.is_empty() {
                self.routes.remove(&destination);
            }
        }
        Ok(Done { route: None, gone, is_written: true })
    }

    /// Returns true if a route is as it was listed.
    fn is_same(&self, route: &Route, old: &Route) -> bool {
        let is_of_it = match (&route.owner, &old.owner) {
            (Some(its), Some(listed)) => Owner::is(its, listed),
            (its, listed) => its.is_none() && listed.is_none(),
        };
        route.target == old.target && (is_of_it || !self.records_owner)
    }

    /// Returns the target that the cloud gives a route.
    fn select(&self, new: &WantedRoute) -> Result<RouteTarget, CloudError> {
        let lacks =
            |what: &str| CloudError::new(ErrorKind::Invalid, format!("the node has no {what}"));
        match self.kind {
            Kind::Node => Ok(RouteTarget::Node(new.node.name.clone())),
            Kind::Instance => {
                let id = new.node.provider_id.as_deref().ok_or_else(|| lacks("provider ID"))?;
                let none = || CloudError::new(ErrorKind::NotFound, format!("no instance {id}"));
                let id = self.machines.contains_key(id).then_some(id).ok_or_else(none)?;
                ProviderId::parse(id).map(RouteTarget::Instance).map_err(|_| lacks("valid ID"))
            }
            Kind::Address => {
                let family = IpFamily::from_address(new.destination.addr());
                let mut ips = new.addresses.iter().filter_map(|one| one.address.parse().ok());
                let ip = ips.find(|ip: &IpAddr| IpFamily::from_address(*ip) == family);
                ip.map(RouteTarget::Address).ok_or_else(|| lacks("address"))
            }
        }
    }
}
