//! Selects the nodes that need work, and asks the cloud about one node.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use ccm_cloud::{Call, Claim, Cloud, Detail, Lookup, LookupResult};
use ccm_controller::{
    instances,
    queue::{Priority, QueueConfig, QueueMetrics, WorkQueue},
};
use ccm_kube::store::{Change, Store};
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::{
    metrics::Metrics,
    program::{Context, Program},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{plan::INSTANCE_NAME, settings::TemplateSettings};

/// The queue's name in its metrics.
pub(crate) const QUEUE: &str = "template";

/// The names of the nodes that need work.
pub(crate) fn queue(metrics: &Metrics) -> WorkQueue<Name> {
    WorkQueue::new(QUEUE, QueueConfig::default(), &QueueMetrics::new(metrics))
}

/// The known state of the nodes.
pub(crate) struct Observer {
    queue: WorkQueue<Name>,
    store: Store<Node>,
    cloud: Arc<dyn Cloud>,
    settings: watch::Receiver<Arc<TemplateSettings>>,
    /// Set once this replica leads: nothing is queued before that.
    leads: AtomicBool,
    /// Cancelled by the drain: pending cloud calls are dropped.
    closing: CancellationToken,
}

impl Observer {
    /// Puts the nodes that need work into `queue`.
    pub(crate) fn new<P>(context: &Context<P>, store: Store<Node>, queue: WorkQueue<Name>) -> Self
    where
        P: Program<Settings = TemplateSettings>,
    {
        Self {
            queue,
            store,
            cloud: Arc::clone(&context.cloud),
            settings: context.settings.clone(),
            leads: AtomicBool::new(false),
            closing: CancellationToken::new(),
        }
    }

    /// Queues every node when this replica begins to lead.
    pub(crate) fn start_leading(&self) {
        // Set before listing, so that no node is missed between the list and the first change.
        self.leads.store(true, Ordering::SeqCst);
        for node in self.store.list() {
            self.queue.add(Arc::clone(&node.name), Priority::Routine);
        }
    }

    /// Queues a changed node. The informer calls it on every replica; never blocks.
    pub(crate) fn changed(&self, change: &Change<Node>) {
        if !self.leads.load(Ordering::SeqCst) {
            return;
        }
        if let Change::Deleted(node) = change {
            // A node that is created again waits for nothing of its predecessor.
            self.queue.remove(&node.name);
        }
        if let Some((node, priority)) = sync_priority(change) {
            self.queue.add(Arc::clone(&node.name), priority);
        }
    }

    /// The current node, and the cloud's answer about it; `None` if the node is gone or the
    /// call is cancelled.
    pub(crate) async fn lookup(&self, name: &str) -> Option<(Arc<Node>, LookupResult)> {
        let node = self.store.get(name)?;
        let answer = self.ask(&node).await?;
        Some((node, answer))
    }

    async fn ask(&self, node: &Arc<Node>) -> Option<LookupResult> {
        // Another provider's node needs no call.
        if instances::claim(&*self.cloud, node) == Some(Claim::Foreign) {
            let id = node.provider_id.as_deref().unwrap_or_default();
            let why = format!("provider ID {id} {}", self.cloud.why_foreign(id));
            return Some(Ok(Lookup::NotOurs(why)));
        }
        // Each call reads the time limit from the settings, so a new one takes effect at once.
        let call = Call::routine(self.settings.borrow().cloud_call_timeout);
        let asked = [Arc::clone(node)];
        tokio::select! {
            biased;
            () = self.closing.cancelled() => None,
            mut answers = instances::lookup(&*self.cloud, &asked, Detail::Presence, call) => answers.pop(),
        }
    }

    /// Shuts the queue down and cancels pending cloud calls: the next leader repeats them.
    pub(crate) fn close(&self) {
        self.queue.shut_down();
        self.closing.cancel();
    }
}

/// The node to sync after this change, and how soon; `None` if the plan reads none of the
/// changed fields. Most updates are of that kind.
fn sync_priority(change: &Change<Node>) -> Option<(&Node, Priority)> {
    match change {
        Change::Added(node) => Some((node, Priority::Urgent)),
        Change::Updated { old, new } => {
            let same_name =
                old.annotations.get(INSTANCE_NAME) == new.annotations.get(INSTANCE_NAME);
            match (old.has_identity_of(new), same_name) {
                (false, _) => Some((new, Priority::Urgent)),
                (true, false) => Some((new, Priority::Routine)),
                (true, true) => None,
            }
        }
        // The worker drops the state of the node.
        Change::Deleted(node) => Some((node, Priority::Routine)),
    }
}

#[cfg(test)]
mod tests;
