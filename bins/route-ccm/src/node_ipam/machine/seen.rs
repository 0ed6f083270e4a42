//! The beginning of a term; nodes that are new, have changed or are gone.

use std::{collections::BTreeMap, sync::Arc};

use ccm_base::At;
use ccm_controller::queue::Priority;
use ccm_objects::{Node, Shared as Name};

use super::{
    Begin, Effect, Machine,
    core::{Core, needs_cidrs, settled},
    waiting::Waiting,
};
use crate::node_ipam::ipam::{Allocator, AllocatorType, HeldBlocks};

impl Machine {
    /// Begins with the nodes, which have been read in the term.
    pub(super) fn begin(&mut self, begin: Begin, now: At, effects: &mut Vec<Effect>) {
        let Begin { mut nodes, held, sizes } = begin;
        // The node that came first gets a block first.
        nodes.sort_by(|one, other| (one.created, &one.name).cmp(&(other.created, &other.name)));
        // The clock of the last leader may have been ahead.
        let held = held.into_iter().map(|held| HeldBlocks { since: held.since.min(now), ..held });
        let (config, until) = (self.fixed.config.clone().with_sizes(sizes), self.fixed.hold);
        let all = nodes.iter().map(AsRef::as_ref);
        let allocator = Allocator::rebuild(config, until, all, held.collect());
        let here = nodes.iter().map(|node| (Name::clone(&node.name), node.uid.clone())).collect();
        let core = self.core.insert(Core {
            allocator,
            waiting: Waiting::default(),
            failed: BTreeMap::new(),
            here,
        });
        let problems = core.problems();
        for node in nodes.iter().filter(|_| !problems.is_empty()) {
            let wrong = problems.get(&*node.uid).copied().unwrap_or_default();
            let wrong = wrong.iter().cloned();
            effects.extend(wrong.map(|what| Effect::Strange(Name::clone(&node.name), what)));
        }
        if let Some((destinations, read)) = self.table.take() {
            self.routes_are(destinations, read, effects);
        }
        let (bare, assigned): (Vec<_>, Vec<_>) =
            nodes.iter().partition(|node| node.pod_cidrs.is_empty());
        effects.push(Effect::Known { assigned: assigned.len(), bare: bare.len() });
        for node in assigned {
            settled(&self.fixed, node, effects);
        }
        let bare = bare.into_iter().filter(|node| needs_cidrs(node));
        effects.extend(bare.map(|node| Effect::Queue(Name::clone(&node.name), Priority::Urgent)));
        effects.push(Effect::WakeRelease);
    }

    /// Looks at a node as it is now. Before the term there is nothing to do: it begins with all nodes.
    pub(super) fn look_at(
        &mut self,
        before: Option<&Node>,
        node: &Arc<Node>,
        now: At,
        effects: &mut Vec<Effect>,
    ) {
        let asks = self.fixed.config.allocator == AllocatorType::CloudAllocator;
        let Some(core) = &mut self.core else { return };
        if before.is_some_and(|before| !matters(before, node, asks)) {
            return;
        }
        core.here.insert(Name::clone(&node.name), node.uid.clone());
        core.look(&self.fixed, node, now, effects);
        // An event can be older than our own write, so two versions without pod CIDRs do not prove
        // that they are lost. After a wrong list a node comes back as a new one.
        let is_lost = before.is_none_or(|before| !before.pod_cidrs.is_empty());
        if is_lost && node.pod_cidrs.is_empty() {
            core.allocator.lost(node, now);
        }
        if needs_cidrs(node) {
            effects.push(Effect::Queue(Name::clone(&node.name), Priority::Urgent));
        }
    }

    /// Forgets a node that is gone.
    pub(super) fn gone(&mut self, node: &Node, now: At, effects: &mut Vec<Effect>) {
        if let Some(core) = &mut self.core {
            if core.is_here(node) {
                core.here.remove(&node.name);
            }
            core.failed.remove(&node.name);
            core.waiting.remove(&node.name);
            core.allocator.release(&node.uid, now);
        }
        let name = || Name::clone(&node.name);
        effects.extend([Effect::Remove(name()), Effect::Clear(name()), Effect::WakeRelease]);
    }
}

/// Returns true if the pod CIDRs of a node depend on the change. A heartbeat does not cause work.
fn matters(old: &Node, new: &Node, asks: bool) -> bool {
    old.pod_cidrs != new.pod_cidrs
        || old.uid != new.uid
        || old.deleting != new.deleting
        || (asks && old.provider_id != new.provider_id)
}
