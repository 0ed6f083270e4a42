//! What the loops of the controller share, and what wakes them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use ccm_cloud::{Claim, Cloud};
use ccm_controller::{
    instances,
    inventory::Inventory,
    queue::{Priority, QueueConfig, WorkQueue},
    writer::Writer,
};
use ccm_kube::{
    events::EventRecorder,
    store::{Change, Store},
};
use ccm_objects::{Node, Shared as Name};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    ledger::Ledger,
    metrics::{NodeMetrics, State},
    observe,
    pace::RETRY,
    settings::NodeSettings,
};

/// The upstream name of the queue, the label of its metrics.
pub(crate) const QUEUE: &str = "Nodes";

/// How the queue spaces its retries.
pub(crate) fn queue_config() -> QueueConfig {
    QueueConfig { waits: RETRY, ..QueueConfig::default() }
}

/// What the loops share.
pub(crate) struct Controller {
    pub(crate) store: Store<Node>,
    pub(crate) writer: Writer<Node>,
    pub(crate) cloud: Arc<dyn Cloud>,
    pub(crate) events: EventRecorder,
    pub(crate) settings: watch::Receiver<Arc<NodeSettings>>,
    pub(crate) queue: WorkQueue<Name>,
    pub(crate) inventory: Inventory,
    pub(crate) ledger: Ledger,
    pub(crate) metrics: NodeMetrics,
    /// Set once this replica leads: before that nothing is queued.
    pub(crate) leads: AtomicBool,
    /// Cancelled when no new call to the cloud is to be waited for.
    pub(crate) closing: CancellationToken,
}

impl Controller {
    /// The settings as they are now.
    pub(crate) fn settings(&self) -> Arc<NodeSettings> {
        Arc::clone(&self.settings.borrow())
    }

    /// Takes up work: every node that waits is looked at now. The others are compared
    /// with the fleet by the first refresh.
    pub(crate) fn take_up(&self) {
        // Before the list, so that no node falls between the list and the first change.
        self.leads.store(true, Ordering::SeqCst);
        for node in self.store.list() {
            self.classify(&node);
            if node.is_uninitialised() {
                self.queue.add(Arc::clone(&node.name), Priority::Urgent);
            }
        }
    }

    /// Takes notice of a change of a node. Never waits.
    pub(crate) fn changed(&self, change: &Change<Node>) {
        if !self.leads.load(Ordering::SeqCst) {
            return;
        }
        match change {
            Change::Added(node) => {
                self.classify(node);
                if node.is_uninitialised() {
                    self.queue.add(Arc::clone(&node.name), Priority::Urgent);
                } else if self.claim(node) != Some(Claim::Foreign) {
                    self.ledger.demand(&node.name);
                    self.queue.add(Arc::clone(&node.name), Priority::Routine);
                }
            }
            Change::Updated { old, new } => {
                if let Some(priority) = observe::wakes(old, new) {
                    self.queue.add(Arc::clone(&new.name), priority);
                }
            }
            Change::Deleted(node) => self.ledger.forget(&node.name),
        }
    }

    /// Whose node it is; `None` while that cannot be told.
    pub(crate) fn claim(&self, node: &Node) -> Option<Claim> {
        instances::claim(&*self.cloud, node)
    }

    /// Counts a node that is seen for the first time.
    fn classify(&self, node: &Node) {
        let state = match self.claim(node) {
            Some(Claim::Foreign) => return self.foreign(node),
            _ if node.is_uninitialised() => State::Pending,
            _ => State::Unknown,
        };
        self.ledger.set_state(&node.name, state);
    }

    /// Counts a node as another provider's, and tells so once.
    pub(crate) fn foreign(&self, node: &Node) {
        self.ledger.set_state(&node.name, State::Foreign);
        self.tell_foreign(node);
    }

    /// Gives a node back to the queue.
    pub(crate) fn done(&self, name: &Name) {
        if self.store.get(name).is_none() {
            self.ledger.forget(name);
            self.queue.forget(name);
        }
        self.queue.done(name);
    }
}

#[cfg(test)]
mod tests;
