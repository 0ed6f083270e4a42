//! The route table as this process knows it: as listed, with its own later changes, so that it need
//! not be listed after each one.

use std::collections::{BTreeMap, HashSet};

use ccm_cloud::{AppliedChange, Route, RouteChange, RouteTable, RouteTarget};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// The routes by destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    routes: BTreeMap<IpNet, Vec<Route>>,
    /// Its version, if the cloud has one.
    pub version: Option<String>,
    /// How many routes can be added, if the cloud says so.
    pub room: Option<u32>,
}

impl From<RouteTable> for Table {
    fn from(listed: RouteTable) -> Self {
        let mut routes: BTreeMap<IpNet, Vec<Route>> = BTreeMap::new();
        for route in listed.routes {
            let known = routes.entry(route.destination.trunc()).or_default();
            // A list that is read in pages may show a route on two of them.
            if !known.iter().any(|known| is_same(known, &route)) {
                add(known, route);
            }
        }
        Self { routes, version: listed.version, room: listed.room }
    }
}

impl Table {
    /// Returns the destinations.
    pub fn destinations(&self) -> impl Iterator<Item = IpNet> {
        self.routes.keys().copied()
    }

    /// Returns the routes to a destination.
    pub fn to(&self, destination: IpNet) -> &[Route] {
        self.routes.get(&destination).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the targets of all routes.
    pub fn targets(&self) -> HashSet<&RouteTarget> {
        self.routes.values().flatten().filter_map(|route| route.target.as_ref()).collect()
    }

    /// Applies a change that has succeeded.
    pub fn apply(&mut self, change: &RouteChange, applied: &AppliedChange) {
        let destination = change.destination();
        let routes = self.routes.entry(destination).or_default();
        let before = routes.len();
        if let RouteChange::Replace { old, .. } | RouteChange::Delete(old) = change {
            remove(routes, old);
        }
        // It may exist already, because it was repaired, or listed between the change and its
        // answer.
        applied.route.iter().for_each(|route| remove(routes, route));
        applied.route.iter().for_each(|route| add(routes, route.clone()));
        let after = routes.len();
        if routes.is_empty() {
            self.routes.remove(&destination);
        }
        if let Some(room) = &mut self.room {
            let count = |routes: usize| u32::try_from(routes).unwrap_or(u32::MAX);
            *room = room.saturating_add(count(before)).saturating_sub(count(after));
        }
        if applied.version.is_some() {
            self.version.clone_from(&applied.version);
        }
    }
}

/// Adds a route. A destination has one route, rarely two, but a vector that grows has room for
/// four.
fn add(routes: &mut Vec<Route>, route: Route) {
    routes.reserve_exact(1);
    routes.push(route);
}

/// Removes the route with the same target, and of several such the one with the same ID.
fn remove(routes: &mut Vec<Route>, route: &Route) {
    let exactly = routes.iter().position(|other| is_same(other, route));
    let same_target = |other: &Route| other.target == route.target;
    if let Some(place) = exactly.or_else(|| routes.iter().position(same_target)) {
        routes.remove(place);
    }
}

/// Returns true if the two routes to one destination are the same one in the cloud.
fn is_same(one: &Route, other: &Route) -> bool {
    one.target == other.target && one.id == other.id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_a_list_shows_twice_is_one() {
        let route = |id: Option<&str>, target: [u8; 4]| {
            let destination = "10.244.1.0/24".parse().unwrap();
            let route = Route::new(destination, RouteTarget::Address(target.into()));
            Route { id: id.map(str::to_owned), ..route }
        };
        let [one, two] = [[10, 0, 0, 1], [10, 0, 0, 2]];
        for (id, other, target, count) in [
            (None, None, one, 1),
            (Some("r-1"), Some("r-1"), one, 1),
            (Some("r-1"), Some("r-2"), one, 2),
            (None, None, two, 2),
        ] {
            let routes = vec![route(id, one), route(other, target)];
            let table = Table::from(RouteTable { routes, ..RouteTable::default() });
            let destination = "10.244.1.0/24".parse().unwrap();
            assert_eq!(table.to(destination).len(), count, "{id:?} {other:?}");
        }
    }
}
