//! Makes calls to the cloud about routes. Their answers are events.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_cloud::{
    Call as Limits, CloudError, ClusterId, Detail, RouteChange, RouteTarget, TargetState,
};
use ccm_controller::{instances, machine::log_unexpected, workers};
use futures::StreamExt as _;
use tokio::{sync::mpsc, time::timeout_at};
use tokio_util::sync::CancellationToken;

use crate::routes::{
    Parts,
    look::{look, offered},
    machine::{Applied, Call, Effect, Event, Sending},
    plan::{Planned, claims::Claim, failures::is_failure},
};

/// How many calls may be under way at once: a call that hangs does not block the others.
const LANES: usize = 8;
/// How far a call may exceed its own time, for providers that ignore it.
const GRACE: Duration = Duration::from_secs(1);

/// Makes calls.
pub(crate) struct Calls {
    pub(crate) parts: Parts,
    pub(crate) cluster: ClusterId,
}

impl Calls {
    /// Makes the calls that are sent, until the token is cancelled.
    pub(crate) async fn run(self: Arc<Self>, sent: mpsc::Receiver<Call>, token: CancellationToken) {
        let work = move |call| {
            let this = Arc::clone(&self);
            async move { this.make(call).await }
        };
        workers::pool(workers::received(sent), || LANES, token, work).await;
    }

    /// Makes a call, and those that follow from its answer.
    async fn make(&self, call: Call) {
        let mut open = vec![call];
        while let Some(call) = open.pop() {
            let event = match call {
                Call::List => self.list().await,
                Call::Ask { targets, witnesses } => self.ask(targets, witnesses).await,
                Call::LookUp(claims) => self.look_up(claims).await,
                Call::Apply { batch, base } => self.sending(batch, base).await,
                Call::Send { batch, base } => {
                    self.send(batch, base).await;
                    Event::Ended
                }
            };
            self.parts.apply(event, |request| match request {
                Effect::Call(call) => open.push(call),
                other => log_unexpected(&other),
            });
        }
    }

    fn limits(&self, is_urgent: bool) -> Limits {
        let limit = self.parts.nodes.settings.borrow().cloud_call_timeout;
        if is_urgent { Limits::waiting(limit) } else { Limits::routine(limit) }
    }

    async fn list(&self) -> Event {
        let answer = match offered(&*self.parts.nodes.cloud) {
            Ok(routes) => {
                let limits = self.limits(false);
                let listed = timeout_at(limits.end + GRACE, routes.list(&self.cluster, limits));
                listed.await.unwrap_or_else(|_| Err(limits.late()))
            }
            Err(error) => Err(error),
        };
        let pass = look(&self.parts, self.parts.nodes.all(), 0);
        Event::Listed { answer, pass: Box::new(pass) }
    }

    async fn ask(&self, targets: Vec<RouteTarget>, witnesses: Vec<RouteTarget>) -> Event {
        let asked: Vec<RouteTarget> = targets.into_iter().chain(witnesses.clone()).collect();
        let mut answers: BTreeMap<usize, Result<TargetState, CloudError>> = BTreeMap::new();
        let limits = self.limits(false);
        match &offered(&*self.parts.nodes.cloud) {
            Ok(routes) => {
                let mut stream = routes.find_targets(&asked, limits);
                while let Ok(Some((place, answer))) =
                    timeout_at(limits.end + GRACE, stream.next()).await
                {
                    answers.entry(place).or_insert(answer);
                }
            }
            Err(error) => answers.extend((0..asked.len()).map(|place| (place, Err(error.clone())))),
        }
        let answers = asked.into_iter().enumerate().map(|(place, target)| {
            (target, answers.remove(&place).unwrap_or_else(|| Err(limits.late())))
        });
        Event::Asked { answers: answers.collect(), witnesses }
    }

    /// Asks the cloud about the instances of nodes that have targets by their own word.
    async fn look_up(&self, claims: Vec<Claim>) -> Event {
        let nodes: Vec<_> = claims.iter().map(|claim| Arc::clone(&claim.node)).collect();
        let limits = self.limits(false);
        let answers =
            instances::lookup(&*self.parts.nodes.cloud, &nodes, Detail::Everything, limits).await;
        Event::LookedUp(claims.into_iter().zip(answers).collect())
    }

    /// Changes have waited for a lane.
    async fn sending(&self, batch: Vec<Planned>, base: Option<String>) -> Event {
        let loses = batch.iter().any(|planned| planned.old().is_some());
        if loses {
            // The next leader should know about the deletions even if this one dies of them.
            self.parts.lease.stored().await;
        }
        let nodes = &self.parts.nodes;
        let names = batch.iter().filter_map(|planned| planned.node.as_ref());
        let now = match loses {
            true => nodes.all(),
            false => names.filter_map(|name| nodes.named(name)).collect(),
        };
        let pass = look(&self.parts, now, 0);
        Event::Sending(Box::new(Sending { batch, base, pass }))
    }

    async fn send(&self, batch: Vec<Planned>, base: Option<String>) {
        let routes = match offered(&*self.parts.nodes.cloud) {
            Ok(routes) => routes,
            Err(error) => {
                for planned in batch {
                    self.handle_answer(planned, Err(error.clone()), true);
                }
                return;
            }
        };
        let changes: Vec<RouteChange> =
            batch.iter().map(|planned| planned.change.clone()).collect();
        let replaces = routes.traits().replaces;
        let is_urgent = batch.iter().any(|planned| planned.node.is_some());
        let limits = self.limits(is_urgent);
        let mut open: Vec<Option<Planned>> = batch.into_iter().map(Some).collect();
        let mut failures = 0;
        let mut stream = routes.apply(&self.cluster, &changes, base.as_deref(), limits);
        while let Ok(Some((place, answer))) = timeout_at(limits.end + GRACE, stream.next()).await {
            let Some(planned) = open.get_mut(place).and_then(Option::take) else { continue };
            failures += usize::from(answer.as_ref().is_err_and(is_failure));
            self.handle_answer(planned, answer, replaces);
        }
        for planned in open.into_iter().flatten() {
            failures += 1;
            self.handle_answer(planned, Err(limits.late().that_may_be_done()), replaces);
        }
        self.parts.performer.metrics.synced(failures);
    }

    /// Handles the cloud's answer about one change.
    fn handle_answer(
        &self,
        planned: Planned,
        answer: Result<ccm_cloud::AppliedChange, CloudError>,
        replaces: bool,
    ) {
        let node = planned.node.as_ref().and_then(|name| self.parts.nodes.named(name));
        let applied = Applied { planned, answer, node, replaces };
        let event = Event::Applied(Box::new(applied));
        self.parts.tell(event);
    }
}
