//! Writes routes and pairs in an order that hides no half of a change: a pair is removed before its
//! route, and added after it. The next list finds a change whose second half failed: as a route
//! that still exists, or as a route with a defect.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ccm_cloud::{
    AppliedChange, Call, CloudError, ErrorKind, Route, RouteChange, RouteTarget,
    repeated_destinations,
};
use ccm_openstack_client::{
    api::AT_ONCE,
    network::{ExtraRoute, Hop},
};
use futures::{StreamExt as _, stream};
use ipnet::IpNet;

use super::{
    Features, MAX_BATCH, NeutronRoutes,
    pairs::{changed, lacks},
    plan::{RouteKey, Step, Table, conflict, step},
};

/// The number of times that a port is read again which another client changes at the same time.
const REREADS: usize = 2;

/// The maximum number of refused requests that one call may make to find the wrong routes.
const MAX_REFUSALS: usize = 40;

/// The answer to one change.
pub type Applied = (usize, Result<AppliedChange, CloudError>);

/// The pairs that one port still needs.
pub struct Job {
    port: Hop,
    pairs: BTreeSet<IpNet>,
    /// The changes that wait for them, with their answers.
    waiting: Vec<(usize, AppliedChange)>,
}

impl NeutronRoutes {
    /// Makes the changes, except pairs of new routes: these are left as jobs.
    pub async fn begin(
        &self,
        changes: &[RouteChange],
        base: Option<&str>,
        call: Call,
    ) -> Result<(Vec<Applied>, Vec<Job>), CloudError> {
        if changes.len() > MAX_BATCH {
            let what =
                format!("{} changes of routes in one call, at most {MAX_BATCH}", changes.len());
            return Err(CloudError::new(ErrorKind::Invalid, what));
        }
        let features = self.features(call).await?;
        let table = self.table(!features.atomic, call).await?;
        if !features.atomic {
            compare(&table, base)?;
        }
        let mut failed = repeated_destinations(changes);
        let mut steps = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            if failed.contains_key(&at) {
                continue;
            }
            match step(at, change, &table) {
                Ok(step) => steps.push(step),
                Err(error) => drop(failed.insert(at, error)),
            }
        }
        if features.pairs {
            failed.extend(self.close_pairs(&steps, call).await);
            steps.retain(|step| !failed.contains_key(&step.at));
        }
        let hops: BTreeSet<IpAddr> =
            steps.iter().filter_map(|step| Some(step.add.as_ref()?.0.1)).collect();
        let ports = async {
            match features.pairs {
                true => self.hops.find(&self.neutron, &self.router, &hops, call).await,
                false => Ok(BTreeMap::new()),
            }
        };
        let written = self.write(features, table, &steps, &mut failed, call);
        let (ports, table) = tokio::join!(ports, written);
        let version = table.version();
        *self.table.lock() = Some(table);
        self.hops.forget_missing(&hops);
        let ports = ports.as_ref().map_err(Clone::clone);
        let ports = features.pairs.then_some(ports);
        Ok(concluded(steps, ports.as_ref(), version.as_ref(), failed))
    }

    /// Adds the pairs of one port, and answers the changes that waited for them.
    pub async fn finish(&self, job: Job, call: Call) -> Vec<Applied> {
        let Job { port, pairs, mut waiting } = job;
        let id = port.id.clone();
        let outcome = match self.write_pairs(port, &pairs, &BTreeSet::new(), call).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let what = format!("the port {id} of the next hop is gone");
                Err(CloudError::new(ErrorKind::NotFound, what).about(format!("port {id}")))
            }
            // The routes exist, and need one more request in a later call.
            Err(error) if is_left_over(&error) => {
                for route in waiting.iter_mut().filter_map(|(_, applied)| applied.route.as_mut()) {
                    let to = route.destination;
                    route.defect = Some(format!("port {id} does not allow {to} yet: {error}"));
                }
                Ok(())
            }
            Err(error) => Err(error),
        };
        waiting.into_iter().map(|(at, applied)| (at, outcome.clone().map(|()| applied))).collect()
    }

    /// Removes the pairs of routes that must be removed, and returns the failures. A deleted port has
    /// no pairs.
    async fn close_pairs(&self, steps: &[Step], call: Call) -> Vec<(usize, CloudError)> {
        let removed = |step: &Step| Some((step.at, step.remove.as_ref()?.0));
        let removed: Vec<(usize, RouteKey)> = steps.iter().filter_map(removed).collect();
        if removed.is_empty() {
            return Vec::new();
        }
        let hops = removed.iter().map(|(_, (_, hop))| *hop).collect();
        let ports = match self.hops.find(&self.neutron, &self.router, &hops, call).await {
            Ok(ports) => ports,
            Err(error) => return removed.iter().map(|(at, _)| (*at, error.clone())).collect(),
        };
        let mut by_port: BTreeMap<String, (Hop, BTreeSet<IpNet>, Vec<usize>)> = BTreeMap::new();
        for (at, (destination, hop)) in removed {
            if let Some(port) = ports.get(&hop) {
                let of_port = || (port.clone(), BTreeSet::new(), Vec::new());
                let (_, networks, places) = by_port.entry(port.id.clone()).or_insert_with(of_port);
                networks.insert(destination);
                places.push(at);
            }
        }
        let none = BTreeSet::new();
        let none = &none;
        let writes = by_port.into_values().map(|(port, networks, places)| async move {
            (self.write_pairs(port, none, &networks, call).await.err(), places)
        });
        let writes = stream::iter(writes.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
        let mut failed = Vec::new();
        for (error, places) in writes.collect::<Vec<_>>().await {
            if let Some(error) = error {
                failed.extend(places.into_iter().map(|at| (at, error.clone())));
            }
        }
        failed
    }

    /// Changes the pairs of a port by one request, and again if another client changed the port in
    /// the meantime. `false` if the port is gone.
    async fn write_pairs(
        &self,
        mut port: Hop,
        add: &BTreeSet<IpNet>,
        remove: &BTreeSet<IpNet>,
        call: Call,
    ) -> Result<bool, CloudError> {
        let id = port.id.clone();
        let mut rereads = 0;
        loop {
            let Some(pairs) = changed(&port, add, remove) else { return Ok(true) };
            let outcome = match self.neutron.put_pairs(&port, &pairs, call).await {
                Err(error) if error.kind == ErrorKind::Busy && rereads < REREADS => {
                    rereads += 1;
                    self.neutron.hop(&id, call).await
                }
                Ok(written) => {
                    self.hops.update(&id, written.as_ref());
                    return Ok(written.is_some());
                }
                Err(error) => Err(error),
            };
            let Some(reread) = outcome? else {
                self.hops.update(&id, None);
                return Ok(false);
            };
            self.hops.update(&id, Some(&reread));
            port = reread;
        }
    }

    /// Writes the routes of the steps with as few requests as possible, and returns the table as
    /// it is then. Removals go first, by themselves: they need no room and make some. A request
    /// that is refused as invalid is made again in halves, so that one wrong route affects no
    /// other one.
    async fn write(
        &self,
        features: Features,
        mut table: Table,
        steps: &[Step],
        failed: &mut BTreeMap<usize, CloudError>,
        call: Call,
    ) -> Table {
        let (mut additions, removals): (Vec<&Step>, Vec<_>) =
            steps.iter().partition(|step| step.add.is_some());
        // Only the exchange itself may use the room that it makes.
        additions.sort_by_key(|step| step.remove.is_none());
        let mut parts = vec![additions, removals];
        let mut refusals = 0;
        while let Some(part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            let Err(error) = self.write_part(features, &mut table, &part, call).await else {
                if features.atomic {
                    self.take_back(&mut table, &part, failed, call).await;
                }
                continue;
            };
            if !features.atomic && (error.kind == ErrorKind::Busy || error.maybe_done) {
                // The other parts would write the old list of routes.
                let rest = parts.into_iter().flatten().chain(part);
                failed.extend(rest.map(|step| failure(step, &error)));
                return table;
            }
            refusals += 1;
            let is_full = error.kind == ErrorKind::QuotaExceeded && part.len() == 1;
            let (again, given_up) = divided(part, &error, &table, refusals);
            parts.extend(again);
            failed.extend(given_up);
            // Not one more route fits: only changes that need no room are still tried.
            for waiting in parts.iter_mut().filter(|_| is_full) {
                let refused = waiting.extract_if(.., |step| needs_room(step, &table));
                failed.extend(refused.map(|step| failure(step, &error)));
            }
        }
        table
    }

    /// Removes added routes whose destination has got another next hop from another client at the
    /// same time: there must not be two.
    async fn take_back(
        &self,
        table: &mut Table,
        added: &[&Step],
        failed: &mut BTreeMap<usize, CloudError>,
        call: Call,
    ) {
        for step in added {
            let Some((entry, route)) = &step.add else { continue };
            let Some(other) = table.other(*entry) else { continue };
            let own = std::slice::from_ref(route);
            let back = self.neutron.change_routes(&self.router, "remove", own, call).await;
            let error = match back {
                Ok(router) => {
                    *table = Table::new(&router);
                    conflict(*entry, other)
                }
                Err(error) => error,
            };
            failed.insert(step.at, error);
        }
    }

    /// Makes one or two requests: removals first. The table is afterwards what the last one that
    /// succeeded has left.
    async fn write_part(
        &self,
        features: Features,
        table: &mut Table,
        part: &[&Step],
        call: Call,
    ) -> Result<(), CloudError> {
        let spelt =
            |route: &Option<(RouteKey, ExtraRoute)>| route.as_ref().map(|(_, it)| it.clone());
        let add: Vec<_> = part.iter().filter_map(|step| spelt(&step.add)).collect();
        let remove: Vec<_> = part.iter().filter_map(|step| spelt(&step.remove)).collect();
        if !features.atomic {
            let mut all = table.all.clone();
            all.retain(|route| !remove.contains(route));
            all.extend(add.into_iter().filter(|route| !table.all.contains(route)));
            if all != table.all {
                let written = self.neutron.put_routes(&self.router, &all, table.revision, call);
                *table = Table::new(&written.await?);
            }
            return Ok(());
        }
        for (action, routes) in [("remove", remove), ("add", add)] {
            if !routes.is_empty() {
                let written = self.neutron.change_routes(&self.router, action, &routes, call);
                *table = Table::new(&written.await?);
            }
        }
        Ok(())
    }
}

/// Returns true if a write was not sent because the call had no time left: many ports take longer
/// than one call at the rate that is allowed.
fn is_left_over(error: &CloudError) -> bool {
    let is_late = matches!(error.kind, ErrorKind::Throttled | ErrorKind::Timeout);
    is_late && !error.maybe_done && error.retry_after.is_none()
}

/// Returns the answers to the steps that succeeded or failed, and the jobs that the others wait
/// for. `ports` are the next hops' ports, if ports have pairs.
fn concluded(
    steps: Vec<Step>,
    ports: Option<&Result<&BTreeMap<IpAddr, Hop>, CloudError>>,
    version: Option<&String>,
    failed: BTreeMap<usize, CloudError>,
) -> (Vec<Applied>, Vec<Job>) {
    let mut answers: Vec<Applied> = Vec::new();
    let mut jobs: BTreeMap<String, Job> = BTreeMap::new();
    for step in steps.into_iter().filter(|step| !failed.contains_key(&step.at)) {
        let entry = step.add.map(|(entry, _)| entry);
        let route = |(destination, hop)| Route::new(destination, RouteTarget::Address(hop));
        let applied = AppliedChange { route: entry.map(route), version: version.cloned() };
        match entry.zip(ports).map(|(entry, ports)| needed(entry, ports)) {
            None | Some(Ok(None)) => answers.push((step.at, Ok(applied))),
            Some(Err(error)) => answers.push((step.at, Err(error))),
            Some(Ok(Some((port, network)))) => {
                let (pairs, waiting) = (BTreeSet::new(), Vec::new());
                let job = jobs.entry(port.id.clone());
                let job = job.or_insert_with(|| Job { port, pairs, waiting });
                job.pairs.insert(network);
                job.waiting.push((step.at, applied));
            }
        }
    }
    answers.extend(failed.into_iter().map(|(at, error)| (at, Err(error))));
    (answers, jobs.into_values().collect())
}

/// Divides the steps of a refused request: the parts that are tried again, the last one first, and
/// the failures of the others.
fn divided<'a>(
    part: Vec<&'a Step>,
    error: &CloudError,
    table: &Table,
    refusals: usize,
) -> (Vec<Vec<&'a Step>>, Vec<(usize, CloudError)>) {
    let half = if refusals < MAX_REFUSALS { part.len() / 2 } else { 0 };
    let needing = part.iter().filter(|step| needs_room(step, table)).count();
    let (fitting, others): (Vec<_>, Vec<_>) = match (error.kind, room(error, table)) {
        // The table has more than the maximum already.
        (ErrorKind::QuotaExceeded, _) if needing == 0 => (Vec::new(), part),
        (ErrorKind::QuotaExceeded, Some(room)) => {
            // If all routes should have fitted, the maximum is not what it seems.
            let mut left = if room < needing { room } else { 0 };
            part.into_iter().partition(|step| {
                let (needs, fits) = (needs_room(step, table), left > 0);
                left -= usize::from(needs && fits);
                !needs || fits
            })
        }
        (ErrorKind::QuotaExceeded, None) | (ErrorKind::Invalid, _) if half > 0 => {
            let (first, others) = part.split_at(half);
            return (vec![others.to_vec(), first.to_vec()], Vec::new());
        }
        _ => (Vec::new(), part),
    };
    (vec![fitting], others.iter().map(|step| failure(step, error)).collect())
}

/// Returns true if the table has one route more after this step.
fn needs_room(step: &Step, table: &Table) -> bool {
    let has = |route: &Option<(RouteKey, ExtraRoute)>| {
        route.as_ref().is_some_and(|(entry, _)| table.entries.contains_key(entry))
    };
    step.add.is_some() && !has(&step.add) && !has(&step.remove)
}

/// Returns the answer to a step that a request was refused for.
fn failure(step: &Step, error: &CloudError) -> (usize, CloudError) {
    let destination = step.add.as_ref().or(step.remove.as_ref());
    let destination = destination.map(|((it, _), _)| it.to_string());
    let subject = error.subject.clone().or(destination);
    (step.at, CloudError { subject, ..error.clone() })
}

/// Returns how many more routes fit, if the service's words name the maximum. Those about the quota
/// `router_route` of current Neutron do not.
fn room(error: &CloudError, table: &Table) -> Option<usize> {
    let (_, maximum) = error.message.split_once("exceeds the maximum ")?;
    let digits = maximum.split(|c: char| !c.is_ascii_digit()).next()?;
    Some(digits.parse::<usize>().ok()?.saturating_sub(table.all.len()))
}

/// Refuses changes that were decided on another version of the table.
fn compare(table: &Table, base: Option<&str>) -> Result<(), CloudError> {
    let now = table.version();
    match base.filter(|base| now.as_deref() != Some(*base)) {
        Some(base) => {
            let now = now.as_deref().unwrap_or("none");
            let what = format!("the router has revision {now} now, and not {base}");
            Err(CloudError::new(ErrorKind::Busy, what).about("version"))
        }
        None => Ok(()),
    }
}

/// Returns the port that needs a pair for this route, if one does.
fn needed(
    (destination, hop): RouteKey,
    ports: &Result<&BTreeMap<IpAddr, Hop>, CloudError>,
) -> Result<Option<(Hop, IpNet)>, CloudError> {
    let ports = ports.as_ref().map_err(Clone::clone)?;
    let Some(port) = ports.get(&hop) else {
        let what = format!(
            "the route exists, but not exactly one port of the router's networks has the address \
             {hop}, so no port is opened for it"
        );
        return Err(CloudError::new(ErrorKind::NotFound, what).about(destination.to_string()));
    };
    Ok(lacks(port, hop, destination).map(|_| (port.clone(), destination)))
}
