//! Which nodes are to be looked at, and what the cloud says about one.

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
use ccm_runtime::program::{Context, Program};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{plan::INSTANCE_NAME, settings::TemplateSettings};

/// The queue's name in its metrics.
pub(crate) const QUEUE: &str = "template";

/// What is known of the nodes.
pub(crate) struct Observer {
    /// The names of the nodes that are to be looked at.
    pub(crate) queue: WorkQueue<Name>,
    store: Store<Node>,
    cloud: Arc<dyn Cloud>,
    settings: watch::Receiver<Arc<TemplateSettings>>,
    /// Set once this replica leads: before that nothing is queued.
    leads: AtomicBool,
    /// Cancelled when no answer of the cloud is waited for any more.
    closing: CancellationToken,
}

impl Observer {
    pub(crate) fn new<P>(context: &Context<P>, store: Store<Node>) -> Self
    where
        P: Program<Settings = TemplateSettings>,
    {
        let metrics = QueueMetrics::new(&context.metrics);
        Self {
            queue: WorkQueue::new(QUEUE, QueueConfig::default(), &metrics),
            store,
            cloud: Arc::clone(&context.cloud),
            settings: context.settings.clone(),
            leads: AtomicBool::new(false),
            closing: CancellationToken::new(),
        }
    }

    /// Queues every node when this replica begins to lead.
    pub(crate) fn take_up(&self) {
        // Before the list, so that no node falls between the list and the first change.
        self.leads.store(true, Ordering::SeqCst);
        for node in self.store.list() {
            self.queue.add(Arc::clone(&node.name), Priority::Routine);
        }
    }

    /// Queues a node that has changed. Called by the informer on every replica; never waits.
    pub(crate) fn changed(&self, change: &Change<Node>) {
        if self.leads.load(Ordering::SeqCst)
            && let Some((node, priority)) = wakes(change)
        {
            self.queue.add(Arc::clone(&node.name), priority);
        }
    }

    /// The node as it is now, and the cloud's answer about it; `None` if the node is gone or
    /// the answer is not waited for.
    pub(crate) async fn look(&self, name: &str) -> Option<(Arc<Node>, LookupResult)> {
        let node = self.store.get(name)?;
        let answer = self.ask(&node).await?;
        Some((node, answer))
    }

    async fn ask(&self, node: &Arc<Node>) -> Option<LookupResult> {
        // Another provider's node costs no call.
        if instances::claim(&*self.cloud, node) == Some(Claim::Foreign) {
            let id = node.provider_id.as_deref().unwrap_or_default();
            let schemes = self.cloud.schemes().join(", ");
            let why = format!("its provider ID {id} is not of this provider's schemes ({schemes})");
            return Some(Ok(Lookup::NotOurs(why)));
        }
        // The limit of time comes from the settings at each call, so a new one counts at once.
        let call = Call::routine(self.settings.borrow().cloud_call_timeout);
        let asked = [Arc::clone(node)];
        tokio::select! {
            biased;
            () = self.closing.cancelled() => None,
            mut answers = instances::lookup(&*self.cloud, &asked, Detail::Presence, call) => answers.pop(),
        }
    }

    /// Hands out no more nodes, and gives up on the cloud: the next leader asks again.
    pub(crate) fn close(&self) {
        self.queue.shut_down();
        self.closing.cancel();
    }
}

/// The node that is to be looked at after this change, and how soon; `None` if nothing has
/// changed that the plan reads. Most updates are of that kind.
fn wakes(change: &Change<Node>) -> Option<(&Node, Priority)> {
    match change {
        Change::Added(node) => Some((node, Priority::Urgent)),
        Change::Updated { old, new } => {
            let same_machine = old.uid == new.uid
                && old.provider_id == new.provider_id
                && old.system_uuid == new.system_uuid;
            let same_name =
                old.annotations.get(INSTANCE_NAME) == new.annotations.get(INSTANCE_NAME);
            match (same_machine, same_name) {
                (false, _) => Some((new, Priority::Urgent)),
                (true, false) => Some((new, Priority::Routine)),
                (true, true) => None,
            }
        }
        // What is remembered of it is forgotten by its worker.
        Change::Deleted(node) => Some((node, Priority::Routine)),
    }
}

#[cfg(test)]
mod tests;
