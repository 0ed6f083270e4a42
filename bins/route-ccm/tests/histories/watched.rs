//! The cloud as the program reaches it: each call is checked before the cloud gets it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use ccm_cloud::{
    AbsenceProof, Answers, AppliedChange, Call, CloudError, ClusterId, ProofMethod, Route,
    RouteChange, RouteTable, RouteTarget, RouteTraits, Routes, TargetState,
};
use ccm_runtime::metrics::Metrics;
use ccm_sim::{
    apiserver::ApiServer,
    cloud::{SimCloud, routes::SimRoute},
};
use ccm_tests::in_process::sample;
use futures::StreamExt as _;
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    calls::Calls,
    rules::{Broken, Rule},
    truth::{self, KNOWN, Truth},
    world::{World, exists},
};

/// The time between the two answers that prove that a target is gone.
const APART: Duration = Duration::from_mins(1);

#[derive(Clone)]
pub(crate) struct Watched {
    pub(crate) cloud: SimCloud,
    pub(crate) api: Arc<ApiServer>,
    broken: Broken,
    pub(crate) truth: Truth,
    metrics: Metrics,
    begun: Instant,
    /// How many calls change each destination now.
    in_flight: Arc<Mutex<BTreeMap<IpNet, usize>>>,
    proofs: Arc<Mutex<HashMap<RouteTarget, Proof>>>,
    calls: Calls,
}

/// The answers "gone" about a target since the last other answer.
#[derive(Clone, Copy)]
struct Proof {
    first: Instant,
    last: Instant,
}

impl Proof {
    fn is_enough(self) -> bool {
        self.last >= self.first + APART
    }
}

impl Watched {
    pub(crate) fn new(world: &World, metrics: &Metrics) -> Self {
        Self {
            cloud: world.cloud.clone(),
            api: Arc::clone(&world.api),
            broken: world.broken.clone(),
            truth: world.truth.clone(),
            metrics: metrics.clone(),
            begun: Instant::now(),
            in_flight: Arc::default(),
            proofs: Arc::default(),
            calls: Calls::default(),
        }
    }

    fn check(&self, changes: &[RouteChange], base: Option<&str>) {
        let traits = Routes::traits(&self.cloud);
        if changes.is_empty() || changes.len() > traits.max_batch {
            self.broken.add(Rule::Call, format!("{} changes in a call", changes.len()));
        }
        let is_busy = self.in_flight.lock().values().any(|calls| *calls > 0);
        if traits.compares_version && (base.is_none() || is_busy) {
            let how = format!("a call on version {base:?}, another one under way: {is_busy}");
            self.broken.add(Rule::Version, how);
        }
        for change in changes {
            let destination = change.destination();
            let mut in_flight = self.in_flight.lock();
            let calls = in_flight.entry(destination).or_default();
            *calls += 1;
            if *calls > 1 {
                self.broken.add(Rule::Overlap, format!("{destination} is changed twice at once"));
            }
            drop(in_flight);
            match change {
                RouteChange::Create(_) => {}
                RouteChange::Replace { old, .. } => {
                    self.check_foreign(old);
                    if traits.several_targets {
                        let how = format!("{destination} is replaced: it may have both targets");
                        self.broken.add(Rule::Gap, how);
                    }
                }
                RouteChange::Delete(old) => {
                    self.check_foreign(old);
                    self.check_proof(old);
                    self.check_nodes(old);
                    self.check_gap(old);
                }
            }
        }
    }

    /// The route that this one means, as it is now.
    fn meant(&self, old: &Route) -> Option<SimRoute> {
        let now = self.cloud.router().to(old.destination);
        now.into_iter().find(|route| {
            old.id.as_ref().is_none_or(|id| *id == route.id) && route.target == old.target
        })
    }

    fn check_foreign(&self, old: &Route) {
        if self.meant(old).is_some_and(|route| self.truth.is_foreign(&route.id)) {
            self.broken.add(Rule::Foreign, format!("a call names {old:?}"));
        }
    }

    /// A route whose target this process never saw as a node's needs a proof.
    fn check_proof(&self, old: &Route) {
        let (None, Some(target)) = (&old.owner, &old.target) else { return };
        let was_node = self.truth.with(|memory| {
            let seen = memory.targets.get(target).is_some_and(|(at, _)| *at + KNOWN >= self.begun);
            seen || memory.present.contains(target)
        });
        let proof = self.proofs.lock().get(target).copied();
        let is_proven = proof.is_some_and(Proof::is_enough);
        if !was_node && !is_proven {
            let how = format!("{} to {target} is to go without a proof", old.destination);
            self.broken.add(Rule::Proof, how);
        }
    }

    /// Without a node nothing is deleted.
    fn check_nodes(&self, old: &Route) {
        let nodes = ["complete", "incomplete", "without_pod_cidrs"];
        let seen =
            |state| sample::<u32>(&self.metrics, &format!("ccm_route_nodes{{state=\"{state}\"}}"));
        if nodes.iter().all(|state| seen(state) == 0) {
            let how = format!("{} is deleted, and there is no node", old.destination);
            self.broken.add(Rule::NoNodes, how);
        }
    }

    /// The only route of a node's pod CIDR is not deleted.
    fn check_gap(&self, old: &Route) {
        let destination = old.destination.trunc();
        let wanted = self.truth.with(|memory| memory.wanted.get(&destination).cloned());
        let Some((name, _)) = wanted.filter(|(_, since)| since.elapsed() > KNOWN) else { return };
        let Some(meant) = self.meant(old) else { return };
        if self.truth.may_be_lied_to() {
            return;
        }
        let node = truth::nodes(&self.api).into_iter().find(|node| node.name == name);
        let works = |route: &SimRoute| {
            let is_right = |target| node.as_ref().is_none_or(|node| node.has(target));
            route.defect.is_none() && route.target.as_ref().is_some_and(is_right)
        };
        let mut others = self.cloud.router().to(destination);
        others.retain(|route| route.id != meant.id);
        if !others.iter().any(works) {
            let how = format!("{destination} of {name:?} loses its route to {:?}", old.target);
            self.broken.add(Rule::Gap, how);
        }
    }

    /// Answers about targets. While the cloud denies everything it does so only if the program
    /// can find out: if one of the targets is that of a node.
    fn answer(&self, targets: &[RouteTarget], place: usize, state: TargetState) -> TargetState {
        let denies =
            self.truth.with(|memory| memory.denies_until.is_some_and(|end| Instant::now() < end));
        let nodes = truth::nodes(&self.api);
        let has_witness = targets
            .iter()
            .any(|one| exists(&self.cloud, one) && nodes.iter().any(|node| node.has(one)));
        // A program that does not see the nodes has no witness.
        if denies && has_witness && !self.truth.may_be_lied_to() {
            let evidence = format!("no instance or port {}", targets[place]);
            return TargetState::Gone(AbsenceProof {
                method: ProofMethod::ById,
                evidence,
                request_id: None,
            });
        }
        let target = &targets[place];
        let mut proofs = self.proofs.lock();
        let now = Instant::now();
        let is_proven = match &state {
            TargetState::Exists => {
                proofs.remove(target);
                false
            }
            TargetState::Gone(_) => {
                let proof = proofs.entry(target.clone()).or_insert(Proof { first: now, last: now });
                proof.last = now;
                proof.is_enough()
            }
        };
        drop(proofs);
        self.truth.with(|memory| match is_proven {
            true => memory.proven.insert(target.clone()),
            false => memory.proven.remove(target),
        });
        state
    }
}

/// Destinations whose change is not answered yet.
struct Open {
    places: BTreeMap<usize, IpNet>,
    in_flight: Arc<Mutex<BTreeMap<IpNet, usize>>>,
}

impl Open {
    fn answered(&mut self, place: usize) {
        if let Some(destination) = self.places.remove(&place) {
            *self.in_flight.lock().entry(destination).or_insert(1) -= 1;
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        while let Some(place) = self.places.keys().next().copied() {
            self.answered(place);
        }
    }
}

#[async_trait]
impl Routes for Watched {
    fn traits(&self) -> RouteTraits {
        Routes::traits(&self.cloud)
    }

    async fn list(&self, cluster: &ClusterId, call: Call) -> Result<RouteTable, CloudError> {
        self.calls.count(&self.broken, [IpNet::default()].into_iter());
        Routes::list(&self.cloud, cluster, call).await
    }

    fn apply<'a>(
        &'a self,
        cluster: &'a ClusterId,
        changes: &'a [RouteChange],
        base: Option<&'a str>,
        call: Call,
    ) -> Answers<'a, AppliedChange> {
        self.check(changes, base);
        self.calls.count(&self.broken, changes.iter().map(RouteChange::destination));
        let places = changes.iter().map(RouteChange::destination).enumerate().collect();
        let mut open = Open { places, in_flight: Arc::clone(&self.in_flight) };
        let answers = self.cloud.apply(cluster, changes, base, call);
        answers.inspect(move |(place, _)| open.answered(*place)).boxed()
    }

    fn find_targets<'a>(
        &'a self,
        targets: &'a [RouteTarget],
        call: Call,
    ) -> Answers<'a, TargetState> {
        let answers = self.cloud.find_targets(targets, call);
        let answer = move |(place, answer): (usize, Result<TargetState, CloudError>)| {
            (place, answer.map(|state| self.answer(targets, place, state)))
        };
        answers.map(answer).boxed()
    }
}
