//! The provider contract over the routes: batches, faults, lost answers.

use std::{collections::BTreeSet, net::IpAddr};

use async_trait::async_trait;
use ccm_cloud::{
    AbsenceProof, AddressKind, Answers, AppliedChange, Call, CloudError, ClusterId, ErrorKind,
    IpFamily, Owner, ProofMethod, ProviderId, Route, RouteChange, RouteTable, RouteTarget,
    RouteTraits, Routes, TargetState, WantedRoute, repeated_destinations,
};
use futures::StreamExt as _;
use ipnet::IpNet;
use tokio::time::Instant;

use super::{
    RouterSettings, TargetKind,
    store::{Context, Store},
};
use crate::{
    cloud::{
        Operation, PAGE, SimCloud,
        batch::{self, Batch, lost},
    },
    faults::{FaultEffect, Trouble},
};

#[async_trait]
impl Routes for SimCloud {
    fn traits(&self) -> RouteTraits {
        self.router().settings().traits
    }

    async fn list(&self, _: &ClusterId, call: Call) -> Result<RouteTable, CloudError> {
        let (all, version, room) = self.router().settled(|store| {
            let all: Vec<IpNet> = store.routes.keys().copied().collect();
            (all, store.shown_version(), store.room())
        });
        let mut table = RouteTable { version, room, ..RouteTable::default() };
        let mut pages = all.chunks(PAGE);
        // An empty table also has one page.
        let mut page = pages.next().unwrap_or_default();
        loop {
            match self.call(Operation::ListRoutes, 0, call).await? {
                Some(FaultEffect::EmptyList | FaultEffect::WrongProject) => {
                    return Ok(RouteTable { routes: Vec::new(), malformed: Vec::new(), ..table });
                }
                Some(FaultEffect::TruncatedList(most)) => {
                    self.read_routes(page, &mut table);
                    table.routes.truncate(most);
                    return Ok(table);
                }
                _ => self.read_routes(page, &mut table),
            }
            let Some(next) = pages.next() else { return Ok(table) };
            page = next;
        }
    }

    fn apply<'a>(
        &'a self,
        cluster: &'a ClusterId,
        changes: &'a [RouteChange],
        base: Option<&'a str>,
        call: Call,
    ) -> Answers<'a, AppliedChange> {
        let work = self.change_routes(cluster, changes, base, call);
        batch::answers(Operation::ApplyRoutes, changes.len(), call, work)
    }

    fn find_targets<'a>(
        &'a self,
        targets: &'a [RouteTarget],
        call: Call,
    ) -> Answers<'a, TargetState> {
        let parts = targets.chunks(PAGE).enumerate();
        let answers = futures::stream::iter(parts).flat_map(move |(part, targets)| {
            let work = self.look_for(targets, call);
            let answers = batch::answers(Operation::FindTargets, targets.len(), call, work);
            answers.map(move |(place, answer)| (part * PAGE + place, answer))
        });
        answers.boxed()
    }
}

impl SimCloud {
    /// Adds a page of the list, without routes that were deleted since the list began.
    fn read_routes(&self, page: &[IpNet], table: &mut RouteTable) {
        self.router().settled(|store| {
            for route in page.iter().flat_map(|destination| store.at(*destination)) {
                let trouble = self.faults().trouble(Operation::ListRoutes, &route.names());
                if trouble == Some(Trouble::Malformed) {
                    let line = format!(
                        "route to {}: the cloud's answer does not make sense",
                        route.destination
                    );
                    table.malformed.push(line);
                } else {
                    table.routes.push(route.describe());
                }
            }
        });
    }

    /// Carries out one batch of changes: one request, and one new version if anything changes.
    async fn change_routes(
        &self,
        cluster: &ClusterId,
        changes: &[RouteChange],
        base: Option<&str>,
        call: Call,
    ) -> Result<Batch<AppliedChange>, CloudError> {
        let operation = Operation::ApplyRoutes;
        let most = Routes::traits(self).max_batch.max(1);
        if changes.len() > most {
            let what = format!("{} changes of routes in one call, at most {most}", changes.len());
            return Err(CloudError::new(ErrorKind::Invalid, what));
        }
        let permit = self.admit(operation, changes.len(), call).await?;
        self.strike(operation, changes.len(), call).await?;
        let mut batch = Batch::new(permit);
        let mut refused = repeated_destinations(changes);
        let settings = self.router().settings();
        let targets: Vec<_> =
            changes.iter().map(|change| self.target_of(change, &settings)).collect();
        let troubles = changes.iter().enumerate().map(|(at, change)| {
            let taken = !refused.contains_key(&at);
            taken.then(|| self.faults().trouble(operation, &names(change))).flatten()
        });
        let troubles: Vec<_> = troubles.collect();
        self.router().settled(|store| {
            for (change, trouble) in changes.iter().zip(&troubles) {
                if *trouble == Some(Trouble::Overtake) {
                    store.overtake(change.destination());
                }
            }
            compare(store, base)?;
            let before = store.writes.len();
            let each = changes.iter().zip(targets).zip(troubles).enumerate();
            for (at, ((change, target), trouble)) in each {
                if let Some(error) = refused.remove(&at) {
                    batch.answers.push((at, Err(error)));
                    continue;
                }
                let context = Context {
                    now: Instant::now(),
                    cluster: cluster.clone(),
                    term: batch.permit.term.or(call.term),
                    trouble,
                    target,
                };
                match make(store, change, &context) {
                    Some(answer) => {
                        let applied = answer.map(|route| AppliedChange { route, version: None });
                        batch.answers.push((at, applied));
                    }
                    None => batch.unanswered.push(at),
                }
            }
            store.version += u64::from(store.writes.len() > before);
            for applied in batch.answers.iter_mut().filter_map(|(_, answer)| answer.as_mut().ok()) {
                applied.version = store.shown_version();
            }
            Ok(batch)
        })
    }

    /// Returns the target of the wanted route, if the change has one.
    fn target_of(
        &self,
        change: &RouteChange,
        settings: &RouterSettings,
    ) -> Result<Option<RouteTarget>, CloudError> {
        match change {
            RouteChange::Create(new) | RouteChange::Replace { new, .. } => {
                self.select(new, settings).map(Some)
            }
            RouteChange::Delete(_) => Ok(None),
        }
    }

    fn select(
        &self,
        wanted: &WantedRoute,
        settings: &RouterSettings,
    ) -> Result<RouteTarget, CloudError> {
        let RouterSettings { traits, targets, .. } = settings;
        let node = &wanted.node;
        let lacks = |what: String| {
            let what = format!("node {:?} has no {what}", node.name);
            CloudError::new(ErrorKind::Invalid, what).about(wanted.destination.to_string())
        };
        let id = node.provider_id.as_deref().filter(|id| !id.is_empty());
        let family = IpFamily::from_address(wanted.destination.addr());
        let mut internal = wanted.addresses.iter().filter(|it| it.kind == AddressKind::InternalIp);
        let address = internal.find_map(|address| {
            let address: IpAddr = address.address.parse().ok()?;
            (IpFamily::from_address(address) == family).then_some(address)
        });
        if traits.target_ids && id.is_none() {
            return Err(lacks("provider ID".to_owned()));
        }
        let needs_address = traits.target_addresses || *targets == TargetKind::Address;
        let address = match address {
            None if needs_address => return Err(lacks(format!("internal {family} address"))),
            address => address,
        };
        match (targets, address) {
            (TargetKind::Node, _) => Ok(RouteTarget::Node(node.name.clone())),
            (TargetKind::Address, Some(address)) => Ok(RouteTarget::Address(address)),
            _ => self.instance_of(&node.name, id).map(RouteTarget::Instance),
        }
    }

    /// Returns the instance with this provider ID, or this name.
    fn instance_of(&self, name: &str, id: Option<&str>) -> Result<ProviderId, CloudError> {
        let fleet = self.state.fleet.read();
        let found = id.map_or_else(|| fleet.named(name), |id| fleet.spelt(id));
        match found.as_slice() {
            [instance] => Ok(instance.provider_id()),
            [] => {
                let what = format!("no instance {}", id.unwrap_or(name));
                Err(CloudError::new(ErrorKind::NotFound, what))
            }
            _ => {
                let what = format!("several instances are named {name:?}");
                Err(CloudError::new(ErrorKind::Conflict, what))
            }
        }
    }

    /// Carries out one lookup of up to [`PAGE`] targets.
    async fn look_for(
        &self,
        targets: &[RouteTarget],
        call: Call,
    ) -> Result<Batch<TargetState>, CloudError> {
        let operation = Operation::FindTargets;
        let permit = self.admit(operation, targets.len(), call).await?;
        let effect = self.strike(operation, targets.len(), call).await?;
        let mut batch = Batch::new(permit);
        let fleet = self.state.fleet.read();
        let ports = self.router().ports();
        let nothing = fleet.len() == 0 && ports.is_empty();
        if nothing || effect == Some(FaultEffect::EmptyList) {
            let what = "the cloud shows neither instances nor ports, which does not prove anything";
            return Err(CloudError::new(ErrorKind::NotFound, what));
        }
        let addresses = fleet.iter().flat_map(|instance| &instance.addresses);
        let addresses: BTreeSet<IpAddr> =
            addresses.filter_map(|address| address.address.parse().ok()).chain(ports).collect();
        for (at, target) in targets.iter().enumerate() {
            let (method, exists) = match target {
                RouteTarget::Address(address) => (ProofMethod::ByName, addresses.contains(address)),
                RouteTarget::Instance(id) => {
                    (ProofMethod::ById, !fleet.spelt(id.as_str()).is_empty())
                }
                RouteTarget::Node(name) => (ProofMethod::ByName, !fleet.named(name).is_empty()),
                RouteTarget::Blackhole(_) => (ProofMethod::ProvidersWord, false),
            };
            let answer = match self.faults().trouble(operation, &[target.to_string()]) {
                Some(Trouble::Hang) => {
                    batch.unanswered.push(at);
                    continue;
                }
                Some(Trouble::Fail(error)) => Err(error),
                _ if exists && effect != Some(FaultEffect::WrongProject) => Ok(TargetState::Exists),
                _ => {
                    let evidence = format!("no instance or port {target}");
                    Ok(TargetState::Gone(AbsenceProof {
                        method,
                        evidence,
                        request_id: None,
                        kept: None,
                    }))
                }
            };
            batch.answers.push((at, answer));
        }
        Ok(batch)
    }
}

/// Refuses all changes if they were decided on another version of the table.
fn compare(store: &Store, base: Option<&str>) -> Result<(), CloudError> {
    let now = store.version.to_string();
    match base.filter(|base| *base != now && store.settings.traits.compares_version) {
        Some(base) => {
            let what = format!("the table now has version {now}, not {base}");
            Err(CloudError::new(ErrorKind::Busy, what).about("version"))
        }
        None => Ok(()),
    }
}

/// Makes a change. The answer is the route after the change, or `None` if the change is never
/// answered.
fn make(
    store: &mut Store,
    change: &RouteChange,
    context: &Context,
) -> Option<Result<Option<Route>, CloudError>> {
    let cut = || Err(cut(Operation::ApplyRoutes));
    Some(match &context.trouble {
        Some(Trouble::Hang) => return None,
        Some(Trouble::Fail(error)) => Err(error.clone()),
        Some(Trouble::Late(after)) => {
            change_later(store, context.now + *after, change, context);
            cut()
        }
        Some(Trouble::LoseAnswer) => store.change(change, context).and_then(|_| cut()),
        _ => store.change(change, context),
    })
}

/// Makes a change when its time has come.
fn change_later(store: &mut Store, due: Instant, change: &RouteChange, context: &Context) {
    let (change, context) = (change.clone(), context.clone());
    let later = move |store: &mut Store, now| {
        let before = store.writes.len();
        store.change(&change, &Context { now, trouble: None, ..context }).ok();
        store.version += u64::from(store.writes.len() > before);
    };
    store.delay(due, Box::new(later));
}

fn cut(operation: Operation) -> CloudError {
    lost(operation, ErrorKind::Unavailable, "the connection was cut")
}

/// Returns the destination and the node's name, by which faults name a change.
fn names(change: &RouteChange) -> Vec<String> {
    let owner: Option<&Owner> = match change {
        RouteChange::Create(new) | RouteChange::Replace { new, .. } => Some(&new.owner),
        RouteChange::Delete(old) => old.owner.as_ref(),
    };
    let owner = owner.map(|owner| owner.name.clone());
    std::iter::once(change.destination().to_string()).chain(owner).collect()
}
