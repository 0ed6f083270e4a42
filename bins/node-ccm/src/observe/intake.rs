//! Receives node events, determines which provider owns each node, and queues the nodes that
//! need work.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use ccm_cloud::{Claim, Cloud};
use ccm_controller::{
    instances,
    queue::{Priority, WorkQueue},
};
use ccm_kube::store::{Change, Store};
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::plans::Plans;

use super::{Handles, ledger::Ledger, sync_priority};
use crate::{metrics::State, plan::Policy, report::NodeReports, settings::NodeSettings};

/// Puts the nodes that need work into the queue.
pub(crate) struct Intake {
    store: Store<Node>,
    cloud: Arc<dyn Cloud>,
    queue: WorkQueue<Name>,
    ledger: Ledger,
    reports: NodeReports,
    plans: Plans,
    /// Set once this replica leads: nothing is queued before that.
    leads: AtomicBool,
}

impl Intake {
    pub(crate) fn new(handles: &Handles, store: Store<Node>) -> Self {
        Self {
            store,
            cloud: Arc::clone(&handles.cloud),
            queue: handles.queue.clone(),
            ledger: handles.ledger.clone(),
            reports: handles.reports.clone(),
            plans: handles.plans.clone(),
            leads: AtomicBool::new(false),
        }
    }

    /// The plan's input besides the node and the cloud's answer.
    pub(crate) fn policy(&self, settings: &NodeSettings) -> Policy {
        let labels_only_add = instances::traits(&*self.cloud).labels_only_add;
        Policy { labels_only_add, ..settings.policy() }
    }

    /// Starts leading: queues every uninitialised node. The first refresh compares the others
    /// with the fleet.
    pub(crate) fn start_leading(&self) {
        // Set before listing, so that no node is missed between the list and the first change.
        self.leads.store(true, Ordering::SeqCst);
        for node in self.store.list() {
            self.classify(&node);
            if node.is_uninitialised() {
                self.queue.add(Arc::clone(&node.name), Priority::Urgent);
            }
        }
    }

    /// Handles a change of a node. Never blocks.
    pub(crate) fn changed(&self, change: &Change<Node>) {
        if !self.leads() {
            return;
        }
        match change {
            Change::Added(node) => {
                self.classify(node);
                if node.is_uninitialised() {
                    self.ledger.new_node();
                    self.queue.add(Arc::clone(&node.name), Priority::Urgent);
                } else if self.claim(node) != Some(Claim::Foreign) {
                    self.ledger.require_lookup(&node.name);
                    self.queue.add(Arc::clone(&node.name), Priority::Routine);
                }
            }
            Change::Updated { old, new } => {
                if let Some(priority) = sync_priority(old, new) {
                    self.queue.add(Arc::clone(&new.name), priority);
                }
            }
            Change::Deleted(node) => {
                self.forget(&node.name);
                self.queue.remove(&node.name);
            }
        }
    }

    /// Whether this replica leads.
    pub(crate) fn leads(&self) -> bool {
        self.leads.load(Ordering::SeqCst)
    }

    /// The current state of the node.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Node>> {
        self.store.get(name)
    }

    /// The current state of all nodes.
    pub(crate) fn list(&self) -> Vec<Arc<Node>> {
        self.store.list()
    }

    /// Which provider owns the node; `None` while this is unknown.
    pub(crate) fn claim(&self, node: &Node) -> Option<Claim> {
        instances::claim(&*self.cloud, node)
    }

    /// Records that a node is another provider's, and reports it once.
    pub(crate) fn foreign(&self, node: &Node) {
        self.ledger.set_state(&node.name, State::Foreign);
        self.plans.clear("Node", &node.name);
        self.reports.foreign(node, &self.cloud.schemes());
    }

    /// Tells the queue that the work on this node has ended.
    pub(crate) fn done(&self, name: &Name) {
        if self.store.get(name).is_none() {
            self.forget(name);
            self.queue.remove(name);
        }
        self.queue.done(name);
    }

    fn forget(&self, name: &Name) {
        self.ledger.forget(name);
        self.reports.forget(name);
        self.plans.clear("Node", name);
    }

    /// Records the state of a node that is new to this leader.
    fn classify(&self, node: &Node) {
        let state = match self.claim(node) {
            Some(Claim::Foreign) => return self.foreign(node),
            _ if node.is_uninitialised() => State::Pending,
            _ => State::Unknown,
        };
        self.ledger.set_state(&node.name, state);
    }
}
