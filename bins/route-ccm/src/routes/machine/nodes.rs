//! Changes of nodes. Every replica follows them, to remember the targets that nodes have had.

use std::collections::BTreeSet;

use ccm_controller::queue::Priority;
use ccm_objects::{Node, Shared as Name};

use super::{Effect, Machine};
use crate::routes::plan::{
    condition::{self, NETWORK_UNAVAILABLE},
    wanted::NodeView,
};

impl Machine {
    /// Records that a node is new, or has changed.
    pub(super) fn apply_change(
        &mut self,
        before: Option<&NodeView>,
        after: &NodeView,
        effects: &mut Vec<Effect>,
    ) {
        if self.fixed.has_routes && self.record_node(before, after) {
            effects.push(Effect::Wake);
        }
        let is_written = self.leads && self.fixed.gives_cidrs && !self.fixed.is_observing;
        // Another writer may have set the condition of a node that waits, or that has got its pod
        // CIDRs. Lists of routes do not show that.
        if before.is_some_and(|before| is_another_condition(&before.node, &after.node))
            && is_written
        {
            effects.push(Effect::Condition(Name::clone(&after.node.name), Priority::Routine));
        }
    }

    /// Records a change of a node. Returns true if the routes have to be compared with the node.
    fn record_node(&mut self, before: Option<&NodeView>, after: &NodeView) -> bool {
        let Some(before) = before else {
            self.record_change(after);
            // A node without pod CIDRs does not need a route yet, and passes are rare.
            return !after.node.pod_cidrs.is_empty();
        };
        let (old, new) = (&before.node, &after.node);
        let is_left_out_anew = before.left_out != after.left_out;
        if !matters(old, new) && !is_left_out_anew {
            return false;
        }
        self.former.record_change(before, after);
        // A changed condition does not repair the route, so the pause after its failure continues.
        if has_moved(old, new) || is_left_out_anew {
            self.record_change(after);
        }
        true
    }

    /// Records that a node is gone.
    pub(super) fn gone(&mut self, view: &NodeView, is_marked: bool, effects: &mut Vec<Effect>) {
        self.conditions.remove(&view.node.name);
        effects.push(Effect::Forget(Name::clone(&view.node.name)));
        if self.fixed.has_routes {
            self.former.gone(view, is_marked);
            effects.push(Effect::Wake);
        }
    }

    /// Records that the pod CIDRs of the node have changed: what has failed for its routes is tried
    /// at once.
    pub(super) fn record_change(&mut self, view: &NodeView) {
        if let Some(changed) = &mut self.changed {
            changed.extend(view.pod_cidrs());
        }
    }

    /// Takes what has changed since the last plan. Nothing is collected before the first one.
    pub(super) fn take_changed(&mut self) -> BTreeSet<ipnet::IpNet> {
        self.changed.replace(BTreeSet::new()).unwrap_or_default()
    }

    /// Looks for conditions that an earlier controller of routes has left on nodes for which this
    /// program makes no routes. It cannot know that their network works, so it names them.
    pub(super) fn left_over(&self, nodes: Vec<NodeView>, effects: &mut Vec<Effect>) {
        let is_left = |view: &NodeView| {
            condition::is_not_created(&view.node)
                && (!self.fixed.has_routes || view.left_out.is_some())
        };
        let left = nodes.into_iter().filter(is_left).map(|view| view.node);
        effects.push(Effect::LeftOver(left.collect()));
    }
}

fn is_another_condition(old: &Node, new: &Node) -> bool {
    old.condition(NETWORK_UNAVAILABLE) != new.condition(NETWORK_UNAVAILABLE)
}

/// Returns true if the plan, or the condition that follows from it, looks at what has changed.
fn matters(old: &Node, new: &Node) -> bool {
    has_moved(old, new) || is_another_condition(old, new)
}

/// Returns true if the node may need other routes now.
fn has_moved(old: &Node, new: &Node) -> bool {
    old.uid != new.uid
        || old.pod_cidrs != new.pod_cidrs
        || old.addresses != new.addresses
        || old.provider_id != new.provider_id
}
