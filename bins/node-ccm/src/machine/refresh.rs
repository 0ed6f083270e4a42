//! Keeps initialised nodes in sync with their instances: all nodes are looked up once per period,
//! and nodes that differ are queued. Before that, nodes with a problem that no write can fix are
//! counted.

use std::{collections::BTreeMap, sync::Arc};

use ccm_base::{At, RetryClass};
use ccm_cloud::{Claim, CloudError, Instance, Lookup};
use ccm_controller::queue::Priority;
use ccm_objects::Node;

use super::{
    Came, Effect, KnownAnswer, Machine, NodeState, Problem, Queued, Report, Request, SeenNode,
    inventory::KnownInstance,
};
use crate::plan::{self, Outcome, addresses, follow};

impl Machine {
    /// Begins a refresh of these nodes.
    pub(super) fn refresh(&mut self, nodes: Vec<SeenNode>) {
        for seen in &nodes {
            // A node of the same name was deleted and created again since its work ended.
            if self.entry(&seen.node.name).node.is_none() {
                self.saw(&seen.node, seen.claim);
            }
        }
        self.census(&nodes);
        let names = nodes.iter().map(|seen| (&*seen.node.name, seen.id.as_deref()));
        self.inventory.keep_those_of(names);
        self.differing.clear();
        // All nodes that may belong to this provider, initialised or not. The others may have
        // belonged to it before.
        let own: Vec<_> =
            nodes.into_iter().filter(|seen| self.claim_or_leave_out(seen) == Some(true)).collect();
        if own.iter().any(|seen| !seen.node.is_uninitialised()) {
            let own = own.into_iter().map(|seen| seen.node).collect();
            self.say(Effect::Request(Request::LookUp(own)));
        }
    }

    /// Counts the nodes that have a problem, and reports them.
    fn census(&mut self, nodes: &[SeenNode]) {
        let mut counts: BTreeMap<Problem, usize> = BTreeMap::new();
        let mut count = |problem: Problem| *counts.entry(problem).or_default() += 1;
        let mut by_id: BTreeMap<&str, Vec<&Arc<Node>>> = BTreeMap::new();
        for seen in nodes {
            let node = &seen.node;
            if let Some(entry) = self.entries.get_mut(&node.name) {
                entry.claim = seen.claim;
            }
            match self.state(&node.name) {
                Some(NodeState::Unconfirmed) => count(Problem::Unconfirmed),
                Some(NodeState::InstanceGone) if node.is_ready() => count(Problem::InstanceGone),
                Some(NodeState::Foreign | NodeState::NotOurs | NodeState::NotSelected) => {}
                _ if !node.is_uninitialised() && !addresses::have_ip(&node.addresses) => {
                    count(Problem::NoAddress);
                }
                _ => {}
            }
            let is_ours = self.claim(seen).is_some_and(|claim| claim != Claim::Foreign);
            if let Some(id) = seen.id.as_deref().filter(|_| is_ours) {
                by_id.entry(id).or_default().push(node);
            }
        }
        // At most one of several nodes with the same ID belongs to its instance.
        for (id, nodes) in by_id.into_iter().filter(|(_, nodes)| nodes.len() > 1) {
            let names = nodes.iter().map(|node| &*node.name).collect::<Vec<_>>().join(", ");
            for node in nodes {
                count(Problem::DuplicateProviderId);
                let (id, names) = (id.to_owned(), names.clone());
                self.report(node, Report::Duplicate { id, names });
            }
        }
        self.say(Effect::Irregular(counts));
    }

    /// Compares a node with the cloud's answer, unless it was deleted after the refresh began.
    pub(super) fn compare(&mut self, seen: &SeenNode, answer: KnownAnswer) {
        let node = &seen.node;
        let entry = self.entries.get(&node.name);
        let is_there =
            entry.and_then(|entry| entry.node.as_ref()).is_some_and(|own| own.uid == node.uid);
        if !is_there {
            return;
        }
        if let Some(priority) = self.differs(seen, answer) {
            self.differing.push((Arc::clone(node), priority));
        }
    }

    /// Ends the refresh that began at `started`: those that differ are queued.
    pub(super) fn compared(&mut self, started: At) {
        self.inventory.refreshed(started);
        let differing = std::mem::take(&mut self.differing);
        for (node, priority) in &differing {
            self.queue(&node.name, Queued::Add(*priority));
        }
        let initialised = differing.iter().filter(|(node, _)| !node.is_uninitialised()).count();
        self.say(Effect::Request(Request::Differing(initialised)));
    }

    /// Compares a node with the cloud's answer, and records what the answer shows. Returns how soon the
    /// node is synced if it differs.
    fn differs(&mut self, seen: &SeenNode, answer: KnownAnswer) -> Option<Priority> {
        let (node, now) = (&seen.node, self.now);
        let is_new = node.is_uninitialised();
        let KnownInstance { instance, seen: at } = match answer {
            KnownAnswer::Found(id) => self.inventory.found(&id)?.clone(),
            // A node that waits to be initialised is retried anyway.
            KnownAnswer::Other(_) if is_new => return None,
            KnownAnswer::Other(Err(error)) => {
                self.unanswered(node, &error);
                return None;
            }
            KnownAnswer::Other(answer) => {
                self.entry(&node.name).remember(Arc::clone(node), answer, now);
                return Some(Priority::Routine);
            }
        };
        let policy = self.policy(seen.labels_only_add);
        let entry = self.entry(&node.name);
        entry.record_seen(at);
        // The other nodes with its ID are compared when it is synced.
        let known = plan::PlanInputs { agreed: entry.agreed, ..plan::PlanInputs::default() };
        let plan = follow(node, &instance, policy, known);
        entry.agreed.note(node, &instance);
        if !is_new {
            self.note_change(node, &plan);
        }
        if plan.steps.is_empty() && !matches!(plan.outcome, Outcome::Unconfirmed(_)) {
            if !is_new {
                self.entry(&node.name).take_last();
                self.set_state(&node.name, NodeState::Initialised);
                self.report(node, Report::Notes(Arc::new(plan)));
                self.say(Effect::Clear(Arc::clone(&node.name)));
            }
            return None;
        }
        let answer = Lookup::Found(Box::new(Instance::clone(&instance)));
        self.entry(&node.name).remember(Arc::clone(node), Ok(answer), now);
        Some(if is_new { Priority::Urgent } else { Priority::Routine })
    }

    /// Records that an initialised node has no answer, and looks it up again, unless that cannot
    /// help.
    fn unanswered(&mut self, node: &Node, error: &CloudError) {
        self.set_state(&node.name, NodeState::Unknown);
        self.came(&node.name, Came::Unanswered(error.clone()), None);
        if error.class() != RetryClass::Permanent {
            self.ask_again(&node.name, error.class());
        }
    }
}
