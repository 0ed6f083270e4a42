//! Which nodes load balancers are to have: changes of nodes, collected.

use std::sync::Arc;

use ccm_base::{At, message::one_line};
use ccm_controller::queue::Priority;
use ccm_kube::store::Change;
use ccm_objects::{Node, Shared as Name};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Handles, selector};
use crate::plan::{
    debounce::Debounce,
    eligible::{Excluded, NodeSet, Rules, node_set},
    labels::LabelKeys,
    marks::mark,
};

/// How much of a provider ID is logged.
const LONGEST_ID: usize = 256;

/// Collects changes of nodes and passes them on to all load balancers.
pub(crate) struct Nodes {
    handles: Handles,
    pending: Mutex<Pending>,
}

/// Changes that have not gone out. A node that leaves does not wait for one that joins.
#[derive(Default)]
struct Pending {
    joins: Debounce,
    leaves: Debounce,
}

impl Nodes {
    pub(crate) fn new(handles: &Handles) -> Self {
        Self { handles: handles.clone(), pending: Mutex::default() }
    }

    /// Records a change of a node. The informer calls it on every replica; never blocks. A node
    /// may be marked and go before the nodes are compared: what it said is recorded at once.
    pub(crate) fn changed(&self, change: &Change<Node>) {
        self.handles.node_in_use(change);
        if let Change::Deleted(node) = change {
            let (settings, now) = (self.handles.settings.borrow(), self.handles.timeline.now());
            let mut went = self.handles.went.lock();
            went.expire(now);
            went.went(&node.name, mark(node, &settings.scale_down_taints, now), now);
        }
        self.handles.nodes_changed.notify_one();
    }

    /// Takes the nodes as they are, when this replica begins to lead.
    pub(crate) fn start_leading(&self) {
        let mut keys = self.handles.label_keys.lock();
        *keys = self.label_keys();
        self.publish(self.current(&keys, self.handles.timeline.now()));
    }

    /// Passes changes on until the token is cancelled.
    pub(crate) async fn run(self: Arc<Self>, token: CancellationToken) {
        let mut settings = self.handles.settings.clone();
        loop {
            let due = {
                let pending = self.pending.lock();
                [pending.joins.due(), pending.leaves.due()].into_iter().flatten().min()
            };
            let timer = async {
                match due {
                    Some(due) => sleep_until(self.handles.timeline.instant(due)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = token.cancelled() => return,
                () = self.handles.nodes_changed.notified() => self.compare(),
                Ok(()) = settings.changed() => self.compare(),
                () = timer => self.send(),
            }
        }
    }

    /// The labels by which the load balancers of all Services select their members.
    fn label_keys(&self) -> LabelKeys {
        let mut keys = LabelKeys::default();
        let Ok(load_balancers) = self.handles.load_balancers() else { return keys };
        if load_balancers.traits().member_labels {
            for service in self.handles.services.list().iter().filter(|one| one.is_load_balancer) {
                keys.add(&selector(service, &*load_balancers));
            }
        }
        keys
    }

    fn current(&self, labels: &LabelKeys, now: At) -> NodeSet {
        let settings = self.handles.settings.borrow().clone();
        let traits = self.handles.load_balancers().map(|one| one.traits()).unwrap_or_default();
        let nodes = self.handles.nodes.list();
        let is_left_out = |node: &&Arc<Node>| !settings.node_selector.matches(node);
        let left_out =
            nodes.iter().filter(is_left_out).map(|node| Arc::clone(&node.name)).collect();
        let rules = Rules {
            scale_down_taints: &settings.scale_down_taints,
            schemes: &self.handles.cloud.schemes(),
            foreign_nodes: settings.load_balancer_foreign_nodes,
            left_out: &left_out,
            traits: &traits,
            labels,
        };
        let mut before = NodeSet::clone(&self.handles.node_set.borrow());
        let went = std::mem::take(&mut *self.handles.went.lock());
        if before.marks.update(went) {
            self.handles.balancers.set_departures();
        }
        node_set(nodes.iter().map(|node| &**node), rules, &before, now)
    }

    /// Compares the nodes with the set that has gone out.
    fn compare(&self) {
        let now = self.handles.timeline.now();
        let keys = self.handles.label_keys.lock();
        let (set, before) = (self.current(&keys, now), self.handles.node_set.borrow().clone());
        let interval = self.handles.settings.borrow().member_update_interval;
        let mut pending = self.pending.lock();
        if Arc::ptr_eq(&set.members, &before.members) {
            // Marks matter at the time at which their node goes.
            drop(pending);
            self.replace(set);
            return;
        }
        let leaves = before.members.iter().any(|member| set.get(&member.node) != Some(member));
        if leaves {
            pending.leaves.changed(now, interval);
        } else {
            pending.joins.changed(now, interval);
        }
        // The marks are remembered at once: the node may be gone when its change goes out.
        let marked = NodeSet { marks: set.marks, ..NodeSet::clone(&before) };
        drop(pending);
        self.handles.node_set.send_replace(Arc::new(marked));
    }

    /// Sends the current set out.
    fn send(&self) {
        let now = self.handles.timeline.now();
        {
            let mut pending = self.pending.lock();
            pending.joins.sent(now);
            pending.leaves.sent(now);
        }
        {
            let mut keys = self.handles.label_keys.lock();
            *keys = self.label_keys();
            self.publish(self.current(&keys, now));
        }
        let mut unknown = false;
        for service in self.handles.services.list() {
            if service.is_load_balancer && service.has_finalizer {
                self.handles.queue.add(Name::clone(&service.key), Priority::Routine);
            }
        }
        self.handles.balancers.each(|_, entry| {
            entry.await_members();
            unknown |= entry.is_awaited();
        });
        if unknown {
            // Members that are not known are read before any is changed.
            self.handles.audit.wake();
        }
    }

    fn publish(&self, set: NodeSet) {
        self.handles.metrics.eligible(set.members.len());
        *self.handles.published.lock() = Instant::now();
        self.handles.balancers.machine().publish(&set.members);
        self.replace(set);
    }

    fn replace(&self, set: NodeSet) {
        let before = self.handles.node_set.send_replace(Arc::new(set));
        let now = self.handles.node_set.borrow().clone();
        let is_foreign =
            |set: &NodeSet, name: &str| set.excluded.get(name) == Some(&Excluded::Foreign);
        let names = now.excluded.keys();
        for name in names.filter(|name| is_foreign(&now, name) && !is_foreign(&before, name)) {
            let node = self.handles.nodes.get(name);
            let id = node.and_then(|node| node.provider_id.clone()).unwrap_or_default();
            let id = one_line(&id, LONGEST_ID);
            tracing::info!(
                node = &**name,
                provider_id = id,
                "is not a member of load balancers: its provider ID is another provider's (--load-balancer-foreign-nodes)"
            );
        }
    }
}
