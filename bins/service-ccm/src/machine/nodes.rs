//! Collects changes of nodes, and selects the nodes that load balancers should have.

use std::{collections::BTreeMap, mem, sync::Arc};

use ccm_base::{At, message::one_line};
use ccm_cloud::NodeSelector;
use ccm_objects::{Labels, Node, Service};
use serde::{Deserialize, Serialize};

use super::{
    Machine,
    effect::{Count, Effect, LogLevel, Task},
    event::{Changed, NodesSeen, NodesWhy},
};
use crate::plan::{
    debounce::Debounce,
    eligible::{Excluded, NodeRules, NodeSet, node_set},
    labels::LabelKeys,
    marks::{Marks, mark},
};

/// The maximum part of a provider ID that is logged.
const LONGEST_ID: usize = 256;
/// The most members that one list shows, so that an answer stays small.
const MEMBERS: usize = 20_000;

/// The memory of nodes.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Nodes {
    /// The nodes that load balancers should have.
    pub(super) set: Arc<NodeSet>,
    /// The labels of nodes in that set.
    keys: LabelKeys,
    /// The marks of nodes that went since the last comparison.
    pub(super) went: Marks,
    /// Changes that have not been passed on. A node that leaves does not wait for one that joins.
    joins: Debounce,
    leaves: Debounce,
    /// When the set was passed on.
    published: At,
}

impl Nodes {
    /// Sets the labels that count.
    fn select_by(&mut self, selectors: &[NodeSelector]) {
        self.keys = LabelKeys::default();
        for selector in selectors {
            self.keys.add(selector);
        }
    }
}

impl Machine {
    /// Returns when changes of nodes are due to be passed on.
    pub(crate) fn nodes_due(&self) -> Option<At> {
        [self.nodes.joins.due(), self.nodes.leaves.due()].into_iter().flatten().min()
    }

    /// Returns when the nodes were passed on.
    pub(crate) fn published(&self) -> At {
        self.nodes.published
    }

    /// Returns true if a label by which this selector selects nodes does not count yet.
    pub(crate) fn lacks_labels(&self, selector: &NodeSelector) -> bool {
        self.nodes.keys.lack(selector)
    }

    /// Returns the number of load balancers that one list reads in full.
    pub(crate) fn at_once(&self) -> usize {
        (MEMBERS / self.nodes.set.members.len().max(1)).clamp(1, 100)
    }

    /// Handles a changed node. It may be marked and go before the nodes are compared: what it said
    /// is recorded at once.
    pub(super) fn node_changed(&mut self, changed: &Changed<Node>, now: At) -> Vec<Effect> {
        let (old, new) = (changed.old.as_deref(), changed.new.as_deref());
        self.in_use.node_changed(old, new);
        if let (Some(gone), None) = (old, new) {
            let mark = mark(gone, &self.parameters.scale_down_taints, now);
            self.nodes.went.expire(now);
            self.nodes.went.went(&gone.name, mark, now);
        }
        vec![Effect::Wake(Task::Nodes)]
    }

    /// Records that the nodes have been listed.
    pub(super) fn nodes_seen(&mut self, seen: NodesSeen, now: At) -> Vec<Effect> {
        match &seen.why {
            NodesWhy::Changed => self.compare_nodes(&seen, now),
            NodesWhy::Term { selectors } => {
                self.nodes.select_by(selectors);
                self.publish(&seen, now)
            }
            NodesWhy::Due { selectors, services } => {
                self.nodes.joins.sent(now);
                self.nodes.leaves.sent(now);
                self.nodes.select_by(selectors);
                let mut effects = self.publish(&seen, now);
                effects.extend(self.pass_on(services));
                effects
            }
        }
    }

    /// Compares the nodes with the set that has gone out.
    fn compare_nodes(&mut self, seen: &NodesSeen, now: At) -> Vec<Effect> {
        let (set, mut effects) = self.current_nodes(seen, now);
        let nodes = &mut self.nodes;
        if set.members == nodes.set.members {
            // Marks matter at the time at which their node is deleted.
            effects.extend(self.replace_nodes(set, &seen.nodes));
            return effects;
        }
        let leaves = nodes.set.members.iter().any(|one| set.get(&one.node) != Some(one));
        let changes = if leaves { &mut nodes.leaves } else { &mut nodes.joins };
        changes.record_change(now, self.parameters.member_update_interval);
        // The marks are remembered at once, because the node may be gone when its change is passed
        // on.
        nodes.set = Arc::new(NodeSet { marks: set.marks, ..NodeSet::clone(&nodes.set) });
        effects
    }

    /// Compares the nodes with the set. A new mark of a node that went is left to the next leader.
    fn current_nodes(&mut self, seen: &NodesSeen, now: At) -> (NodeSet, Vec<Effect>) {
        let settings = &self.parameters;
        let is_left_out = |node: &&Arc<Node>| !settings.node_selector.matches(node);
        let left_out = seen.nodes.iter().filter(is_left_out).map(|node| Arc::clone(&node.name));
        let mut before = NodeSet::clone(&self.nodes.set);
        let has_mark = before.marks.update(mem::take(&mut self.nodes.went));
        let rules = NodeRules {
            scale_down_taints: &settings.scale_down_taints,
            schemes: &seen.schemes,
            foreign_nodes: settings.foreign_nodes,
            left_out: &left_out.collect(),
            traits: &self.traits,
            labels: &self.nodes.keys,
        };
        let set = node_set(seen.nodes.iter().map(|node| &**node), rules, &before, now);
        let note = has_mark.then(|| self.change_note());
        (set, note.into_iter().collect())
    }

    /// Publishes the current nodes as the members of all load balancers.
    fn publish(&mut self, seen: &NodesSeen, now: At) -> Vec<Effect> {
        let (set, mut effects) = self.current_nodes(seen, now);
        effects.push(Effect::Count(Count::Eligible(set.members.len())));
        self.nodes.published = now;
        self.balancers.publish(&set.members);
        effects.extend(self.replace_nodes(set, &seen.nodes));
        effects
    }

    /// Makes all Services with a load balancer due, because the nodes are new. Members that are not
    /// known are read before any member is changed.
    fn pass_on(&mut self, services: &[Arc<Service>]) -> Vec<Effect> {
        let concerned = |one: &&Arc<Service>| one.is_load_balancer && one.has_finalizer;
        let queued = services.iter().filter(concerned);
        let mut effects: Vec<_> = queued.map(|one| Effect::routine(&one.key)).collect();
        let mut unknown = false;
        for (_, entry) in self.balancers.all_mut() {
            entry.await_members();
            unknown |= entry.is_awaited();
        }
        effects.extend(unknown.then_some(Effect::Wake(Task::Audit)));
        effects
    }

    fn replace_nodes(&mut self, set: NodeSet, nodes: &[Arc<Node>]) -> Vec<Effect> {
        let is_foreign =
            |set: &NodeSet, name: &str| set.excluded.get(name) == Some(&Excluded::Foreign);
        let before = mem::replace(&mut self.nodes.set, Arc::new(set));
        let now = &self.nodes.set;
        let is_new =
            |node: &&Arc<Node>| is_foreign(now, &node.name) && !is_foreign(&before, &node.name);
        let line = |node: &Arc<Node>| {
            let id = one_line(node.provider_id.as_deref().unwrap_or_default(), LONGEST_ID);
            let text = format!(
                "node {} is not a member of load balancers: its provider ID {id} belongs to another provider (--load-balancer-foreign-nodes)",
                node.name
            );
            Effect::Log(LogLevel::Info, None, text)
        };
        nodes.iter().filter(is_new).map(line).collect()
    }

    /// Adds labels to those that the machine keeps of nodes. No load balancer has selected by them
    /// before.
    pub(super) fn add_labels(&mut self, selector: &NodeSelector, nodes: &[Arc<Node>]) {
        let before = self.nodes.keys.clone();
        self.nodes.keys.add(selector);
        let labels: BTreeMap<&str, &Labels> =
            nodes.iter().map(|node| (&*node.name, &node.labels)).collect();
        let labels_of = |name: &str| labels.get(name).copied();
        let set = self.nodes.set.with_labels(labels_of, (&before, &self.nodes.keys));
        self.balancers.relabel(&set.members);
        self.nodes.set = Arc::new(set);
    }
}
