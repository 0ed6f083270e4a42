use std::{collections::HashMap, sync::Arc, time::Duration};

use ccm_cloud::{Call, Cloud, Detail, ErrorKind, LookupResult};
use ccm_kube::store::Store;
use ccm_objects::{Node, Shared as Name};
use futures::stream;
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::SizedLookups;
use crate::{
    queue::{BatchWindow, BatchWindowConfig, Priority, WorkQueue},
    workers,
};

/// The most nodes in one batch.
pub const BATCH: usize = 500;
/// The maximum number of lookups in flight: a slow lookup must not block the next one.
const IN_FLIGHT: usize = 4;
/// How often in a row a node is looked up again at once after calls that had too many nodes. After
/// that the failure counts as the node's own.
const MANY_UNANSWERED: u32 = 16;
/// The limit if the last call was not answered in time. It is lower because each such call takes
/// its whole time limit, and the user should learn of it.
const MANY_TIMEOUTS: u32 = 4;
/// The delay of such a lookup.
const AGAIN: Duration = Duration::from_millis(1);

/// One node and the cloud's answer about it.
#[derive(Debug)]
pub struct Work {
    /// The node as it was when the lookup began.
    pub node: Arc<Node>,
    /// The answer.
    pub answer: LookupResult,
}

/// The next step for a node from the queue.
pub enum NextStep {
    /// Nothing: the node should not be worked on now.
    Nothing,
    /// Work with this answer.
    Known(LookupResult),
    /// A lookup in the cloud.
    Ask,
}

/// The controller that looks up nodes.
pub trait Asker: Send + Sync + 'static {
    /// Returns the next step for this node.
    fn next(&self, node: &Arc<Node>) -> NextStep;

    /// Returns a call about these nodes.
    fn call(&self, nodes: &[Arc<Node>]) -> Call;

    /// Records the end of a call about this many nodes. The next calls have at most `most` nodes.
    fn asked(&self, _nodes: usize, _most: usize) {}

    /// Records that the call about this node had too many nodes, so that the next work on it asks
    /// the cloud again.
    fn asks_again(&self, _name: &Name) {}

    /// Records the cloud's answers in a call that began at `started`.
    fn record_answers(&self, _works: &[Work], _started: Instant) {}

    /// Returns the workers for this node. They give its name back to the queue.
    fn workers(&self, node: &Node) -> &mpsc::Sender<Work>;

    /// Gives the name of a node back to the queue.
    fn done(&self, name: &Name);
}

/// Returns how soon to work on a node: someone waits for a new one.
fn priority(node: &Node) -> Priority {
    if node.is_uninitialised() { Priority::Urgent } else { Priority::Routine }
}

/// Takes nodes from a queue in batches, looks up those that need it with one cloud call per batch,
/// and sends each to the workers as soon as it has an answer.
pub struct Stage<A> {
    asker: A,
    store: Store<Node>,
    queue: WorkQueue<Name>,
    /// The number of consecutive lookups that were not answered because they had too many nodes, by
    /// node.
    unanswered: Mutex<HashMap<Name, u32>>,
    sized: SizedLookups,
    /// Cancelled by the drain: pending cloud calls are dropped.
    closing: CancellationToken,
}

impl<A: Asker> Stage<A> {
    /// Looks up the nodes of this store until `closing` is cancelled.
    pub fn new(
        asker: A,
        cloud: &Arc<dyn Cloud>,
        store: &Store<Node>,
        queue: &WorkQueue<Name>,
        closing: &CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            asker,
            store: store.clone(),
            queue: queue.clone(),
            unanswered: Mutex::default(),
            sized: SizedLookups::new(Arc::clone(cloud), BATCH),
            closing: closing.clone(),
        })
    }

    /// Runs until the token is cancelled; takes no more nodes once the queue is shut down.
    pub async fn run(self: Arc<Self>, window: BatchWindowConfig, token: CancellationToken) {
        let start = (BatchWindow::new(window), Arc::new(Semaphore::new(IN_FLIGHT)));
        // While all slots are taken, nodes collect in the queue and the next batch is larger.
        let batches = stream::unfold(start, async |(mut window, slots)| {
            let slot = Arc::clone(&slots).acquire_owned().await.ok()?;
            let batch = self.queue.get_batch(self.sized.size(), &mut window).await?;
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
            self.ask(asked, sender, started).await;
            // A slot limits cloud calls only; the workers have their own limits.
            drop(slot);
        };
        let pass_on = async {
            let mut works = Vec::new();
            while answered.recv_many(&mut works, BATCH).await > 0 {
                self.asker.record_answers(&works, started);
                self.send_all(std::mem::take(&mut works)).await;
            }
        };
        tokio::join!(ask, self.send_all(known), pass_on);
    }

    /// Passes nodes to the workers, at the workers' pace.
    async fn send_all(&self, all: Vec<Work>) {
        for work in all {
            if let Err(lost) = self.asker.workers(&work.node).send(work).await {
                // The workers have ended, so the process is ending too.
                self.done(&lost.0.node.name);
            }
        }
    }

    /// Splits the nodes into those with a known answer and those to look up in the cloud.
    fn partition(&self, batch: &[Name]) -> (Vec<Work>, Vec<Arc<Node>>) {
        let (mut known, mut asked) = (Vec::new(), Vec::new());
        for name in batch {
            let Some(node) = self.store.get(name) else {
                self.done(name);
                continue;
            };
            match self.asker.next(&node) {
                NextStep::Ask => asked.push(node),
                NextStep::Known(answer) => known.push(Work { node, answer }),
                NextStep::Nothing => {
                    self.queue.forget(name);
                    self.done(name);
                }
            }
        }
        (known, asked)
    }

    /// Looks up these nodes in one call, and sends each node with its answer as it arrives. If
    /// the call had too many nodes, those without an answer are queued again.
    async fn ask(
        &self,
        nodes: Vec<Arc<Node>>,
        answered: mpsc::UnboundedSender<Work>,
        started: Instant,
    ) {
        if nodes.is_empty() {
            return;
        }
        let call = self.asker.call(&nodes);
        let mut open: Vec<_> = nodes.iter().cloned().map(Some).collect();
        let pass_on = |place: usize, answer: LookupResult| {
            let Some(node) = open.get_mut(place).and_then(Option::take) else { return };
            if answer.is_ok() {
                self.unanswered.lock().remove(&node.name);
            }
            // The receiver ends after this task.
            answered.send(Work { node, answer }).ok();
        };
        let asking = self.sized.ask(&nodes, Detail::Everything, call, pass_on);
        let again = self.closing.run_until_cancelled(asking).await;
        if again.is_some() {
            self.asker.asked(nodes.len(), self.sized.size());
        }
        for (place, answer) in again.into_iter().flatten() {
            let Some(node) = open.get_mut(place).and_then(Option::take) else { continue };
            let work = Work { node, answer };
            if self.is_asked_again(&work) {
                self.asker.record_answers(&[work], started);
            } else {
                answered.send(work).ok();
            }
        }
        // The call was cancelled: the next leader repeats it.
        for node in open.iter().flatten() {
            self.done(&node.name);
        }
    }

    /// Queues a node whose lookup had too many nodes. Returns false if that has happened too often.
    fn is_asked_again(&self, Work { node, answer }: &Work) -> bool {
        let name = &node.name;
        let is_late = answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Timeout);
        let many = if is_late { MANY_TIMEOUTS } else { MANY_UNANSWERED };
        if self.one_more_unanswered(name) > many {
            return false;
        }
        self.asker.asks_again(name);
        self.queue.add_after(Name::clone(name), AGAIN, priority(node));
        self.done(name);
        true
    }

    /// Counts a lookup without an answer. Returns the number of consecutive ones.
    fn one_more_unanswered(&self, name: &Name) -> u32 {
        let mut unanswered = self.unanswered.lock();
        // A node may have gone while it waited.
        if unanswered.len() > self.store.len() {
            unanswered.retain(|name, _| self.store.get(name).is_some());
        }
        let times = unanswered.entry(Name::clone(name)).or_default();
        *times = times.saturating_add(1);
        *times
    }

    /// Gives a name back.
    fn done(&self, name: &Name) {
        if self.store.get(name).is_none() {
            self.unanswered.lock().remove(name);
        }
        self.asker.done(name);
    }
}
