//! First stage: takes nodes from the queue in batches, looks up those that need it with one
//! cloud call per batch, and sends all of them to the writers.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{Call, CloudError, Detail, ErrorKind, Instance, Lookup, LookupResult};
use ccm_controller::{
    instances,
    lookups::SizedLookups,
    queue::{BatchWindow, BatchWindowConfig},
    workers,
};
use ccm_objects::{Node, Shared as Name};
use futures::stream;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{Handles, intake::Intake, priority};

/// The most nodes in one batch.
const BATCH: usize = 500;
/// The maximum number of lookups in flight: a slow lookup must not block the next one.
const IN_FLIGHT: usize = 4;

/// After this number of refresh periods without an answer, what is known of an instance is no
/// longer written to its node.
const STALE_PERIODS: u32 = 2;
/// How often in a row a node is looked up again at once after calls that had too many nodes.
/// Then the failure counts as the node's own.
const MANY_UNANSWERED: u32 = 16;
/// The same if the last call was not answered in time: each of them takes its whole time limit,
/// and the user should learn of it.
const MANY_TIMEOUTS: u32 = 4;
/// The delay of such a lookup.
const AGAIN: Duration = Duration::from_millis(1);

/// How long a batch stays open after its first node. A cloud call takes longer than this, and
/// nodes that are created together register within about this time.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// One node and the cloud's answer about it.
#[derive(Debug)]
pub(crate) struct Work {
    /// The node as it was when the lookup began.
    pub(crate) node: Arc<Node>,
    /// The answer.
    pub(crate) answer: LookupResult,
}

/// The channels to the writers.
pub(crate) struct WorkSenders {
    /// Nodes with the uninitialized taint.
    pub(crate) new: mpsc::Sender<Work>,
    /// All others.
    pub(crate) settled: mpsc::Sender<Work>,
}

/// The next step for a node from the queue.
enum Next {
    /// None: the node is gone or foreign, or its owner is not known yet.
    Nothing,
    /// Plan it with this answer.
    Known(LookupResult),
    /// Look it up in the cloud.
    Ask,
}

/// The stage.
pub(crate) struct Lookups {
    handles: Handles,
    intake: Arc<Intake>,
    sized: SizedLookups,
    senders: WorkSenders,
    /// Cancelled by the drain: pending cloud calls are dropped.
    closing: CancellationToken,
}

impl Lookups {
    pub(crate) fn new(
        handles: &Handles,
        intake: Arc<Intake>,
        senders: WorkSenders,
        closing: CancellationToken,
    ) -> Arc<Self> {
        handles.metrics.limit_lookups(BATCH);
        let sized = SizedLookups::new(Arc::clone(&handles.cloud), BATCH);
        Arc::new(Self { handles: handles.clone(), intake, sized, senders, closing })
    }

    /// Runs until the token is cancelled; takes no more nodes once the queue is shut down.
    pub(crate) async fn run(self: Arc<Self>, token: CancellationToken) {
        let config = BatchWindowConfig { first: FIRST_WAIT, ..BatchWindowConfig::default() };
        let start = (BatchWindow::new(config), Arc::new(Semaphore::new(IN_FLIGHT)));
        // While all slots are taken, nodes collect in the queue and the next batch is larger.
        let batches = stream::unfold(start, async |(mut window, slots)| {
            let slot = Arc::clone(&slots).acquire_owned().await.ok()?;
            let batch = self.handles.queue.get_batch(self.sized.size(), &mut window).await?;
            Some(((slot, batch), (window, slots)))
        });
        let work = |(slot, batch)| Arc::clone(&self).process(slot, batch);
        workers::pool(batches, || usize::MAX, token, work).await;
    }

    async fn process(self: Arc<Self>, slot: OwnedSemaphorePermit, batch: Vec<Name>) {
        let (known, asked) = self.partition(&batch);
        let (sender, mut answered) = mpsc::unbounded_channel();
        let started = Instant::now();
        let ask = async {
            self.ask(asked, sender).await;
            // A slot limits cloud calls only; the writers have their own limits.
            drop(slot);
        };
        let pass_on = async {
            let mut works = Vec::new();
            while answered.recv_many(&mut works, BATCH).await > 0 {
                self.store_answers(&works, started);
                self.send_all(std::mem::take(&mut works)).await;
            }
        };
        tokio::join!(ask, self.send_all(known), pass_on);
    }

    /// Passes nodes to the writers, at the writers' pace.
    async fn send_all(&self, all: Vec<Work>) {
        let WorkSenders { new, settled } = &self.senders;
        for work in all {
            let sender = if work.node.is_uninitialised() { new } else { settled };
            if let Err(lost) = sender.send(work).await {
                // The writers have ended, so the process is ending too.
                self.intake.done(&lost.0.node.name);
            }
        }
    }

    /// Splits the nodes into those with a known answer and those to look up in the cloud.
    fn partition(&self, batch: &[Name]) -> (Vec<Work>, Vec<Arc<Node>>) {
        let (mut known, mut asked) = (Vec::new(), Vec::new());
        for name in batch {
            let Some(node) = self.handles.store.get(name) else {
                self.intake.done(name);
                continue;
            };
            match self.next(&node) {
                Next::Ask => asked.push(node),
                Next::Known(answer) => known.push(Work { node, answer }),
                Next::Nothing => {
                    self.handles.queue.forget(name);
                    self.intake.done(name);
                }
            }
        }
        (known, asked)
    }

    fn next(&self, node: &Node) -> Next {
        let uninitialised = node.is_uninitialised();
        match self.intake.is_ours(node) {
            Some(true) => {}
            None if uninitialised => return Next::Known(Err(unknown_schemes_error())),
            _ => return Next::Nothing,
        }
        let required = self.handles.ledger.take_required_lookup(&node.name);
        if !required && let Some(answer) = self.handles.ledger.remembered(node) {
            return Next::Known(answer);
        }
        if uninitialised || required {
            return Next::Ask;
        }
        // The last lookups are enough to revert another writer's change, unless refreshes have
        // failed since. Anything they do not show waits for the next refresh.
        let known = instances::canonical_id(&*self.handles.cloud, node)
            .and_then(|id| self.handles.inventory.get(&id));
        let period = self.handles.settings.borrow().node_status_update_frequency;
        match known {
            Some(known) if known.seen.elapsed() > period * STALE_PERIODS => Next::Ask,
            Some(known) => {
                Next::Known(Ok(Lookup::Found(Box::new(Instance::clone(&known.instance)))))
            }
            None => Next::Nothing,
        }
    }

    /// Looks up these nodes in one call, and sends each node with its answer as it arrives. If
    /// the call had too many nodes, those without an answer are queued again.
    async fn ask(&self, nodes: Vec<Arc<Node>>, answered: mpsc::UnboundedSender<Work>) {
        if nodes.is_empty() {
            return;
        }
        let urgent = nodes.iter().any(|node| node.is_uninitialised());
        let limit = self.handles.settings.borrow().cloud_call_timeout;
        let call = if urgent { Call::waiting(limit) } else { Call::routine(limit) };
        let mut open: Vec<_> = nodes.iter().cloned().map(Some).collect();
        let pass_on = |place: usize, answer: LookupResult| {
            let Some(node) = open.get_mut(place).and_then(Option::take) else { return };
            // The receiver ends after this task.
            answered.send(Work { node, answer }).ok();
        };
        let asking = self.sized.ask(&nodes, Detail::Everything, call, pass_on);
        let again = self.closing.run_until_cancelled(asking).await;
        if again.is_some() {
            self.handles.metrics.looked_up(nodes.len());
            self.handles.metrics.limit_lookups(self.sized.size());
        }
        for (place, answer) in again.into_iter().flatten() {
            let Some(node) = open.get_mut(place).and_then(Option::take) else { continue };
            let work = Work { node, answer };
            if !self.ask_again(&work) {
                answered.send(work).ok();
            }
        }
        // The call was cancelled: the next leader repeats it.
        for node in open.iter().flatten() {
            self.intake.done(&node.name);
        }
    }

    /// Queues a node whose lookup had too many nodes; `false` if that has happened too often.
    fn ask_again(&self, Work { node, answer }: &Work) -> bool {
        let name = &node.name;
        let is_late = answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Timeout);
        let many = if is_late { MANY_TIMEOUTS } else { MANY_UNANSWERED };
        if self.handles.ledger.unanswered(name) > many {
            return false;
        }
        self.handles.metrics.answered(answer);
        self.handles.ledger.require_lookup(name);
        self.handles.queue.add_after(Arc::clone(name), AGAIN, priority(node));
        self.intake.done(name);
        true
    }

    /// Stores the cloud's answers to calls made since `started`.
    fn store_answers(&self, works: &[Work], started: Instant) {
        let found = works.iter().filter_map(|work| match &work.answer {
            Ok(Lookup::Found(instance)) => Some(Instance::clone(instance)),
            _ => None,
        });
        self.handles.inventory.update(found, started);
        for Work { node, answer } in works {
            self.handles.metrics.answered(answer);
            if matches!(answer, Ok(Lookup::Found(_))) {
                self.handles.ledger.remember(Arc::clone(node), answer.clone());
            }
        }
    }
}

/// The answer for a node while the provider has not reported its schemes.
fn unknown_schemes_error() -> CloudError {
    let message = "the cloud provider has not reported its provider ID schemes yet";
    CloudError::new(ErrorKind::Unavailable, message)
}
