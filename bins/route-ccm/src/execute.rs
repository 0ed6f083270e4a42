//! Calls to the cloud about routes, and what their answers mean.

pub(crate) mod conditions;
pub(crate) mod page;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_base::clock;
use ccm_cloud::{
    AppliedChange, Call, CloudError, Detail, RouteChange, RouteTarget, RouteTraits, Routes,
    TargetState,
};
use ccm_controller::{approvals::Approvals, instances, queue::Priority, workers};
use ccm_objects::Shared as Name;
use futures::StreamExt as _;
use tokio::{sync::mpsc, time::timeout_at};
use tokio_util::sync::CancellationToken;

use crate::{
    Handles,
    observe::state::{Basis, Job},
    report,
    routes::plan::{Planned, again::Again, claims::Claim, failures::is_conflict, wanted::Terms},
};

/// How many calls may be under way at once: one that hangs holds up no other.
pub(crate) const LANES: usize = 8;
/// How far a call may exceed its own time, for providers that ignore it.
const GRACE: Duration = Duration::from_secs(1);

/// Makes the calls that the controller sends, until the token is cancelled.
pub(crate) async fn run(handles: Handles, jobs: mpsc::Receiver<Job>, token: CancellationToken) {
    let work = move |job| {
        let handles = handles.clone();
        async move { handles.make(job).await }
    };
    workers::pool(workers::received(jobs), || LANES, token, work).await;
}

impl Handles {
    async fn make(&self, job: Job) {
        let routes = self.routes();
        match job {
            Job::List => self.list(routes).await,
            Job::Ask { targets, witnesses } => self.ask(routes, targets, witnesses).await,
            Job::LookUp(claims) => self.look_up(claims).await,
            Job::Apply { batch, base, by } => {
                if batch.iter().any(|planned| planned.old().is_some()) {
                    // The next leader should know of the deletions even if this one dies of them.
                    self.lease.stored().await;
                }
                self.apply_due(routes.clone(), batch, base, &by).await;
                self.look(routes, &by).await;
            }
        }
        self.passes.wake();
    }

    /// If others have changed the table, nodes wait for the list: it is not left to the next pass.
    async fn look(&self, routes: Result<Arc<dyn Routes>, CloudError>, by: &Basis) {
        if self.state.lock().list(self.timeline.now()).is_none() {
            return;
        }
        self.list(routes.clone()).await;
        let traits = routes.as_ref().map(|routes| routes.traits()).unwrap_or_default();
        let repeated = traits
            .compares_version
            .then(|| self.state.lock().repeated(self.timeline.now(), &traits, by));
        if let Some(Some(Job::Apply { batch, base, by })) = repeated {
            self.apply_due(routes, batch, base, &by).await;
        }
    }

    /// Makes the changes that are still due.
    async fn apply_due(
        &self,
        routes: Result<Arc<dyn Routes>, CloudError>,
        batch: Vec<Planned>,
        base: Option<String>,
        by: &Basis,
    ) {
        let traits = routes.as_ref().map(|routes| routes.traits()).unwrap_or_default();
        let due = self.still_due(batch, by, &traits);
        if !due.is_empty() {
            self.apply(routes, due, base).await;
        }
    }

    /// Leaves out changes whose nodes, settings or approval are not the same any more: the next plan decides again.
    fn still_due(&self, batch: Vec<Planned>, by: &Basis, traits: &RouteTraits) -> Vec<Planned> {
        let now = Basis {
            settings: Arc::clone(&self.settings.borrow()),
            approval: Approvals::right_now(&self.lease),
        };
        let loses = batch.iter().any(|planned| planned.old().is_some());
        let nodes = if loses { self.observer.nodes() } else { Vec::new() };
        let is_due = |planned: &Planned| {
            let node = planned.node.as_ref().map(|name| self.observer.node(name));
            let suits = node.is_none_or(|node| node.is_some_and(|view| planned.suits(&view)));
            let is_approved = planned.old().is_none() || now.approval == by.approval;
            suits && is_approved && now.settings == by.settings
        };
        let cluster_cidrs = now.settings.cluster_cidrs();
        let mut state = self.state.lock();
        let Some(table) = &state.table else { return Vec::new() };
        let widths = state.widths(&now.settings);
        let (due, over): (Vec<_>, Vec<_>) = self.observer.with_former(|former| {
            let terms = Terms {
                cluster_cidrs: &cluster_cidrs,
                traits,
                widths: &widths,
                approval: now.approval.as_ref(),
                table,
                former,
            };
            let again = Again::new(&nodes, &terms);
            let may_go = |planned: &Planned| planned.old().is_none_or(|old| again.may_go(old));
            batch.into_iter().partition(|planned| is_due(planned) && may_go(planned))
        });
        state.withdrawn(&over);
        due
    }

    fn call(&self, is_urgent: bool) -> Call {
        let limit = self.settings.borrow().cloud_call_timeout;
        if is_urgent { Call::waiting(limit) } else { Call::routine(limit) }
    }

    async fn list(&self, routes: Result<Arc<dyn Routes>, CloudError>) {
        let answer = match routes {
            Ok(routes) => {
                let call = self.call(false);
                let listed = timeout_at(call.end + GRACE, routes.list(&self.cluster, call));
                listed.await.unwrap_or_else(|_| Err(call.late()))
            }
            Err(error) => Err(error),
        };
        self.metrics.listed(answer.as_ref().map(drop));
        match &answer {
            Ok(table) => {
                let (count, malformed) = (table.routes.len(), table.malformed.len());
                self.health.pass(format!("{count} routes listed"));
                if let Some(first) = table.malformed.first() {
                    tracing::warn!(
                        "{malformed} routes of the cloud cannot be read, first: {first}"
                    );
                }
            }
            Err(error) => {
                self.health.fail(format!("cannot list the routes: {error}"));
                if self.throttle.lock().is_due() {
                    tracing::warn!(%error, "cannot list the routes, retrying with back-off");
                }
            }
        }
        let period = self.settings.borrow().route_reconciliation_period;
        let is_listed = answer.is_ok();
        let (is_first, destinations) = {
            let mut state = self.state.lock();
            (state.listed(self.timeline.now(), answer, period), state.destinations())
        };
        if is_first {
            tracing::info!("the route table is known");
        }
        if let (true, Some(cidrs), Some((all, read))) = (is_listed, &self.cidrs, destinations) {
            cidrs.routes_are(all, read);
        }
    }

    async fn ask(
        &self,
        routes: Result<Arc<dyn Routes>, CloudError>,
        targets: Vec<RouteTarget>,
        witnesses: Vec<RouteTarget>,
    ) {
        let asked: Vec<RouteTarget> = targets.into_iter().chain(witnesses.clone()).collect();
        let mut answers: BTreeMap<usize, Result<TargetState, CloudError>> = BTreeMap::new();
        let call = self.call(false);
        match &routes {
            Ok(routes) => {
                let mut stream = routes.find_targets(&asked, call);
                while let Ok(Some((place, answer))) =
                    timeout_at(call.end + GRACE, stream.next()).await
                {
                    answers.entry(place).or_insert(answer);
                }
            }
            Err(error) => answers.extend((0..asked.len()).map(|place| (place, Err(error.clone())))),
        }
        let answers = asked.into_iter().enumerate().map(|(place, target)| {
            (target, answers.remove(&place).unwrap_or_else(|| Err(call.late())))
        });
        let answers: Vec<_> = answers.collect();
        let now = self.timeline.now();
        let mut state = self.state.lock();
        state.asked();
        if let Some(witness) = state.planner.answered(now, answers, &witnesses) {
            tracing::warn!(
                "the cloud says that most targets of nodes' routes do not exist, such as {witness}: its answers prove nothing"
            );
        }
    }

    /// Asks the cloud about the instances of nodes that have targets by their own word.
    async fn look_up(&self, claims: Vec<Claim>) {
        let nodes: Vec<_> = claims.iter().map(|claim| Arc::clone(&claim.node)).collect();
        let call = self.call(false);
        let answers = instances::lookup(&*self.cloud, &nodes, Detail::Everything, call).await;
        if let Some(Err(error)) = answers.iter().find(|answer| answer.is_err())
            && self.throttle.lock().is_due()
        {
            tracing::warn!(
                %error,
                "cannot look up instances of nodes, which says whose routes are that bear no owner"
            );
        }
        let answers = claims.into_iter().zip(answers).collect();
        self.state.lock().looked_up(self.timeline.now(), answers);
    }

    async fn apply(
        &self,
        routes: Result<Arc<dyn Routes>, CloudError>,
        batch: Vec<Planned>,
        base: Option<String>,
    ) {
        let routes = match routes {
            Ok(routes) => routes,
            Err(error) => {
                for planned in &batch {
                    self.applied(planned, &Err(error.clone()), true);
                }
                return;
            }
        };
        let changes: Vec<RouteChange> =
            batch.iter().map(|planned| planned.change.clone()).collect();
        let replaces = routes.traits().replaces;
        let is_urgent = batch.iter().any(|planned| planned.node.is_some());
        let call = self.call(is_urgent);
        let mut open: Vec<Option<Planned>> = batch.into_iter().map(Some).collect();
        let mut failures = 0;
        let mut stream = routes.apply(&self.cluster, &changes, base.as_deref(), call);
        while let Ok(Some((place, answer))) = timeout_at(call.end + GRACE, stream.next()).await {
            let Some(planned) = open.get_mut(place).and_then(Option::take) else { continue };
            failures += usize::from(answer.is_err());
            self.applied(&planned, &answer, replaces);
        }
        for planned in open.into_iter().flatten() {
            failures += 1;
            self.applied(&planned, &Err(call.late().that_may_be_done()), replaces);
        }
        self.metrics.synced(failures);
    }

    /// Handles the answer about one change. A node that has all its routes gets its condition at
    /// once.
    fn applied(
        &self,
        planned: &Planned,
        answer: &Result<AppliedChange, CloudError>,
        replaces: bool,
    ) {
        let (destination, now) = (planned.change.destination(), self.timeline.now());
        let node = planned.node.as_ref().and_then(|name| self.observer.node(name));
        let node = node.filter(|view| planned.concerns(view, answer.is_err()));
        let (is_complete, is_gone) = {
            let mut state = self.state.lock();
            let is_complete = state.applied(now, planned, answer, node.as_ref());
            (is_complete, state.has_no_route(destination))
        };
        if let Some(cidrs) = self.cidrs.as_ref().filter(|_| is_gone && answer.is_ok()) {
            cidrs.route_gone(destination);
        }
        self.metrics.changed(&planned.change, answer.as_ref().map(drop), replaces);
        let node = node.map(|view| view.node);
        match answer {
            Ok(done) => {
                let is_replacement = matches!(planned.change, RouteChange::Replace { .. });
                let defect = done.route.as_ref().and_then(|route| route.defect.as_deref());
                report::changed(planned, is_replacement && !replaces, defect);
                if let Some(repeated) =
                    self.reports.route_repeated(&self.written, planned, node.as_deref())
                {
                    let until = now + repeated.wait;
                    self.state.lock().planner.postpone(destination, until, &repeated.to_string());
                }
            }
            Err(error) if is_conflict(error) => {
                tracing::debug!(%error, "{}: the table has changed, listing it", planned.words());
            }
            Err(error) => {
                self.reports.failed(planned, node.as_deref(), error);
            }
        }
        let Some(node) = node else { return };
        if is_complete {
            self.completed(&node.name);
        }
        let has_failed = answer.as_ref().is_err_and(|error| !is_conflict(error));
        if is_complete || has_failed {
            self.conditions.add(Name::clone(&node.name), Priority::Urgent);
        }
    }
}

impl Handles {
    /// A node has all its routes: how long it took, if that is new.
    pub(crate) fn completed(&self, name: &Name) {
        let Some(node) = self.observer.store.get(name) else { return };
        if self.state.lock().completes(&node)
            && let Some(age) = node.age(clock::wall())
        {
            self.metrics.completed(age);
        }
    }
}
