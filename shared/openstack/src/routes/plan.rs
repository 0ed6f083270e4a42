//! Plans the changes of the router's table for a batch. Pure.

use std::{collections::BTreeMap, net::IpAddr};

use ccm_cloud::{
    AddressKind, CloudError, ErrorKind, IpFamily, Route, RouteChange, RouteTarget, WantedRoute,
};
use ccm_openstack_client::{
    network::{ExtraRoute, Router},
    text::MAX_VALUE,
};
use ipnet::IpNet;

/// A destination and its next hop.
pub type RouteKey = (IpNet, IpAddr);

/// The table of a router.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The routes, with Neutron's spelling.
    pub entries: BTreeMap<RouteKey, ExtraRoute>,
    /// The routes that cannot be read.
    pub malformed: Vec<String>,
    /// All routes, including malformed ones, as they must be written.
    pub all: Vec<ExtraRoute>,
    /// The router's revision.
    pub revision: Option<u64>,
}

impl Table {
    pub fn new(router: &Router) -> Self {
        let all = router.routes.clone();
        let mut table = Self { all, revision: router.revision_number, ..Self::default() };
        for route in &router.routes {
            let ExtraRoute { destination, nexthop } = route;
            match (destination.parse::<IpNet>(), nexthop.parse()) {
                (Ok(destination), Ok(hop)) => {
                    table.entries.insert((destination.trunc(), hop), route.clone());
                }
                _ => {
                    let line = format!("route to {destination:?} by {nexthop:?}");
                    table.malformed.push(ccm_base::message::one_line(&line, MAX_VALUE));
                }
            }
        }
        table
    }

    /// Returns the version of the contract.
    pub fn version(&self) -> Option<String> {
        self.revision.map(|revision| revision.to_string())
    }

    /// Returns the route as Neutron spells it, or as we do.
    fn spelt(&self, entry: RouteKey) -> ExtraRoute {
        let (destination, hop) = entry;
        let ours = || ExtraRoute { destination: destination.to_string(), nexthop: hop.to_string() };
        self.entries.get(&entry).cloned().unwrap_or_else(ours)
    }

    /// Returns another next hop of this destination.
    pub fn other(&self, (destination, hop): RouteKey) -> Option<IpAddr> {
        let mut hops = self.entries.keys().filter(|(own, _)| *own == destination);
        hops.find_map(|(_, own)| (*own != hop).then_some(*own))
    }
}

/// The effect of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The place of the change in its call.
    pub at: usize,
    /// The route to add.
    pub add: Option<(RouteKey, ExtraRoute)>,
    /// The route to remove.
    pub remove: Option<(RouteKey, ExtraRoute)>,
}

/// Returns the step of a change, decided on this table.
pub fn step(at: usize, change: &RouteChange, table: &Table) -> Result<Step, CloudError> {
    let spelt = |entry| (entry, table.spelt(entry));
    match change {
        RouteChange::Create(new) => {
            let entry = entry_of(new)?;
            match table.other(entry) {
                Some(other) => Err(conflict(entry, other)),
                None => Ok(Step { at, add: Some(spelt(entry)), remove: None }),
            }
        }
        RouteChange::Replace { old, new } => {
            let (before, entry) = (listed(old)?, entry_of(new)?);
            if before.0 != entry.0 {
                let what = format!("it cannot be replaced by a route to {}", entry.0);
                return Err(CloudError::new(ErrorKind::Invalid, what).about(before.0.to_string()));
            }
            unchanged(before, Some(entry), table)?;
            let remove = (before != entry && table.entries.contains_key(&before)).then_some(before);
            Ok(Step { at, add: Some(spelt(entry)), remove: remove.map(spelt) })
        }
        RouteChange::Delete(old) => {
            let before = listed(old)?;
            unchanged(before, None, table)?;
            Ok(Step { at, add: None, remove: Some(spelt(before)) })
        }
    }
}

/// Refuses a change of a route that has another target by now.
fn unchanged(before: RouteKey, wanted: Option<RouteKey>, table: &Table) -> Result<(), CloudError> {
    let is_there = table.entries.contains_key(&before);
    match table.other(before).filter(|other| Some((before.0, *other)) != wanted) {
        Some(other) if !is_there => {
            let what = format!("its next hop is {other} by now, and not {}", before.1);
            Err(CloudError::new(ErrorKind::Busy, what).about(before.0.to_string()))
        }
        _ => Ok(()),
    }
}

pub fn conflict((destination, hop): RouteKey, other: IpAddr) -> CloudError {
    let what = format!("has the next hop {other} already, so {hop} is not added");
    CloudError::new(ErrorKind::Conflict, what).about(destination.to_string())
}

/// Returns the entry of a route. The next hop is the node's first internal address of the
/// destination's family.
fn entry_of(wanted: &WantedRoute) -> Result<RouteKey, CloudError> {
    let destination = wanted.destination.trunc();
    let family = IpFamily::from_address(destination.addr());
    let internal = wanted.addresses.iter().filter(|it| it.kind == AddressKind::InternalIp);
    let mut addresses = internal.filter_map(|it| it.address.parse::<IpAddr>().ok());
    let hop = addresses.find(|address| IpFamily::from_address(*address) == family);
    hop.map(|hop| (destination, hop)).ok_or_else(|| {
        let what = format!("node {:?} has no internal {family} address", wanted.node.name);
        CloudError::new(ErrorKind::Invalid, what).about(destination.to_string())
    })
}

fn listed(route: &Route) -> Result<RouteKey, CloudError> {
    match &route.target {
        Some(RouteTarget::Address(hop)) => Ok((route.destination.trunc(), *hop)),
        other => {
            let target = other.as_ref().map_or("nothing".to_owned(), ToString::to_string);
            let what = format!("its target is {target}, which is not a next hop of Neutron");
            Err(CloudError::new(ErrorKind::Invalid, what).about(route.destination.to_string()))
        }
    }
}
