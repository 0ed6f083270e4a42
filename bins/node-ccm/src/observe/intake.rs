//! Receives node events, determines which provider owns each node, and queues the nodes that
//! need work.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use ccm_controller::{instances, queue::Priority};
use ccm_kube::store::Change;
use ccm_objects::{Node, Shared as Name};
use tokio_util::sync::CancellationToken;

use super::{Handles, sync_priority};
use crate::{
    metrics::State,
    plan::{Policy, WaitReason},
    settings::NodeSettings,
};

/// Puts the nodes that need work into the queue.
pub(crate) struct Intake {
    handles: Handles,
    /// Set once this replica leads: nothing is queued before that.
    leads: AtomicBool,
}

impl Intake {
    pub(crate) fn new(handles: &Handles) -> Self {
        Self { handles: handles.clone(), leads: AtomicBool::new(false) }
    }

    /// The plan's input besides the node and the cloud's answer.
    pub(crate) fn policy(&self) -> Policy {
        let labels_only_add = instances::traits(&*self.handles.cloud).labels_only_add;
        Policy { labels_only_add, ..self.handles.settings.borrow().policy() }
    }

    /// Starts leading: queues every uninitialised node. The first refresh compares the others
    /// with the fleet.
    pub(crate) fn start_leading(&self) {
        // Set before listing, so that no node is missed between the list and the first change.
        self.leads.store(true, Ordering::SeqCst);
        for node in self.handles.store.list() {
            self.classify(&node);
            if node.is_uninitialised() {
                self.handles.queue.add(Arc::clone(&node.name), Priority::Urgent);
            }
        }
    }

    /// Queues the nodes when `--node-selector` or `--node-identity` has changed, which decide whether
    /// they are written, until the token is cancelled.
    pub(crate) async fn follow_selector(self: Arc<Self>, token: CancellationToken) {
        let mut settings = self.handles.settings.clone();
        let what =
            |settings: &NodeSettings| (settings.node_selector.clone(), settings.node_identity);
        let mut last = what(&settings.borrow_and_update());
        while let Some(Ok(())) = token.run_until_cancelled(settings.changed()).await {
            let now = what(&settings.borrow_and_update());
            if now != last {
                last = now;
                for node in self.handles.store.list() {
                    self.handles.queue.add(Arc::clone(&node.name), Priority::Routine);
                }
            }
        }
        token.cancelled().await;
    }

    /// Handles a change of a node. Never blocks.
    pub(crate) fn changed(&self, change: &Change<Node>) {
        if !self.leads() {
            return;
        }
        let Handles { queue, answers, corrector, .. } = &self.handles;
        match change {
            Change::Added(node) => {
                self.classify(node);
                if node.is_uninitialised() {
                    corrector.step_aside();
                    queue.add(Arc::clone(&node.name), Priority::Urgent);
                } else if self.handles.is_ours(node) != Some(false) {
                    answers.require(&node.name);
                    queue.add(Arc::clone(&node.name), Priority::Routine);
                }
            }
            Change::Updated { old, new } => {
                if let Some(priority) = sync_priority(old, new) {
                    queue.add(Arc::clone(&new.name), priority);
                }
            }
            Change::Deleted(node) => {
                self.handles.guard.leaves(&node.uid);
                self.forget(&node.name);
                // One of them may have its provider ID.
                let is_held = |state| state == State::Waiting(WaitReason::Identity);
                for name in self.handles.states.those(is_held) {
                    queue.add(name, Priority::Urgent);
                }
            }
        }
    }

    /// Whether this replica leads.
    pub(crate) fn leads(&self) -> bool {
        self.leads.load(Ordering::SeqCst)
    }

    /// Whether the node may be this provider's; `None` while this is unknown. Records it if the
    /// node is another provider's.
    pub(crate) fn is_ours(&self, node: &Node) -> Option<bool> {
        let is_ours = self.handles.is_ours(node)?;
        if !is_ours {
            self.foreign(node);
        }
        Some(is_ours)
    }

    /// Records that a node is another provider's or is not selected, and reports it once. It is not
    /// written any more: it holds up no other node, and waits for no turn.
    pub(crate) fn foreign(&self, node: &Node) {
        let Handles { cloud, states, plans, reports, guard, corrector, .. } = &self.handles;
        guard.leaves(&node.uid);
        corrector.settled(&node.name);
        let is_selected = self.handles.selects(node);
        let why = instances::why_left_out(&**cloud, node, is_selected);
        plans.block(&node.reference(), &why);
        if !is_selected {
            states.set(&node.name, State::NotSelected);
            return reports.not_selected(node);
        }
        states.set(&node.name, State::Foreign);
        reports.foreign(node, &why);
    }

    /// Tells the queue that the work on this node has ended.
    pub(crate) fn done(&self, name: &Name) {
        if self.handles.store.get(name).is_none() {
            self.forget(name);
        }
        self.handles.queue.done(name);
    }

    fn forget(&self, name: &Name) {
        let Handles { answers, states, corrector, reports, plans, queue, .. } = &self.handles;
        answers.forget(name);
        states.forget(name);
        corrector.forget(name);
        reports.forget(name);
        plans.clear("Node", name);
        queue.remove(name);
    }

    /// Records the state of a node that is new to this leader.
    fn classify(&self, node: &Node) {
        if self.is_ours(node) != Some(false) {
            let state = if node.is_uninitialised() { State::Pending } else { State::Unknown };
            self.handles.states.set(&node.name, state);
        }
    }
}
