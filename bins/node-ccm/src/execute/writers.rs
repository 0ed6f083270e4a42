//! Second stage: plans and writes many nodes concurrently.
//!
//! There are two worker pools, as upstream has two kinds of worker: one for new nodes, one for
//! updates of initialised nodes. A change of the whole fleet never delays a new node: its writes
//! also have a rate of their own, and a node that waits for its turn waits in the queue.

use std::{sync::Arc, time::Duration};

use ccm_base::RetryClass;
use ccm_cloud::{Claim, LookupResult};
use ccm_controller::{
    brake::Pause,
    queue::{LONG_RETRY, Priority},
    workers,
    writer::{Stopped, Writer},
};
use ccm_kube::ApiError;
use ccm_objects::Node;
use ccm_runtime::supervisor::Supervisor;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Unfinished, execute, published};
use crate::{
    metrics::State,
    observe::{
        Handles, brake,
        intake::Intake,
        lookups::{Work, WorkSenders},
        priority,
    },
    plan::{Outcome, Plan, Wait, WaitReason, plan},
    settings::NodeSettings,
};

/// Capacity of each channel to the workers; large enough that the default number of workers is
/// never idle while answers arrive.
const CHANNEL_CAPACITY: usize = 64;
/// Retry interval for a provided-node-ip annotation that does not match: the cloud may attach
/// the address later. A change of the node triggers a sync at once.
const NODE_IP_RECHECK: Duration = Duration::from_secs(30);
/// Delay after a conflict, so that the informer receives the other writer's change.
const AFTER_CONFLICT: Duration = Duration::from_millis(20);
/// How often an initialised node without an answer is looked up again, within half a minute.
/// Then it waits for the next refresh.
const LOOKUPS_BEFORE_REFRESH: u32 = 5;
/// After this number of consecutive conflicts the usual back-off applies.
const MANY_CONFLICTS: u32 = 8;
/// The same for an initialised node, which no pod waits for.
const MANY_CONFLICTS_SETTLED: u32 = 3;

/// The stage.
pub(crate) struct Writers {
    handles: Handles,
    intake: Arc<Intake>,
    writer: Writer<Node>,
}

impl Writers {
    pub(crate) fn new(handles: &Handles, intake: Arc<Intake>, writer: Writer<Node>) -> Arc<Self> {
        Arc::new(Self { handles: handles.clone(), intake, writer })
    }

    /// Starts both pools. Returns their channels.
    pub(crate) fn start(self: &Arc<Self>, tasks: &Supervisor) -> WorkSenders {
        let (new, new_work) = mpsc::channel(CHANNEL_CAPACITY);
        let (settled, settled_work) = mpsc::channel(CHANNEL_CAPACITY);
        let pool = |work, limit| Arc::clone(self).pool(work, limit, tasks.token().clone());
        tasks.spawn("new-nodes", pool(new_work, |settings| settings.concurrent_node_syncs));
        let updates: fn(&NodeSettings) -> usize =
            |settings| settings.concurrent_node_status_updates;
        tasks.spawn("settled-nodes", pool(settled_work, updates));
        tasks.spawn("correction-rate", Arc::clone(self).follow_rate(tasks.token().clone()));
        WorkSenders { new, settled }
    }

    /// Applies changes of the rate of corrections, also to the nodes that wait for their turn.
    async fn follow_rate(self: Arc<Self>, token: CancellationToken) {
        let mut settings = self.handles.settings.clone();
        while let Some(Ok(())) = token.run_until_cancelled(settings.changed()).await {
            let rate = settings.borrow_and_update().node_correction_qps;
            for name in self.handles.ledger.set_correction_rate(rate) {
                self.handles.queue.add(name, Priority::Routine);
            }
        }
        token.cancelled().await;
    }

    async fn pool(
        self: Arc<Self>,
        work: mpsc::Receiver<Work>,
        limit: fn(&NodeSettings) -> usize,
        token: CancellationToken,
    ) {
        let limit = || limit(&self.handles.settings.borrow());
        let sync = |work: Work| {
            let this = Arc::clone(&self);
            async move {
                this.sync(&work).await;
                this.intake.done(&work.node.name);
            }
        };
        workers::pool(workers::received(work), limit, token, sync).await;
    }

    /// Plans from the current state of the node, and executes the plan.
    async fn sync(&self, Work { node: asked, answer }: &Work) {
        let Some(node) = self.handles.store.get(&asked.name) else { return };
        if !asked.has_identity_of(&node) {
            // The node was replaced or changed its identity since the lookup.
            self.handles.queue.add(Arc::clone(&node.name), Priority::Urgent);
            return;
        }
        let claim = self.intake.claim(&node).unwrap_or(Claim::Unclaimed);
        let plan = plan(&node, claim, answer, self.intake.policy());
        let settled = plan.outcome == Outcome::InSync;
        let pause =
            settled.then(|| brake::check(&self.handles.guard, &node, &plan).err()).flatten();
        self.handles.plans.set(&node.reference(), published(&plan, pause));
        if let Some(pause) = pause {
            return self.pause(&node, &plan, pause);
        }
        match &plan.outcome {
            Outcome::Initialised | Outcome::InSync if self.handles.plans.is_observing() => {
                self.observed(&node, &plan);
            }
            Outcome::Initialised => {
                self.handles.ledger.new_node();
                self.apply(&node, &plan).await;
            }
            Outcome::InSync => {
                if self.is_uncontested(&node, &plan) && self.has_turn(&node, &plan) {
                    self.apply(&node, &plan).await;
                }
            }
            Outcome::Waits(wait) => self.wait(&node, wait, answer),
            outcome => self.skip(&node, outcome, answer),
        }
    }

    /// In observe mode the plan is only published. Without an initialised node there is no
    /// refresh, so uninitialised ones are retried.
    fn observed(&self, node: &Node, plan: &Plan) {
        self.handles.reports.notes(node, plan);
        let name = &node.name;
        self.handles.ledger.settled(name);
        self.handles.queue.forget(name);
        if plan.outcome == Outcome::Initialised {
            self.handles.ledger.set_state(name, State::Pending);
            self.handles.queue.retry_every(Arc::clone(name), LONG_RETRY);
        } else {
            self.handles.ledger.set_state(name, State::Initialised);
        }
    }

    /// Whether an initialised node may be written now. If not, it is queued for its turn.
    fn has_turn(&self, node: &Node, plan: &Plan) -> bool {
        let (name, writes) = (&node.name, plan.steps.len());
        if writes == 0 {
            return true;
        }
        let Err(wait) = self.handles.ledger.take_turn(name, writes) else { return true };
        self.later(node, wait);
        false
    }

    /// Plans this initialised node again after this time.
    fn later(&self, node: &Node, wait: Duration) {
        let name = &node.name;
        if node.provider_id.is_none() {
            // The inventory finds instances by ID only.
            self.handles.ledger.require_lookup(name);
        }
        self.handles.queue.add_after(Arc::clone(name), wait, Priority::Routine);
    }

    /// The brake does not let the plan pass now.
    fn pause(&self, node: &Node, plan: &Plan, pause: Pause) {
        match pause {
            Pause::Gathers(until) => self.later(node, self.handles.guard.until(until)),
            Pause::Held(hold) => {
                self.handles.ledger.set_state(&node.name, State::Initialised);
                self.handles.reports.held(node, plan, hold);
                self.handles.queue.forget(&node.name);
            }
        }
    }

    /// Whether no other writer undoes what the plan corrects. If one does, it is queued for later.
    fn is_uncontested(&self, node: &Node, plan: &Plan) -> bool {
        let allowed = self.handles.ledger.may_correct(&node.name, &plan.fields());
        if let Err(contested) = &allowed {
            self.handles.reports.contested(node, plan, contested);
            self.later(node, contested.wait);
        }
        allowed.is_ok()
    }

    async fn apply(&self, node: &Arc<Node>, plan: &Plan) {
        self.handles.reports.notes(node, plan);
        let name = &node.name;
        if plan.outcome == Outcome::Initialised {
            tracing::info!(node = &**name, "Initializing node {name} with cloud provider");
        }
        match execute(&self.writer, &self.handles, node, plan).await {
            Ok(()) => {
                if plan.outcome == Outcome::InSync {
                    for field in self.handles.ledger.corrected(name, &plan.fields()) {
                        self.handles.metrics.contested(&field);
                    }
                }
                self.handles.ledger.set_state(name, State::Initialised);
                self.handles.ledger.settled(name);
                self.handles.plans.clear("Node", name);
                self.handles.queue.forget(name);
            }
            Err(Unfinished { why: Stopped::Lost(lost), .. }) => {
                // A term that is only short is extended by the next renewal.
                tracing::debug!(node = &**name, "not written: {lost}");
                self.handles.queue.retry(Arc::clone(name));
            }
            Err(Unfinished { what, why: Stopped::Refused(error) }) => {
                self.refused(node, what, &error);
            }
        }
    }

    fn refused(&self, node: &Node, what: &'static str, error: &ApiError) {
        let name = &node.name;
        match error {
            // Deleted in the meantime: the informer reports it.
            ApiError::NotFound => return,
            ApiError::Conflict => {
                let conflicts = self.handles.ledger.conflict(name);
                let is_new = node.is_uninitialised();
                if conflicts <= if is_new { MANY_CONFLICTS } else { MANY_CONFLICTS_SETTLED } {
                    tracing::debug!(
                        node = &**name,
                        conflicts,
                        "the node has changed, planning again"
                    );
                    self.handles.queue.add_after(
                        Arc::clone(name),
                        AFTER_CONFLICT * conflicts,
                        priority(node),
                    );
                    return;
                }
            }
            _ => {}
        }
        let pace = self.handles.queue.retry_as(Arc::clone(name), error.class());
        if node.is_uninitialised() {
            self.handles.ledger.set_state(name, State::WriteFailing);
        }
        self.handles.reports.refused(node, what, error, pace);
    }

    /// The node keeps its taint.
    fn wait(&self, node: &Node, wait: &Wait, answer: &LookupResult) {
        let name = &node.name;
        self.handles.ledger.set_state(name, State::Waiting(wait.reason));
        let key = Arc::clone(name);
        let pace = match answer {
            Err(error) => self.handles.queue.retry_as(key, error.class()),
            _ if wait.reason == WaitReason::NodeIp => {
                self.handles.queue.retry_every(key, NODE_IP_RECHECK)
            }
            _ => self.handles.queue.retry_as(key, RetryClass::Retry),
        };
        // A new node can register before the cloud's own list shows its instance, and another
        // provider's node is tainted for a moment, too: the first time is not reported.
        let is_new =
            wait.reason != WaitReason::InstanceNotFound || self.handles.queue.failures(name) > 1;
        if is_new {
            self.handles.reports.wait(node, wait, pace);
        }
    }

    fn skip(&self, node: &Node, outcome: &Outcome, answer: &LookupResult) {
        let name = &node.name;
        let uninitialised = node.is_uninitialised();
        let state = match outcome {
            Outcome::Foreign => {
                self.handles.queue.forget(name);
                return self.intake.foreign(node);
            }
            Outcome::NotOurs(_) => State::NotOurs,
            Outcome::InstanceGone => State::InstanceGone,
            Outcome::Unconfirmed(_) => State::Unconfirmed,
            _ => State::Unknown,
        };
        if !matches!(outcome, Outcome::Unanswered(_)) {
            self.handles.guard.leaves(&node.uid);
        }
        self.handles.reports.skipped(node, outcome);
        self.handles.ledger.set_state(name, state);
        if let Err(error) = answer
            && error.class() != RetryClass::Permanent
            && self.handles.queue.failures(name) < LOOKUPS_BEFORE_REFRESH
        {
            self.handles.ledger.require_lookup(name);
            self.handles.queue.retry_as(Arc::clone(name), error.class());
            return;
        }
        self.handles.queue.forget(name);
        if uninitialised && state == State::NotOurs {
            self.handles.queue.retry_every(Arc::clone(name), LONG_RETRY);
        }
    }
}
