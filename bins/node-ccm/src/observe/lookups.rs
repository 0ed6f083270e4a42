//! First stage: which nodes of the queue are looked up in the cloud, and what is kept of the
//! answers. The kit's stage takes them in batches and passes them on to the writers.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{Call, CloudError, ErrorKind, Instance, Lookup};
use ccm_controller::{
    instances,
    lookups::{Asker, BATCH, Next, Stage, Work},
    queue::BatchWindowConfig,
};
use ccm_objects::{Node, Shared as Name};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Handles, intake::Intake};

/// After this number of refresh periods without an answer, what is known of an instance is no
/// longer written to its node.
const STALE_PERIODS: u32 = 2;

/// How long a batch stays open after its first node. A cloud call takes longer than this, and
/// nodes that are created together register within about this time.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// The channels to the writers.
pub(crate) struct WorkSenders {
    /// Nodes with the uninitialized taint.
    pub(crate) new: mpsc::Sender<Work>,
    /// All others.
    pub(crate) settled: mpsc::Sender<Work>,
}

/// The stage's questions and answers.
struct Lookups {
    handles: Handles,
    intake: Arc<Intake>,
    senders: WorkSenders,
}

/// Runs the stage until the token is cancelled; `closing` ends pending calls.
pub(crate) async fn run(
    handles: Handles,
    intake: Arc<Intake>,
    senders: WorkSenders,
    closing: CancellationToken,
    token: CancellationToken,
) {
    handles.metrics.limit_lookups(BATCH);
    let Handles { cloud, store, queue, answers, .. } = &handles.clone();
    let lookups = Lookups { handles, intake, senders };
    let window = BatchWindowConfig { first: FIRST_WAIT, ..BatchWindowConfig::default() };
    Stage::new(lookups, cloud, store, queue, answers, &closing).run(window, token).await;
}

impl Asker for Lookups {
    fn next(&self, node: &Arc<Node>) -> Next {
        let Handles { cloud, inventory, answers, settings, .. } = &self.handles;
        let uninitialised = node.is_uninitialised();
        match self.intake.is_ours(node) {
            Some(true) => {}
            None if uninitialised => return Next::Known(Err(unknown_schemes_error())),
            _ => return Next::Nothing,
        }
        let required = answers.take_required(&node.name);
        if !required && let Some(answer) = answers.recall(node) {
            return Next::Known(answer);
        }
        if uninitialised || required {
            return Next::Ask;
        }
        // The last lookups are enough to revert another writer's change, unless refreshes have
        // failed since. Anything they do not show waits for the next refresh.
        let id = instances::canonical_id(&**cloud, node);
        let period = settings.borrow().node_status_update_frequency;
        match id.and_then(|id| inventory.get(&id)) {
            Some(known) if known.seen.elapsed() > period * STALE_PERIODS => Next::Ask,
            Some(known) => {
                Next::Known(Ok(Lookup::Found(Box::new(Instance::clone(&known.instance)))))
            }
            None => Next::Nothing,
        }
    }

    fn call(&self, nodes: &[Arc<Node>]) -> Call {
        let urgent = nodes.iter().any(|node| node.is_uninitialised());
        let limit = self.handles.settings.borrow().cloud_call_timeout;
        if urgent { Call::waiting(limit) } else { Call::routine(limit) }
    }

    fn asked(&self, nodes: usize, most: usize) {
        self.handles.metrics.looked_up(nodes);
        self.handles.metrics.limit_lookups(most);
    }

    fn answered(&self, works: &[Work], started: Instant) {
        let found = works.iter().filter_map(|work| match &work.answer {
            Ok(Lookup::Found(instance)) => Some(Instance::clone(instance)),
            _ => None,
        });
        self.handles.inventory.update(found, started);
        for Work { node, answer } in works {
            self.handles.metrics.answered(answer);
            if matches!(answer, Ok(Lookup::Found(_))) {
                self.handles.answers.remember(Arc::clone(node), answer.clone());
            }
        }
    }

    fn workers(&self, node: &Node) -> &mpsc::Sender<Work> {
        if node.is_uninitialised() { &self.senders.new } else { &self.senders.settled }
    }

    fn done(&self, name: &Name) {
        self.intake.done(name);
    }
}

/// The answer for a node while the provider has not reported its schemes.
fn unknown_schemes_error() -> CloudError {
    let message = "the cloud provider has not reported its provider ID schemes yet";
    CloudError::new(ErrorKind::Unavailable, message)
}
