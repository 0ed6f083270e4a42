//! What changes of nodes mean for their pod CIDRs, and the beginning of a term.

use std::{collections::HashMap, sync::Arc};

use ccm_controller::queue::Priority;
use ccm_kube::store::Change;
use ccm_objects::{Node, Shared as Name};

use super::{Cidrs, Core, Waiting, needs_cidrs};
use crate::{
    node_ipam::ipam::{Allocator, AllocatorType, BlockSizes, HeldBlocks, Problem, Seen},
    routes::plan::condition::{self, NETWORK_UNAVAILABLE},
};

impl Cidrs {
    /// Handles a change of a node. The informer calls it on every replica; never blocks.
    pub(crate) fn changed(&self, change: &Change<Node>) {
        match change {
            Change::Added(node) => self.saw(node),
            Change::Updated { old, new } => {
                if self.matters(old, new) {
                    self.saw(new);
                }
                if old.condition(NETWORK_UNAVAILABLE) != new.condition(NETWORK_UNAVAILABLE) {
                    self.condition_changed(new);
                }
            }
            Change::Deleted(node) => self.gone(node),
        }
    }

    /// A heartbeat is no work.
    fn matters(&self, old: &Node, new: &Node) -> bool {
        let asks = self.config.allocator == AllocatorType::CloudAllocator;
        old.pod_cidrs != new.pod_cidrs
            || old.uid != new.uid
            || old.deleting != new.deleting
            || (asks && old.provider_id != new.provider_id)
    }

    /// Another writer may have set the condition of a node that waits, or that has got its pod CIDRs: no list of routes
    /// shows that.
    fn condition_changed(&self, node: &Node) {
        if self.core.lock().is_some() && !self.is_observing() {
            self.conditions.add(Name::clone(&node.name), Priority::Routine);
        }
    }

    /// Looks at a node as it is now.
    fn saw(&self, node: &Node) {
        let seen = self.change(|core| self.look(core, node));
        // Before the term there is nothing to do: it begins with all nodes.
        let Some(seen) = seen else { return };
        self.react(node, seen);
        if needs_cidrs(node) {
            self.queue.add(Name::clone(&node.name), Priority::Urgent);
        }
    }

    /// Records what the node shows.
    pub(super) fn look(&self, core: &mut Core, node: &Node) -> Seen {
        if !needs_cidrs(node) {
            core.waiting.remove(&node.name);
            self.plans.clear("Node", &node.name);
        }
        match self.is_observing() {
            true => Seen { problems: core.allocator.accept(node), ..Seen::default() },
            false => core.allocator.observe(node, self.timeline.now()),
        }
    }

    /// Reports what the look has shown.
    pub(super) fn react(&self, node: &Node, seen: Seen) {
        self.report(node, &seen.problems);
        if let Some(foreign) = seen.foreign {
            self.metrics.foreign();
            self.reports.foreign_cidrs(node, &foreign);
        }
        if let Some(rival) = seen.rival {
            self.reports.rival(node, &rival);
        }
        if !node.pod_cidrs.is_empty() {
            self.settled(node);
        }
    }

    fn gone(&self, node: &Node) {
        let now = self.timeline.now();
        self.change(|core| {
            core.waiting.remove(&node.name);
            core.allocator.release(&node.uid, now);
        });
        self.queue.remove(&node.name);
        self.plans.clear("Node", &node.name);
        self.left.notify_one();
    }

    /// The node has its pod CIDRs.
    fn settled(&self, node: &Node) {
        self.queue.forget(&node.name);
        self.reports.has_cidrs(node);
        if self.routes.is_none() && condition::is_without_cidrs(node) {
            self.conditions.add(Name::clone(&node.name), Priority::Urgent);
        }
    }

    fn report(&self, node: &Node, problems: &[(Arc<str>, Problem)]) {
        for (name, problem) in problems {
            if **name == *node.name {
                self.reports.strange_cidrs(node, problem);
            } else if let Some(other) = self.store.get(name) {
                self.reports.strange_cidrs(&other, problem);
            }
        }
    }

    /// The allocator stops because another one is at work, or goes on.
    pub(super) fn stops(&self, does: bool) {
        self.metrics.stops(does);
        self.runs(!does);
        if !does {
            tracing::info!("no other client assigns pod CIDRs: nodes get them again");
        }
    }

    /// Begins the term with the nodes in the store, which have been read in it.
    pub(super) fn rebuild(&self, held: Vec<HeldBlocks>, sizes: BlockSizes) {
        let now = self.timeline.now();
        // The clock of the last leader may have been ahead.
        let held = held.into_iter().map(|held| HeldBlocks { since: held.since.min(now), ..held });
        let nodes = {
            let mut core = self.core.lock();
            // No change is handled while they are read.
            let mut nodes = self.store.list();
            // Who came first gets a block first.
            nodes.sort_by(|one, other| (one.created, &one.name).cmp(&(other.created, &other.name)));
            let all = nodes.iter().map(AsRef::as_ref);
            let (config, held) = (self.config.clone().with_sizes(sizes), held.collect());
            let allocator = Allocator::rebuild(config, self.hold, all, held);
            *core = Some(Core { allocator, waiting: Waiting::default() });
            nodes
        };
        if let Some((destinations, read)) = self.table.lock().take() {
            self.routes_are(destinations, read);
        }
        self.report_all(&nodes);
        let (bare, assigned): (Vec<_>, Vec<_>) =
            nodes.iter().partition(|node| node.pod_cidrs.is_empty());
        tracing::info!(
            "pod CIDRs of {} nodes are known; {} nodes have none",
            assigned.len(),
            bare.len()
        );
        for node in assigned {
            self.settled(node);
        }
        for node in bare.into_iter().filter(|node| needs_cidrs(node)) {
            self.queue.add(Name::clone(&node.name), Priority::Urgent);
        }
        self.left.notify_one();
    }

    fn report_all(&self, nodes: &[Arc<Node>]) {
        let wrong: HashMap<String, Vec<Problem>> = {
            let core = self.core.lock();
            let problems = core.iter().flat_map(|core| core.allocator.problems());
            problems.map(|(uid, problems)| (uid.to_owned(), problems.to_vec())).collect()
        };
        for node in nodes.iter().filter(|_| !wrong.is_empty()) {
            for problem in wrong.get(&*node.uid).into_iter().flatten() {
                self.reports.strange_cidrs(node, problem);
            }
        }
    }
}
