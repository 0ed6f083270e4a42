//! Second stage: plans and writes many nodes concurrently.
//!
//! There are two worker pools, as upstream has two kinds of worker: one for new nodes, one for
//! updates of initialised nodes. A change of the whole fleet never delays a new node: its writes
//! also have a rate of their own, and a node that waits for its turn waits in the queue.

use std::{sync::Arc, time::Duration};

use ccm_base::RetryClass;
use ccm_cloud::{Claim, LookupResult};
use ccm_controller::{
    queue::{LONG_RETRY, Priority, WorkQueue},
    workers,
    writer::{Stopped, Writer},
};
use ccm_kube::ApiError;
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::{plans::Plans, supervisor::Supervisor};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{Executor, Unfinished, published};
use crate::{
    metrics::State,
    observe::{
        Handles,
        intake::Intake,
        ledger::Ledger,
        lookups::{Work, WorkSenders},
        same_identity,
    },
    plan::{Outcome, Plan, Wait, WaitReason, plan},
    report::NodeReports,
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
/// After this number of consecutive conflicts the usual back-off applies.
const MANY_CONFLICTS: u32 = 8;

/// The stage.
pub(crate) struct Writers {
    intake: Arc<Intake>,
    executor: Executor,
    queue: WorkQueue<Name>,
    ledger: Ledger,
    reports: NodeReports,
    plans: Plans,
    settings: watch::Receiver<Arc<NodeSettings>>,
}

impl Writers {
    pub(crate) fn new(handles: &Handles, intake: Arc<Intake>, writer: Writer<Node>) -> Arc<Self> {
        let Handles { queue, ledger, reports, plans, settings, metrics, .. } = handles.clone();
        let executor = Executor { writer, metrics, reports: reports.clone() };
        Arc::new(Self { intake, executor, queue, ledger, reports, plans, settings })
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
        let mut settings = self.settings.clone();
        while let Some(Ok(())) = token.run_until_cancelled(settings.changed()).await {
            let rate = settings.borrow_and_update().node_correction_qps;
            for name in self.ledger.set_correction_rate(rate) {
                self.queue.add(name, Priority::Routine);
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
        let limit = || limit(&self.settings.borrow());
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
        let Some(node) = self.intake.get(&asked.name) else { return };
        if !same_identity(asked, &node) {
            // The node was replaced or changed its identity since the lookup.
            self.queue.add(Arc::clone(&node.name), Priority::Urgent);
            return;
        }
        let claim = self.intake.claim(&node).unwrap_or(Claim::Unclaimed);
        let policy = self.intake.policy(&self.settings.borrow());
        let plan = plan(&node, claim, answer, policy);
        self.plans.set(&node.reference(), published(&plan));
        match &plan.outcome {
            Outcome::Initialised | Outcome::InSync if self.plans.is_observing() => {
                self.observed(&node, &plan);
            }
            Outcome::Initialised => {
                self.ledger.new_node();
                self.apply(&node, &plan).await;
            }
            Outcome::InSync => {
                if self.has_turn(&node, &plan) {
                    self.apply(&node, &plan).await;
                }
            }
            Outcome::Waits(wait) => self.wait(&node, wait, answer),
            outcome => self.skip(&node, outcome),
        }
    }

    /// In observe mode the plan is only published. Refreshes do not cover uninitialised nodes,
    /// so these are retried.
    fn observed(&self, node: &Node, plan: &Plan) {
        self.reports.notes(node, plan);
        let name = &node.name;
        self.ledger.settled(name);
        self.queue.forget(name);
        if plan.outcome == Outcome::Initialised {
            self.ledger.set_state(name, State::Pending);
            self.queue.retry_every(Arc::clone(name), LONG_RETRY);
        } else {
            self.ledger.set_state(name, State::Initialised);
        }
    }

    /// Whether an initialised node may be written now. If not, it is queued for its turn.
    fn has_turn(&self, node: &Node, plan: &Plan) -> bool {
        let (name, writes) = (&node.name, plan.steps.len());
        if writes == 0 {
            return true;
        }
        let Err(wait) = self.ledger.take_turn(name, writes) else { return true };
        if node.provider_id.is_none() {
            // The inventory finds instances by ID only.
            self.ledger.require_lookup(name);
        }
        self.queue.add_after(Arc::clone(name), wait, Priority::Routine);
        false
    }

    async fn apply(&self, node: &Arc<Node>, plan: &Plan) {
        self.reports.notes(node, plan);
        let name = &node.name;
        if plan.outcome == Outcome::Initialised {
            tracing::info!(node = &**name, "Initializing node {name} with cloud provider");
        }
        match self.executor.execute(node, plan).await {
            Ok(()) => {
                self.ledger.set_state(name, State::Initialised);
                self.ledger.settled(name);
                self.plans.clear("Node", name);
                self.queue.forget(name);
            }
            Err(Unfinished { why: Stopped::Lost(lost), .. }) => {
                // A term that is only short is extended by the next renewal.
                tracing::debug!(node = &**name, "not written: {lost}");
                self.queue.retry(Arc::clone(name));
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
                let conflicts = self.ledger.conflict(name);
                if conflicts <= MANY_CONFLICTS {
                    let priority =
                        if node.is_uninitialised() { Priority::Urgent } else { Priority::Routine };
                    tracing::debug!(
                        node = &**name,
                        conflicts,
                        "the node has changed, planning again"
                    );
                    self.queue.add_after(Arc::clone(name), AFTER_CONFLICT * conflicts, priority);
                    return;
                }
            }
            _ => {}
        }
        let pace = self.queue.retry_as(Arc::clone(name), error.class());
        if node.is_uninitialised() {
            self.ledger.set_state(name, State::WriteFailing);
        }
        self.reports.refused(node, what, error, pace);
    }

    /// The node keeps its taint.
    fn wait(&self, node: &Node, wait: &Wait, answer: &LookupResult) {
        let name = &node.name;
        self.ledger.set_state(name, State::Waiting(wait.reason));
        let key = Arc::clone(name);
        let pace = match answer {
            Err(error) => self.queue.retry_as(key, error.class()),
            _ if wait.reason == WaitReason::NodeIp => self.queue.retry_every(key, NODE_IP_RECHECK),
            _ => self.queue.retry_as(key, RetryClass::Retry),
        };
        // A new node can register before the cloud's own list shows its instance, and another
        // provider's node is tainted for a moment, too: the first time is not reported.
        let is_new = wait.reason != WaitReason::InstanceNotFound || self.queue.failures(name) > 1;
        if is_new {
            self.reports.wait(node, wait, pace);
        }
    }

    fn skip(&self, node: &Node, outcome: &Outcome) {
        let name = &node.name;
        let uninitialised = node.is_uninitialised();
        let state = match outcome {
            Outcome::Foreign => {
                self.queue.forget(name);
                return self.intake.foreign(node);
            }
            Outcome::NotOurs(_) => State::NotOurs,
            Outcome::InstanceGone => State::InstanceGone,
            _ => State::Unknown,
        };
        self.reports.skipped(node, outcome);
        self.ledger.set_state(name, state);
        self.queue.forget(name);
        if uninitialised && state == State::NotOurs {
            self.queue.retry_every(Arc::clone(name), LONG_RETRY);
        }
    }
}
