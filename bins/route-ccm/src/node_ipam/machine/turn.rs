//! A node has its turn, or the cloud has answered about its instance.

use std::{sync::Arc, time::Duration};

use ccm_base::{At, RetryClass};
use ccm_cloud::{Instance, Lookup};
use ccm_controller::queue::Priority;
use ccm_objects::{Node, Shared as Name};

use super::{
    Effect, Found, Machine,
    core::{Failed, needs_cidrs},
};
use crate::{
    networks::join,
    node_ipam::ipam::{self, AllocatorType, Refusal, Reservation, Written},
};

/// The pause before route-ccm again tries a node that waits for another node or for a route.
const AGAIN: Duration = Duration::from_mins(1);

impl Machine {
    /// Gives the node blocks of the cluster CIDRs, if it needs some.
    pub(super) fn turn(
        &mut self,
        name: Name,
        node: Option<Arc<Node>>,
        now: At,
        effects: &mut Vec<Effect>,
    ) {
        let node = node.filter(|node| needs_cidrs(node));
        let here = self.core.as_mut().zip(node).filter(|(core, node)| core.is_here(node));
        let Some((core, node)) = here else { return self.stop_waiting(name, effects) };
        core.waiting.begin_turn(&name);
        let reserved = core.allocator.reserve(&node, now);
        self.reserved(&node, reserved, now, effects);
    }

    /// Records that the node is gone, or has pod CIDRs. An answer about an older version may have
    /// made it wait again.
    fn stop_waiting(&mut self, name: Name, effects: &mut Vec<Effect>) {
        if let Some(core) = self.core.as_mut()
            && core.waiting.remove(&name)
        {
            effects.push(Effect::Clear(Name::clone(&name)));
        }
        effects.push(Effect::Forget(name));
    }

    /// Handles the cloud's answer about the instance of a node.
    pub(super) fn found(&mut self, found: Found, now: At, effects: &mut Vec<Effect>) {
        let Found { asked, node, answer, failures } = found;
        let name = || Name::clone(&asked.name);
        // The answer is about this instance. The informer reports the end of a node.
        let Some(node) = node else { return effects.push(Effect::Forget(name())) };
        if !asked.has_identity_of(&node) {
            return effects.push(Effect::Queue(name(), Priority::Urgent));
        }
        match answer {
            Ok(Lookup::Found(instance)) => {
                self.assign_from_instance(&node, &instance, now, effects);
            }
            Ok(Lookup::Gone(_)) => {
                // A new node can register before the cloud shows its instance.
                if failures > 1 {
                    let why = "the cloud does not have an instance for it";
                    self.leave_without_cidrs(&node, why, why, effects);
                    self.record_failure(&node, now, Failed::NoInstance);
                }
                effects.push(Effect::RetryAs(name(), RetryClass::Retry));
            }
            Ok(Lookup::NotOurs(_)) => self.drop_foreign(&node, now, effects),
            Err(error) => {
                let why = format!("cannot look up its instance: {error}");
                self.leave_without_cidrs(&node, error.kind.reason(), &why, effects);
                effects.push(Effect::RetryAs(name(), error.class()));
                self.record_failure(&node, now, Failed::Lookup(error));
            }
        }
    }

    /// Gives the node what the cloud has assigned to its instance.
    fn assign_from_instance(
        &mut self,
        node: &Arc<Node>,
        instance: &Instance,
        now: At,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(core) = self.core.as_mut().filter(|core| !core.is_dropped(&node.name)) {
            core.failed.remove(&node.name);
        }
        let cidrs = match ipam::given(instance, &self.fixed.config) {
            Ok(cidrs) => cidrs,
            Err(unusable) => {
                let why = unusable.to_string();
                self.leave_without_cidrs(node, &why, &why, effects);
                self.record_failure(node, now, Failed::Unusable(unusable));
                let again = Effect::RetryAs(Name::clone(&node.name), RetryClass::Retry);
                return effects.push(again);
            }
        };
        let Some(core) = self.core.as_mut().filter(|core| core.is_bare(node, Some(node))) else {
            return effects.push(Effect::Forget(Name::clone(&node.name)));
        };
        let reserved = core.allocator.reserve_given(node, &cidrs, now);
        self.reserved(node, reserved, now, effects);
    }

    /// Handles a node that has no instance in this cloud: nothing waits for its pod CIDRs any more.
    pub(super) fn drop_foreign(&mut self, node: &Node, now: At, effects: &mut Vec<Effect>) {
        self.record_failure(node, now, Failed::NotOurs);
        let name = || Name::clone(&node.name);
        if let Some(core) = self.core.as_mut().filter(|core| core.is_here(node)) {
            core.waiting.remove(&node.name);
            effects.push(Effect::Clear(name()));
        }
        effects.push(Effect::Forget(name()));
    }

    /// Remembers why the node does not have pod CIDRs, for its explanation.
    pub(super) fn record_failure(&mut self, node: &Node, now: At, why: Failed) {
        if let Some(core) = self.core.as_mut().filter(|core| core.is_bare(node, Some(node))) {
            core.failed.insert(Name::clone(&node.name), (now, why));
        }
    }

    fn leave_without_cidrs(
        &mut self,
        node: &Arc<Node>,
        state: &str,
        why: &str,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(core) = self.core.as_mut().filter(|core| core.is_bare(node, Some(node))) {
            core.leave_without_cidrs(&self.fixed, node, state, why, effects);
        }
    }

    /// Acts on what the allocator says of a node that needs pod CIDRs.
    fn reserved(
        &mut self,
        node: &Arc<Node>,
        reserved: Result<Reservation, Refusal>,
        now: At,
        effects: &mut Vec<Effect>,
    ) {
        let Reservation { cidrs, tries } = match reserved {
            Ok(reservation) => reservation,
            Err(refusal) => return self.refused(node, refusal, now, effects),
        };
        // It has blocks now, so it does not wait any more. They count as not stored until they are.
        if let Some(core) = self.core.as_mut().filter(|core| !core.is_dropped(&node.name)) {
            let has_waited = core.waiting.remove(&node.name);
            if has_waited && !self.fixed.is_observing {
                let why = format!("podCIDRs {} are not written yet", join(&cidrs));
                core.waiting.insert(&node.name, Some(why));
            }
        }
        let show = Effect::Show { node: Arc::clone(node), cidrs: cidrs.clone(), held: None };
        if self.fixed.is_observing {
            if let Some(core) = &mut self.core {
                core.allocator.record_outcome(node, Written::No);
            }
            return effects.extend([show, Effect::Forget(Name::clone(&node.name))]);
        }
        let write = Effect::Write { node: Arc::clone(node), cidrs };
        effects.extend([Effect::Tried(tries), show, write]);
    }

    fn refused(&mut self, node: &Arc<Node>, refusal: Refusal, now: At, effects: &mut Vec<Effect>) {
        let name = Name::clone(&node.name);
        let again = Effect::RetryEvery(Name::clone(&name), AGAIN);
        let why = refusal.to_string();
        match &refusal {
            Refusal::Assigned | Refusal::Deleting => return effects.push(Effect::Forget(name)),
            // Its end queues all waiting nodes. A node that was left alone ends it.
            Refusal::Stopped(_) => {
                self.leave_without_cidrs(node, "another allocator", &why, effects);
                effects.push(again);
            }
            // The first list brings it back. A node that still waits at its next turn is reported.
            Refusal::RoutesUnknown => {
                match self.core.as_mut().filter(|core| !core.waiting.contains(&name)) {
                    Some(core) => core.waiting.insert(&name, None),
                    None => self.leave_without_cidrs(node, "routes unknown", &why, effects),
                }
                effects.push(again);
            }
            // A free block brings it back.
            Refusal::Exhausted(exhausted) => {
                let state = format!("{} is exhausted", exhausted.cluster);
                self.leave_without_cidrs(node, &state, &why, effects);
                self.core.iter_mut().for_each(|core| core.waiting.sleep(&name));
                effects.push(Effect::Forget(name));
            }
            Refusal::Taken(_) => {
                self.leave_without_cidrs(node, &why, &why, effects);
                effects.push(again);
            }
        }
        // The explanation asks a copy of the allocator about blocks.
        if self.fixed.config.allocator == AllocatorType::CloudAllocator {
            self.record_failure(node, now, Failed::Refused(refusal));
        }
    }
}
