use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use ccm_base::At;
use ccm_cloud::CloudError;
use ccm_controller::queue::Priority;
use ccm_kube::ApiError;
use ccm_objects::{Node, Shared as Name};
use serde::{Deserialize, Serialize};

use super::{Effect, Fixed, waiting::Waiting};
use crate::node_ipam::ipam::{Allocator, Problem, Refusal, Seen, Unusable};

/// Returns true if the node has no pod CIDRs, and needs some.
pub(crate) fn needs_cidrs(node: &Node) -> bool {
    node.pod_cidrs.is_empty() && !node.deleting
}

/// The reason why a node does not have pod CIDRs, if neither the allocator nor the node can show it
/// again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Failed {
    /// The API server has refused the write, or not answered it.
    Write(ApiError),
    /// The API server has answered that it is done, and has not stored it.
    NotStored,
    /// The cloud was asked for its instance.
    Lookup(CloudError),
    /// Its instance belongs to another cloud.
    NotOurs,
    /// The cloud does not have an instance for it.
    NoInstance,
    /// The pod CIDRs of its instance cannot be its own.
    Unusable(Unusable),
    /// The allocator does not assign the pod CIDRs of the instance to the node now.
    Refused(Refusal),
}

/// The memory of a leader.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Core {
    pub(super) allocator: Allocator,
    pub(super) waiting: Waiting,
    /// The last failures of nodes without pod CIDRs, and their times, for explanations.
    #[serde(default)]
    pub(super) failed: BTreeMap<Name, (At, Failed)>,
    /// The UIDs of the existing nodes. An answer is only for the node that was asked about.
    pub(super) here: BTreeMap<Name, Box<str>>,
}

impl Core {
    pub(super) fn is_stopped(&self) -> bool {
        self.allocator.rival().is_some()
    }

    /// Queues all nodes that wait.
    pub(super) fn wake_all(&self, effects: &mut Vec<Effect>) {
        let all = self.waiting.names().cloned();
        effects.extend(all.map(|name| Effect::Queue(name, Priority::Urgent)));
    }

    /// Queues the nodes that have waited longest for a block, one for each that is free.
    pub(super) fn wake(&mut self, effects: &mut Vec<Effect>) {
        let woken = self.waiting.wake(self.allocator.room()).into_iter();
        effects.extend(woken.map(|name| Effect::Queue(name, Priority::Urgent)));
    }

    /// Returns true if the API server has answered the last write as done, and has not stored it.
    pub(super) fn is_dropped(&self, name: &str) -> bool {
        matches!(self.failed.get(name), Some((_, Failed::NotStored)))
    }

    /// Returns true if the node is still there: this one, and no other of its name.
    pub(super) fn is_here(&self, node: &Node) -> bool {
        self.here.get(&node.name).is_some_and(|uid| *uid == node.uid)
    }

    /// Returns true if the node is still there, and needs pod CIDRs as it is now.
    pub(super) fn is_bare(&self, node: &Node, now: Option<&Node>) -> bool {
        self.is_here(node) && now.is_some_and(|now| now.uid == node.uid && needs_cidrs(now))
    }

    /// Records that the node gets no pod CIDRs for now, which is worth showing.
    pub(super) fn leave_without_cidrs(
        &mut self,
        fixed: &Fixed,
        node: &Arc<Node>,
        state: &str,
        why: &str,
        effects: &mut Vec<Effect>,
    ) {
        self.waiting.insert(&node.name, Some(why.to_owned()));
        self.failed.remove(&node.name);
        let (node, state, why) = (Arc::clone(node), state.to_owned(), why.to_owned());
        let name = Name::clone(&node.name);
        effects.extend([
            Effect::Show { node: Arc::clone(&node), cidrs: Vec::new(), held: Some(why.clone()) },
            Effect::HasNone { node, state, why },
        ]);
        if !fixed.is_observing {
            effects.push(Effect::Condition(name, Priority::Urgent));
        }
    }

    /// Records what the node shows, and reports it.
    pub(super) fn look(
        &mut self,
        fixed: &Fixed,
        node: &Arc<Node>,
        now: At,
        effects: &mut Vec<Effect>,
    ) {
        if !needs_cidrs(node) {
            self.waiting.remove(&node.name);
            self.failed.remove(&node.name);
            effects.push(Effect::Clear(Name::clone(&node.name)));
        }
        let seen = match fixed.is_observing {
            true => Seen { problems: self.allocator.accept(node), ..Seen::default() },
            false => self.allocator.observe(node, now),
        };
        effects.extend(seen.problems.into_iter().map(|(name, what)| Effect::Strange(name, what)));
        effects.extend(seen.foreign.map(|foreign| Effect::Foreign(Arc::clone(node), foreign)));
        effects.extend(seen.rival.map(|rival| Effect::Rival(Arc::clone(node), rival)));
        if !node.pod_cidrs.is_empty() {
            settled(fixed, node, effects);
        }
    }

    /// Returns the problems of all nodes.
    pub(super) fn problems(&self) -> HashMap<&str, &[Problem]> {
        self.allocator.problems().collect()
    }
}

/// Records that the node has its pod CIDRs.
pub(super) fn settled(fixed: &Fixed, node: &Arc<Node>, effects: &mut Vec<Effect>) {
    let name = || Name::clone(&node.name);
    effects.extend([Effect::Forget(name()), Effect::HasCidrs(Arc::clone(node))]);
    // Without routes, its condition may say that it has no pod CIDRs.
    if !fixed.hold.routes && !fixed.is_observing {
        effects.push(Effect::Condition(name(), Priority::Urgent));
    }
}
