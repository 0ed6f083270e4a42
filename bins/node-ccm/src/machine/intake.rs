//! Handles nodes that are added, changed and deleted, and changed settings: queues the nodes that
//! need work.

use ccm_cloud::Claim;
use ccm_controller::queue::Priority;
use ccm_objects::{Node, Shared as Name};

use super::{Effect, Machine, NodeState, Params, Queued, SeenNode};
use crate::plan::WaitReason;

impl Machine {
    /// Applies other settings. `--node-selector` and `--node-identity` decide whether nodes are written.
    pub(super) fn set(&mut self, params: Params) {
        let decides = |params: &Params| (params.selector.clone(), params.policy.identity);
        let is_other = decides(&params) != decides(&self.params);
        self.params = params;
        self.configure_turns();
        if is_other {
            let names: Vec<_> = self.entries.keys().map(Name::clone).collect();
            for name in names {
                self.queue(&name, Queued::Add(Priority::Routine));
            }
        }
    }

    /// Records a node that existed before this replica led. The first refresh compares the
    /// initialised ones with the fleet.
    pub(super) fn listed(&mut self, seen: &SeenNode) {
        // A change that came after the list is newer.
        if self.entry(&seen.node.name).node.is_none() {
            self.saw(&seen.node, seen.claim);
        }
        self.classify(seen);
        if seen.node.is_uninitialised() {
            self.queue(&seen.node.name, Queued::Add(Priority::Urgent));
        }
    }

    pub(super) fn added(&mut self, seen: &SeenNode) {
        if !self.leads {
            return;
        }
        self.saw(&seen.node, seen.claim);
        self.classify(seen);
        let name = &seen.node.name;
        if seen.node.is_uninitialised() {
            self.queue(name, Queued::Add(Priority::Urgent));
        } else if self.claim(seen) != Some(Claim::Foreign) {
            self.require(name);
            self.queue(name, Queued::Add(Priority::Routine));
        }
    }

    pub(super) fn updated(&mut self, old: &Node, new: &SeenNode) {
        if !self.leads {
            return;
        }
        self.saw(&new.node, new.claim);
        if let Some(priority) = sync_priority(old, &new.node) {
            self.queue(&new.node.name, Queued::Add(priority));
        }
    }

    pub(super) fn deleted(&mut self, node: &Node) {
        if !self.leads {
            return;
        }
        self.leaves_brake(&node.uid);
        self.forget(&node.name);
        // One of them may have its provider ID.
        let is_held = |state| state == Some(NodeState::Waiting(WaitReason::Identity));
        let held = self.entries.iter().filter(|(_, entry)| is_held(entry.state));
        let held: Vec<_> = held.map(|(name, _)| Name::clone(name)).collect();
        for name in held {
            self.queue(&name, Queued::Add(Priority::Urgent));
        }
    }

    /// Forgets a node that is gone.
    pub(super) fn forget(&mut self, name: &Name) {
        let state = self.entries.remove(name).and_then(|entry| entry.state);
        self.leaves_state(state);
        self.leaves_turns(name);
        self.say(Effect::Forget(Name::clone(name)));
    }

    /// Records a node that is new to this leader.
    fn classify(&mut self, seen: &SeenNode) {
        if self.claim_or_leave_out(seen) != Some(false) {
            let is_new = seen.node.is_uninitialised();
            let state = if is_new { NodeState::Pending } else { NodeState::Unknown };
            self.set_state(&seen.node.name, state);
        }
    }
}

/// Returns how soon to sync a node after this change; `None` if the plan reads none of the changed
/// fields. This applies to most updates.
///
/// A change that a person or kubelet makes to fix something is urgent: it also shortens a
/// back-off. Other changes do not, so that a busy node does not cause calls to a failing
/// cloud.
fn sync_priority(old: &Node, new: &Node) -> Option<Priority> {
    let identified = old.has_identity_of(new);
    let annotated = old.annotations == new.annotations;
    if new.is_uninitialised() && (!old.is_uninitialised() || !identified || !annotated) {
        return Some(Priority::Urgent);
    }
    let same = identified
        && annotated
        && old.labels == new.labels
        && old.taints == new.taints
        && old.addresses == new.addresses
        // A held InternalIP is released when the node stops being Ready.
        && (new.is_ready() || !old.is_ready());
    (!same).then_some(Priority::Routine)
}

#[cfg(test)]
mod tests;
