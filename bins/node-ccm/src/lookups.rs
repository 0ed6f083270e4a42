//! First stage: takes nodes from the queue in batches, asks the cloud once per batch
//! about those that need it, and hands all of them to the writers.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{Call, Claim, CloudError, Detail, ErrorKind, Instance};
use ccm_controller::{
    instances,
    queue::{Linger, LingerConfig},
};
use ccm_objects::{Node, Shared as Name};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{controller::Controller, plan::Answer, writers::Work};

/// The most nodes in one batch.
const BATCH: usize = 500;
/// The most lookups in flight: a slow one must not hold up the next.
const IN_FLIGHT: usize = 4;

/// How long the first node of a burst waits for others. A cloud takes longer than this for
/// an answer, and nodes that are created together register within about so long.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// Where nodes go from here.
#[derive(Clone)]
pub(crate) struct Outlets {
    /// Nodes that wait for their initialisation.
    pub(crate) new: mpsc::Sender<Work>,
    /// All others.
    pub(crate) settled: mpsc::Sender<Work>,
}

impl Outlets {
    /// Hands nodes to the writers, at the pace at which they work.
    async fn send_all(&self, controller: &Controller, all: Vec<Work>) {
        for work in all {
            let outlet = if work.node.is_uninitialised() { &self.new } else { &self.settled };
            if let Err(lost) = outlet.send(work).await {
                // The writers have ended, and so does the process.
                controller.done(&lost.0.node.name);
            }
        }
    }
}

/// What is to be done with a node from the queue.
enum Next {
    /// Nothing: it is gone, foreign, or nothing can be said about it now.
    Nothing,
    /// Everything needed is known.
    Known(Answer),
    /// The cloud has to be asked.
    Ask,
}

/// Runs until the token is cancelled; takes nothing any more once the queue is shut down.
pub(crate) async fn run(controller: Arc<Controller>, outlets: Outlets, token: CancellationToken) {
    let stage = async {
        let mut tasks = JoinSet::new();
        take_batches(&controller, &outlets, &mut tasks).await;
        while let Some(ended) = tasks.join_next().await {
            resume_panic(ended);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = token.cancelled() => {}
        () = stage => {}
    }
}

/// Takes batches until the queue is shut down. While all slots are taken nodes gather in
/// the queue, and the next batch is the larger.
async fn take_batches(controller: &Arc<Controller>, outlets: &Outlets, tasks: &mut JoinSet<()>) {
    let mut linger = Linger::new(LingerConfig { first: FIRST_WAIT, ..LingerConfig::default() });
    let slots = Arc::new(Semaphore::new(IN_FLIGHT));
    while let Some(batch) = next_batch(controller, &mut linger, tasks).await {
        let Sorted { known, asked } = controller.sort_out(&batch);
        if !known.is_empty() {
            let (controller, outlets) = (Arc::clone(controller), outlets.clone());
            tasks.spawn(async move { outlets.send_all(&controller, known).await });
        }
        if asked.is_empty() {
            continue;
        }
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let (controller, outlets) = (Arc::clone(controller), outlets.clone());
        tasks.spawn(async move {
            let answered = controller.ask(asked).await;
            // A slot is for the cloud; writing has limits of its own.
            drop(slot);
            outlets.send_all(&controller, answered).await;
        });
    }
}

/// The next batch. Meanwhile notices tasks that have ended.
async fn next_batch(
    controller: &Controller,
    linger: &mut Linger,
    tasks: &mut JoinSet<()>,
) -> Option<Vec<Name>> {
    let mut batch = std::pin::pin!(controller.queue.get_batch(BATCH, linger));
    loop {
        tokio::select! {
            biased;
            Some(ended) = tasks.join_next() => resume_panic(ended),
            batch = &mut batch => return batch,
        }
    }
}

/// The keys of a task that panicked would be lost; the supervisor ends the process.
pub(crate) fn resume_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// A batch, sorted by what its nodes need.
#[derive(Default)]
struct Sorted {
    /// Everything needed is known.
    known: Vec<Work>,
    /// The cloud has to be asked.
    asked: Vec<Arc<Node>>,
}

impl Controller {
    fn sort_out(&self, batch: &[Name]) -> Sorted {
        let mut sorted = Sorted::default();
        for name in batch {
            let Some(node) = self.store.get(name) else {
                self.done(name);
                continue;
            };
            match self.next(&node) {
                Next::Ask => sorted.asked.push(node),
                Next::Known(answer) => sorted.known.push(Work { node, answer }),
                Next::Nothing => {
                    self.queue.forget(name);
                    self.done(name);
                }
            }
        }
        sorted
    }

    fn next(&self, node: &Node) -> Next {
        let uninitialised = node.is_uninitialised();
        match self.claim(node) {
            Some(Claim::Foreign) => {
                self.foreign(node);
                return Next::Nothing;
            }
            None if uninitialised => return Next::Known(schemes_unknown()),
            None => return Next::Nothing,
            Some(Claim::Ours | Claim::Unclaimed) => {}
        }
        let demanded = self.ledger.take_demand(&node.name);
        if !demanded && let Some(answer) = self.ledger.remembered(node) {
            return Next::Known(answer);
        }
        if uninitialised || demanded {
            return Next::Ask;
        }
        // What the last list and lookups showed is enough to put back what another has
        // changed; what they did not show waits for the next refresh.
        let known = instances::canonical_id(&*self.cloud, node).map(|id| self.inventory.get(&id));
        match known {
            Some(Ok(Some(instance))) => Next::Known(Answer::Found(instance)),
            _ => Next::Nothing,
        }
    }

    /// Asks the cloud about these nodes in one call.
    async fn ask(&self, nodes: Vec<Arc<Node>>) -> Vec<Work> {
        let urgent = nodes.iter().any(|node| node.is_uninitialised());
        let time = self.settings().cloud_call_timeout;
        let call = if urgent { Call::waiting(time) } else { Call::routine(time) };
        let started = Instant::now();
        let results = tokio::select! {
            biased;
            () = self.closing.cancelled() => {
                for node in &nodes {
                    self.done(&node.name);
                }
                return Vec::new();
            }
            results = instances::lookup(&*self.cloud, &nodes, Detail::Everything, call) => results,
        };
        self.metrics.looked_up(nodes.len());
        let answers: Vec<Answer> = results.into_iter().map(Answer::from).collect();
        let found = answers.iter().filter_map(|answer| match answer {
            Answer::Found(instance) => Some(Instance::clone(instance)),
            _ => None,
        });
        self.inventory.update_all(found, started);
        let works = nodes.into_iter().zip(answers).map(|(node, answer)| Work { node, answer });
        works.inspect(|work| self.note_answer(work)).collect()
    }

    fn note_answer(&self, Work { node, answer }: &Work) {
        self.metrics.answered(answer);
        if matches!(answer, Answer::Found(_)) {
            self.ledger.remember(Arc::clone(node), answer.clone());
        }
    }
}

/// The answer for a node whose provider ID cannot be judged yet.
fn schemes_unknown() -> Answer {
    let message = "the cloud provider has not said yet which provider IDs are its own";
    Answer::Failed(CloudError::new(ErrorKind::Unavailable, message))
}
