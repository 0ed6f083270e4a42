//! The contents of the router, and the effect of a change on them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ccm_cloud::{
    CloudError, ClusterId, Cure, ErrorKind, IpFamily, Owner, Route, RouteChange, RouteTarget,
    WantedRoute,
};
use ipnet::IpNet;
use tokio::time::Instant;

use super::{Defect, RouteWrite, RouteWriteKind, RouterSettings, SimRoute};
use crate::faults::Trouble;

/// Routes, ports, and the record of writes.
#[derive(Default)]
pub(super) struct Store {
    pub(super) settings: RouterSettings,
    /// By destination without host bits.
    pub(super) routes: BTreeMap<IpNet, Vec<SimRoute>>,
    pub(super) ports: BTreeSet<IpAddr>,
    pub(super) version: u64,
    pub(super) writes: Vec<RouteWrite>,
    /// Requests that arrive later, the next one first.
    late: BTreeMap<Instant, Vec<Late>>,
    /// The latest term of each cluster, by its UID.
    terms: BTreeMap<String, u64>,
    /// How many routes were ever created, for IDs.
    created: u32,
}

/// A request that arrives later. Its answer is dropped.
pub(super) type Late = Box<dyn FnOnce(&mut Store, Instant) + Send>;

/// The circumstances of a change.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) now: Instant,
    pub(super) cluster: ClusterId,
    pub(super) term: Option<u64>,
    pub(super) trouble: Option<Trouble>,
    /// The wanted route's target; an error if the node does not have one.
    pub(super) target: Result<Option<RouteTarget>, CloudError>,
}

impl Store {
    /// Carries out everything that was due until now.
    pub(super) fn settle(&mut self, now: Instant) {
        while let Some(first) = self.late.first_entry().filter(|first| *first.key() <= now) {
            let (due, late) = first.remove_entry();
            for request in late {
                request(self, due);
            }
        }
        if self.settings.create.is_zero() {
            return;
        }
        for route in self.routes.values_mut().flatten() {
            route.defect.take_if(|defect| defect.until.is_some_and(|until| until <= now));
        }
    }

    /// Carries out a request when its time has come.
    pub(super) fn delay(&mut self, due: Instant, request: Late) {
        self.late.entry(due).or_default().push(request);
    }

    /// Returns the routes of a destination.
    pub(super) fn at(&self, destination: IpNet) -> &[SimRoute] {
        self.routes.get(&destination.trunc()).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the version as the cloud shows it.
    pub(super) fn shown_version(&self) -> Option<String> {
        self.settings.versions.then(|| self.version.to_string())
    }

    /// Returns how many routes can be added.
    pub(super) fn room(&self) -> Option<u32> {
        let quota = self.settings.quota?;
        let count = self.routes.values().map(Vec::len).sum::<usize>();
        Some(quota.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX)))
    }

    /// Changes the route of a destination as a person does, or creates one.
    pub(super) fn overtake(&mut self, destination: IpNet) {
        let address = match destination {
            IpNet::V4(_) => IpAddr::from([192, 0, 2, 1]),
            IpNet::V6(_) => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
        };
        self.ports.insert(address);
        let target = RouteTarget::Address(address);
        let routes = self.routes.entry(destination.trunc()).or_default();
        match routes.first_mut() {
            Some(route) => route.target = Some(target),
            None => routes.push(SimRoute::foreign("overtaken", destination, target)),
        }
        self.version += 1;
    }

    /// Refuses a former leader, if the cloud can.
    pub(super) fn fence(&mut self, cluster: &str, term: Option<u64>) -> Result<(), CloudError> {
        let Some(term) = term.filter(|_| self.settings.fences) else { return Ok(()) };
        let latest = self.terms.entry(cluster.to_owned()).or_insert(term);
        if term < *latest {
            let why = format!("term {term} is over: a write of term {latest} has been seen");
            return Err(CloudError::new(ErrorKind::Stale, why).about("term"));
        }
        *latest = term;
        Ok(())
    }

    /// Makes one change. The answer is the route after the change.
    pub(super) fn change(
        &mut self,
        change: &RouteChange,
        context: &Context,
    ) -> Result<Option<Route>, CloudError> {
        self.fence(&context.cluster.uid, context.term)?;
        let several = self.settings.traits.several_targets;
        match change {
            RouteChange::Create(wanted) => self.create(wanted, None, context).map(Some),
            RouteChange::Replace { old, new } => {
                if several || old.destination.trunc() != new.destination.trunc() {
                    let what = "a replacement keeps its destination, which has only one target";
                    let error = CloudError::new(ErrorKind::Invalid, what);
                    return Err(error.about(old.destination.to_string()));
                }
                self.create(new, Some(old), context).map(Some)
            }
            RouteChange::Delete(old) => self.delete(old, context).map(|()| None),
        }
    }

    fn create(
        &mut self,
        wanted: &WantedRoute,
        old: Option<&Route>,
        context: &Context,
    ) -> Result<Route, CloudError> {
        let destination = wanted.destination.trunc();
        let traits = &self.settings.traits;
        if !traits.families.contains(&IpFamily::from_address(destination.addr())) {
            let what = "this router does not accept destinations of this family";
            return Err(CloudError::new(ErrorKind::Invalid, what).about(destination.to_string()));
        }
        let target = context.target.clone()?;
        let now = self.at(destination);
        if let Some(at) = now.iter().position(|route| route.target == target) {
            return Ok(self.repair(destination, at, context));
        }
        let replaced = match (now.first(), old) {
            (None, _) => None,
            (Some(_), None) if traits.several_targets => None,
            (Some(route), Some(old)) if self.is_same(route, old) => Some(route.target.clone()),
            (Some(route), Some(_)) => return Err(changed(route)),
            (Some(route), None) => {
                let what = format!("{destination} has a route {} already", to(route));
                let error = CloudError::new(ErrorKind::Conflict, what);
                return Err(error.about(destination.to_string()));
            }
        };
        if replaced.is_none() && self.room() == Some(0) {
            let quota = self.settings.quota.unwrap_or_default();
            let what = format!("the router has {quota} routes, its quota");
            return Err(CloudError::new(ErrorKind::QuotaExceeded, what).about("routes"));
        }
        let before = replaced.clone().flatten();
        match (replaced.is_some(), traits.replaces) {
            (true, true) => {
                self.record(RouteWriteKind::Replace, destination, before, target.as_ref(), context);
            }
            (true, false) => {
                self.record(RouteWriteKind::Delete, destination, before, None, context);
                self.record(RouteWriteKind::Create, destination, None, target.as_ref(), context);
            }
            (false, _) => {
                self.record(RouteWriteKind::Create, destination, None, target.as_ref(), context);
            }
        }
        if replaced.is_some() {
            self.routes.remove(&destination);
        }
        self.created += 1;
        let records = self.settings.records_owner;
        let route = SimRoute {
            id: format!("rt-{:05}", self.created),
            destination,
            owner: records.then(|| wanted.owner.clone()),
            defect: self.defect(destination, target.as_ref(), context),
            target,
        };
        let shown = route.describe();
        self.routes.entry(destination).or_default().push(route);
        Ok(shown)
    }

    /// Repairs the defect of a route that is otherwise as wanted.
    fn repair(&mut self, destination: IpNet, at: usize, context: &Context) -> Route {
        let route = &self.at(destination)[at];
        let curable = route
            .defect
            .as_ref()
            .is_some_and(|defect| defect.cure == Cure::Ensure && defect.until.is_none());
        let target = route.target.clone();
        if curable {
            self.record(
                RouteWriteKind::Repair,
                destination,
                target.clone(),
                target.as_ref(),
                context,
            );
            let defect = self.defect(destination, target.as_ref(), context);
            let defect = defect.filter(|defect| defect.until.is_none());
            if let Some(route) = self.routes.get_mut(&destination).and_then(|all| all.get_mut(at)) {
                route.defect = defect;
            }
        }
        self.at(destination)[at].describe()
    }

    fn delete(&mut self, old: &Route, context: &Context) -> Result<(), CloudError> {
        let destination = old.destination.trunc();
        let now = self.at(destination);
        let Some(at) = now.iter().position(|route| self.is_same(route, old)) else {
            let several = self.settings.traits.several_targets;
            let known = now.iter().find(|route| {
                !several || route.target == old.target || Some(&route.id) == old.id.as_ref()
            });
            return known.map_or(Ok(()), |route| Err(changed(route)));
        };
        self.record(RouteWriteKind::Delete, destination, old.target.clone(), None, context);
        if let Some(routes) = self.routes.get_mut(&destination) {
            routes.remove(at);
            if routes.is_empty() {
                self.routes.remove(&destination);
            }
        }
        Ok(())
    }

    /// Returns true if a route is as it was listed.
    fn is_same(&self, route: &SimRoute, old: &Route) -> bool {
        let owner = match (&route.owner, &old.owner) {
            (Some(its), Some(listed)) => its.is(listed),
            (its, listed) => its.is_none() && listed.is_none(),
        };
        route.target == old.target && (owner || !self.settings.records_owner)
    }

    /// Returns the defect of a new or repaired route.
    fn defect(
        &self,
        destination: IpNet,
        target: Option<&RouteTarget>,
        context: &Context,
    ) -> Option<Defect> {
        let target = target.map(ToString::to_string).unwrap_or_default();
        let broken = |cure| Defect {
            why: format!("the port of {target} does not allow {destination}"),
            cure,
            until: None,
        };
        match &context.trouble {
            Some(Trouble::Break(cure)) => Some(broken(*cure)),
            Some(Trouble::Stick) => Some(broken(Cure::Person)),
            _ if self.settings.create.is_zero() => None,
            _ => Some(Defect {
                why: format!("the cloud is still making {destination}"),
                cure: Cure::Ensure,
                until: Some(context.now + self.settings.create),
            }),
        }
    }

    fn record(
        &mut self,
        kind: RouteWriteKind,
        destination: IpNet,
        before: Option<RouteTarget>,
        after: Option<&RouteTarget>,
        context: &Context,
    ) {
        self.writes.push(RouteWrite {
            kind,
            destination,
            targets: (before, after.cloned()),
            cluster: context.cluster.uid.clone(),
            term: context.term,
        });
    }
}

/// Returns the refusal to change what is not as it was listed.
fn changed(route: &SimRoute) -> CloudError {
    let owner: Option<&Owner> = route.owner.as_ref();
    let owner = owner.map(|owner| format!(", of {owner}")).unwrap_or_default();
    let what = format!("{} has changed: it leads {}{owner}", route.destination, to(route));
    CloudError::new(ErrorKind::Busy, what).about(route.destination.to_string())
}

fn to(route: &SimRoute) -> String {
    match &route.target {
        Some(target) => format!("to {target}"),
        None => "nowhere".to_owned(),
    }
}
