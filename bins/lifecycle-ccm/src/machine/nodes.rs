//! The nodes, as the API server has shown them, and further knowledge about each of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::Claim;
use ccm_controller::brake::approval::SetApproval;
use ccm_objects::{Node, Shared as Name};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    Machine,
    event::{Parameters, Sight, Unlisted},
};
use crate::policy::{
    NodeView,
    action::{PROTECTED, is_approved},
};

/// All nodes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Nodes {
    seen: BTreeMap<Name, KnownNode>,
    /// The UIDs of nodes whose system UUID has changed: they run on another machine.
    pub(super) replaced: BTreeSet<Box<str>>,
    /// The time of the wall clock at the last look.
    wall: Timestamp,
    /// The number of nodes that were new, or had a new provider ID, so far.
    arrivals: u64,
}

/// A node.
#[derive(Debug, Serialize, Deserialize)]
struct KnownNode {
    node: Arc<Node>,
    claim: Option<Claim>,
    /// When it appeared, if it was created while this process was watching.
    appeared: Option<At>,
    /// The number of its arrival.
    arrival: u64,
}

impl Nodes {
    /// Takes over a node that the API server shows. Returns true if a pass is needed now.
    pub(super) fn see(
        &mut self,
        now: At,
        node: Arc<Node>,
        claim: Option<Claim>,
        is_new: bool,
    ) -> bool {
        let Some(known) = self.seen.get(&node.name).map(|seen| Arc::clone(&seen.node)) else {
            self.arrivals += 1;
            let (is_well, name) = (node.is_ready(), Arc::clone(&node.name));
            let (appeared, arrival) = (is_new.then_some(now), self.arrivals);
            self.seen.insert(name, KnownNode { node, claim, appeared, arrival });
            return !is_well;
        };
        self.put(Arc::clone(&node));
        if let Some(seen) = self.seen.get_mut(&node.name) {
            seen.claim = claim;
        }
        wakes(&known, &node)
    }

    /// Takes over the answer to a write, unless a later version was seen first.
    pub(super) fn apply_answer(&mut self, node: &Arc<Node>) {
        let known = self.seen.get(&node.name);
        if known.is_some_and(|known| node.is_later_than(&known.node)) {
            self.put(Arc::clone(node));
        }
    }

    fn put(&mut self, node: Arc<Node>) {
        let Some(seen) = self.seen.get_mut(&node.name) else { return };
        if is_replaced(&seen.node, &node) {
            self.replaced.insert(node.uid.clone());
        }
        if seen.node.uid != node.uid || seen.node.provider_id != node.provider_id {
            self.arrivals += 1;
            seen.arrival = self.arrivals;
        }
        seen.node = node;
    }

    /// Forgets a node that is gone.
    pub(super) fn forget(&mut self, name: &str, uid: &str) {
        if self.seen.get(name).is_some_and(|seen| *seen.node.uid == *uid) {
            self.seen.remove(name);
        }
        self.replaced.remove(uid);
    }

    /// Takes over the facts that a pass over the nodes needs.
    pub(super) fn sight(&mut self, sight: Sight) {
        self.wall = sight.wall;
        for claimed in sight.claims {
            let seen = self.seen.get_mut(&claimed.name);
            if let Some(seen) = seen.filter(|seen| seen.node.provider_id == claimed.provider_id) {
                seen.claim = claimed.claim;
            }
        }
    }

    /// Returns the node of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Node>> {
        self.seen.get(name).map(|seen| &seen.node)
    }

    /// Returns true if the node with this name has this UID.
    pub(super) fn has(&self, name: &str, uid: &str) -> bool {
        self.get(name).is_some_and(|node| *node.uid == *uid)
    }

    /// Returns all nodes, with the claims of the provider to them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<Node>, Option<Claim>)> {
        self.seen.values().map(|seen| (&seen.node, seen.claim))
    }

    /// Returns the number of the last arrival.
    pub(super) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Returns true if a list lacks this node. A list does not show a node that arrived after the
    /// comparison.
    pub(super) fn is_unlisted(&self, name: &Name, unlisted: &Unlisted) -> bool {
        let is_late = |seen: &KnownNode| seen.arrival > unlisted.as_of;
        unlisted.missing.contains(name) || self.seen.get(name).is_none_or(is_late)
    }

    /// Returns the nodes as the policy sees them. Until the provider has reported its schemes,
    /// nodes with a provider ID are omitted, because their owner is unknown.
    fn views(
        &self,
        now: At,
        parameters: &Parameters,
        approval: Option<&SetApproval>,
    ) -> Vec<NodeView> {
        let view = |KnownNode { node, claim, appeared, .. }: &KnownNode| {
            let age = shortest(node.age(self.wall), appeared.map(|appeared| now.since(appeared)));
            let mut view = view(node, (*claim)?, age);
            view.selected = parameters.node_selector.matches(node);
            view.marked = node.has_taint_of(&parameters.scale_down_taints);
            view.replaced = view.has_id && self.replaced.contains(&node.uid);
            let is_covered = || approval.is_some_and(|set| set.covers(&node.labels));
            view.approved = !view.is_well() && (view.approved || is_covered());
            Some(view)
        };
        self.seen.values().filter_map(view).collect()
    }
}

impl Machine {
    /// Returns the nodes as the policy sees them now.
    pub(super) fn views(&self, now: At) -> Vec<NodeView> {
        let wall = self.nodes.wall.into();
        let approval = self.approval.as_ref();
        self.nodes.views(now, &self.parameters, approval.filter(|set| !set.is_over(wall)))
    }
}

/// Returns the age of a node: by the wall clock, which may be wrong, and by the time since this
/// process saw its creation.
fn shortest(by_clock: Option<Duration>, seen_for: Option<Duration>) -> Duration {
    let by_clock = by_clock.unwrap_or_default();
    seen_for.map_or(by_clock, |seen| seen.min(by_clock))
}

/// Returns the policy's view of a node, given its owner and its age, without what other objects and
/// the settings say about it.
fn view(node: &Node, claim: Claim, age: Duration) -> NodeView {
    NodeView {
        name: Arc::clone(&node.name),
        uid: node.uid.clone(),
        claim,
        has_id: node.provider_id.is_some(),
        selected: true,
        ready: node.is_ready(),
        deleting: node.deleting,
        uninitialised: node.is_uninitialised(),
        age,
        protected: node.annotations.get(PROTECTED).is_some_and(|value| &**value != "false"),
        approved: is_approved(node),
        marked: false,
        replaced: false,
    }
}

/// Returns true if a change of a node needs a pass now.
fn wakes(old: &Node, new: &Node) -> bool {
    old.is_ready() != new.is_ready()
        || old.annotations != new.annotations
        || old.provider_id != new.provider_id
        || old.labels != new.labels
        || old.taints != new.taints
        || old.system_uuid != new.system_uuid
}

/// Returns true if another machine has taken the node over: the provider ID stays, the system UUID
/// changes.
fn is_replaced(old: &Node, new: &Node) -> bool {
    let uuids = old.system_uuid.as_ref().zip(new.system_uuid.as_ref());
    let has_moved = uuids.is_some_and(|(old, new)| !old.eq_ignore_ascii_case(new));
    has_moved && old.uid == new.uid && new.provider_id.is_some()
}

#[cfg(test)]
mod tests;
