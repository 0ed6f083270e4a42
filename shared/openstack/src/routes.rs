//! The routes capability: the extra routes of one router, and the allowed address pairs of the
//! ports that are their next hops.
//!
//! A route needs both: Neutron drops packets from and for pods at a port with port security,
//! unless the port has the pods' network among its allowed address pairs.
//!
//! With the extension `extraroute-atomic`, requests add and remove routes and leave all others
//! alone. Without it, a request writes the whole list, with `If-Match`: if the router has another
//! revision by then, nothing is changed.

mod hops;
mod pairs;
mod plan;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use async_trait::async_trait;
use ccm_cloud::{
    AbsenceProof, Answers, AppliedChange, Call, CloudError, ClusterId, ErrorKind, ProofMethod,
    Route, RouteChange, RouteTable, RouteTarget, RouteTraits, Routes, TargetState,
};
use ccm_openstack_client::{
    api::{AT_ONCE, Api},
    network::Neutron,
};
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;

use self::{hops::Hops, pairs::lacks, plan::Table};

/// The largest number of changes in one call.
const MAX_BATCH: usize = 500;

/// [`Routes`] with Neutron.
pub struct NeutronRoutes {
    neutron: Neutron,
    /// The router's ID.
    router: String,
    /// The features of this Neutron; an error until they are known.
    features: Mutex<Result<Features, CloudError>>,
    /// The table when it was last seen.
    table: Mutex<Option<Table>>,
    hops: Hops,
}

/// The features of a Neutron, by its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Features {
    /// True if routers have extra routes.
    routes: bool,
    /// True if routes can be added and removed one by one.
    atomic: bool,
    /// True if ports have allowed address pairs.
    pairs: bool,
}

impl Features {
    fn from_extensions(extensions: &BTreeSet<String>) -> Self {
        let has = |alias: &str| extensions.contains(alias);
        let atomic = has("extraroute-atomic");
        Self { routes: atomic || has("extraroute"), atomic, pairs: has("allowed-address-pairs") }
    }
}

impl NeutronRoutes {
    /// Creates the routes of the router of this ID. Makes no request.
    pub fn new(api: Arc<dyn Api>, router: &str) -> Self {
        let unknown = "Neutron's extensions have not been requested yet";
        Self {
            neutron: Neutron::new(api),
            router: router.to_owned(),
            features: Mutex::new(Err(CloudError::new(ErrorKind::Unavailable, unknown))),
            table: Mutex::default(),
            hops: Hops::default(),
        }
    }

    /// Returns true if Neutron has extra routes. Fails while this is not known.
    pub fn offered(&self) -> Result<bool, CloudError> {
        self.features.lock().as_ref().map(|features| features.routes).map_err(Clone::clone)
    }

    /// Requests Neutron's extensions, unless they are known.
    pub async fn learn(&self, call: Call) -> Result<(), CloudError> {
        self.features(call).await.map(drop)
    }

    async fn features(&self, call: Call) -> Result<Features, CloudError> {
        if let Ok(features) = *self.features.lock() {
            return Ok(features);
        }
        let answer =
            self.neutron.extensions(call).await.map(|names| Features::from_extensions(&names));
        let mut features = self.features.lock();
        // An error never replaces the knowledge of another call in the meantime.
        if features.is_err() {
            features.clone_from(&answer);
        }
        answer
    }

    /// Returns the table, as it was last seen or, with `again`, as it is.
    async fn table(&self, again: bool, call: Call) -> Result<Table, CloudError> {
        let known = self.table.lock().clone().filter(|_| !again);
        if let Some(table) = known {
            return Ok(table);
        }
        let table = Table::new(&self.neutron.router(&self.router, call).await?);
        Ok(self.table.lock().insert(table).clone())
    }
}

#[async_trait]
impl Routes for NeutronRoutes {
    fn traits(&self) -> RouteTraits {
        let is_atomic = self.features.lock().as_ref().is_ok_and(|features| features.atomic);
        RouteTraits {
            replaces: !is_atomic,
            compares_version: !is_atomic,
            target_ids: false,
            target_addresses: true,
            max_batch: MAX_BATCH,
            ..RouteTraits::default()
        }
    }

    async fn list(&self, _: &ClusterId, call: Call) -> Result<RouteTable, CloudError> {
        let features = self.features(call).await?;
        let table = self.table(true, call).await?;
        let targets: BTreeSet<IpAddr> = table.entries.keys().map(|(_, hop)| *hop).collect();
        let ports = match features.pairs {
            true => self.hops.find(&self.neutron, &self.router, &targets, call).await?,
            false => BTreeMap::new(),
        };
        let route = |(destination, hop): &plan::RouteKey| Route {
            defect: ports.get(hop).and_then(|port| lacks(port, *hop, *destination)),
            ..Route::new(*destination, RouteTarget::Address(*hop))
        };
        Ok(RouteTable {
            routes: table.entries.keys().map(route).collect(),
            malformed: table.malformed.clone(),
            version: table.version(),
            room: None,
        })
    }

    fn apply<'a>(
        &'a self,
        _: &'a ClusterId,
        changes: &'a [RouteChange],
        base: Option<&'a str>,
        call: Call,
    ) -> Answers<'a, AppliedChange> {
        let begin = async move {
            let begun = self.begin(changes, base, call).await;
            let (answers, jobs) = begun.unwrap_or_else(|error| {
                let all = (0..changes.len()).map(|at| (at, Err(error.clone())));
                (all.collect(), Vec::new())
            });
            let jobs = jobs.into_iter().map(move |job| self.finish(job, call));
            let finished = stream::iter(jobs).buffer_unordered(AT_ONCE).flat_map(stream::iter);
            stream::iter(answers).chain(finished)
        };
        stream::once(begin).flatten().boxed()
    }

    fn find_targets<'a>(
        &'a self,
        targets: &'a [RouteTarget],
        call: Call,
    ) -> Answers<'a, TargetState> {
        let answers = async move {
            let found = self.look_for(targets, call).await;
            let answer = |(at, target): (usize, &RouteTarget)| {
                let answer = found.as_ref().map_err(Clone::clone);
                (at, answer.and_then(|found| state(target, found)))
            };
            stream::iter(targets.iter().enumerate().map(answer).collect::<Vec<_>>())
        };
        stream::once(answers).flatten().boxed()
    }
}

impl NeutronRoutes {
    /// Returns the addresses among the targets that some port has, in any network.
    async fn look_for(
        &self,
        targets: &[RouteTarget],
        call: Call,
    ) -> Result<BTreeSet<IpAddr>, CloudError> {
        let address = |target: &RouteTarget| match target {
            RouteTarget::Address(address) => Some(*address),
            RouteTarget::Instance(_) | RouteTarget::Node(_) | RouteTarget::Blackhole(_) => None,
        };
        let asked: BTreeSet<IpAddr> = targets.iter().filter_map(address).collect();
        let own = self.neutron.router_ports(&self.router, call);
        let (own, ports) = tokio::join!(own, self.neutron.hops(&asked, call));
        let (own, ports) = (own?, ports?);
        if own.is_empty() && ports.is_empty() {
            let what = "Neutron shows no port at all, not even the router's, which proves nothing";
            return Err(CloudError::new(ErrorKind::NotFound, what));
        }
        Ok(own
            .iter()
            .chain(&ports)
            .flat_map(ccm_openstack_client::network::Hop::addresses)
            .collect())
    }
}

/// Returns the state of the target: it exists if it is among the addresses of ports.
fn state(target: &RouteTarget, found: &BTreeSet<IpAddr>) -> Result<TargetState, CloudError> {
    match target {
        RouteTarget::Address(address) if found.contains(address) => Ok(TargetState::Exists),
        RouteTarget::Address(address) => Ok(TargetState::Gone(AbsenceProof {
            method: ProofMethod::ByName,
            evidence: format!("no port that the project sees has the address {address}"),
            request_id: None,
            kept: None,
        })),
        RouteTarget::Instance(_) | RouteTarget::Node(_) | RouteTarget::Blackhole(_) => {
            let what = format!("{target} is not a next hop of Neutron: a next hop is an address");
            Err(CloudError::new(ErrorKind::Invalid, what))
        }
    }
}

#[cfg(test)]
mod tests;
