//! The memory of node-ccm, and the only code that changes it: pure.
//!
//! | module | content |
//! |---|---|
//! | `event`, `effect` | the machine's input and output |
//! | `intake` | nodes that are added, changed and deleted; changed settings |
//! | `lookups` | selects the nodes of the queue to look up, and keeps the cloud's answers |
//! | `work` | a node with its answer: the plan, and its execution |
//! | `written` | the answers of the API server to the steps of a plan |
//! | `refresh` | compares all nodes with the cloud's answers; the census |
//! | `brake`, `gathered` | changes of Ready nodes, which are held if they are too many |
//! | `corrections`, `turns` | changes of initialised nodes that wait for their turn |
//! | `entry` | the memory of one node |
//! | `explain` | what the page `/explain` says about one node |
//! | `inventory` | the instances that lookups have found |
//! | `recorded` | names the node that an event or effect is about |

mod brake;
mod corrections;
mod effect;
mod entry;
mod event;
mod explain;
mod gathered;
mod intake;
mod inventory;
mod lookups;
mod recorded;
mod refresh;
mod turns;
mod work;
mod written;

use std::{collections::BTreeMap, mem, sync::Arc};

use ccm_base::At;
use ccm_cloud::{Claim, Lookup};
use ccm_controller::machine::Machine as Pure;
use ccm_controller::queue::Priority;
use ccm_objects::{Node, Shared as Name};
use serde::{Deserialize, Serialize};

use self::{
    brake::Brake,
    entry::{Came, Last, NodeMemory},
    turns::Turns,
    written::{Inputs, Writing},
};
pub(crate) use self::{
    brake::BrakeState,
    effect::{Again, Due, Effect, Queued, RETRY, Report, Request, RetryReason},
    entry::{NodeState, Problem},
    event::{Event, Params, SeenNode, Work},
    explain::NodeFacts,
    gathered::{Pause, TooMany},
    inventory::{Inventory, KnownAnswer},
};

/// The memory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    params: Params,
    /// True once this replica leads with a new store: nothing is queued before that.
    leads: bool,
    entries: BTreeMap<Name, NodeMemory>,
    inventory: Inventory,
    turns: Turns,
    brake: Brake,
    /// The nodes that are being written.
    writing: BTreeMap<Name, Writing>,
    /// The nodes of this refresh that differ from their instances, and how soon they are synced. All nodes
    /// are compared before the first is written.
    differing: Vec<(Arc<Node>, Priority)>,
    /// The time of the last event.
    now: At,
    /// The effects of this event so far.
    #[serde(skip)]
    said: Vec<Effect>,
}

impl Pure for Machine {
    type Event = Event;
    type Effect = Effect;

    fn apply(&mut self, event: Event, now: At) -> Vec<Effect> {
        self.now = now;
        match event {
            Event::TermBegins { left, params } => {
                self.resume(left);
                self.set(params);
            }
            Event::Set(params) => self.set(params),
            Event::StoreIsNew => self.leads = true,
            Event::Listed(seen) => self.listed(&seen),
            Event::Added(seen) => self.added(&seen),
            Event::Updated { old, new } => self.updated(&old, &new),
            Event::Deleted(node) => self.deleted(&node),
            Event::Gone(name) => self.forget(&name),
            Event::Approved(approval) => self.approved(approval),
            Event::Look(seen) => self.look(&seen),
            Event::AskedAgain(name) => self.require(&name),
            Event::Answered { ago, answers } => self.record_answers(answers, now - ago),
            Event::Work(work) => self.work(*work),
            Event::Written { name, answer } => self.written(&name, answer),
            Event::Conflicts { node, what } => self.many_conflicts(&node, what),
            Event::Refresh(nodes) => self.refresh(nodes),
            Event::Found { ago, instances } => self.inventory.update(instances, now - ago),
            Event::Compare { seen, answer } => self.compare(&seen, answer),
            Event::Compared { ago } => self.compared(now - ago),
        }
        mem::take(&mut self.said)
    }
}

impl Machine {
    /// Creates a machine that knows nothing yet.
    pub(crate) fn new(params: Params) -> Self {
        Self {
            leads: false,
            entries: BTreeMap::new(),
            inventory: Inventory::default(),
            turns: Turns::new(params.per_second),
            brake: Brake::default(),
            writing: BTreeMap::new(),
            differing: Vec::new(),
            now: At::default(),
            said: Vec::new(),
            params,
        }
    }

    /// Returns true if this replica leads.
    pub(crate) fn leads(&self) -> bool {
        self.leads
    }

    /// Returns the state of a node, if it is known.
    pub(crate) fn state(&self, name: &str) -> Option<NodeState> {
        self.entries.get(name)?.state
    }

    /// Returns the number of initialised nodes that wait for their turn.
    pub(crate) fn waiting(&self) -> usize {
        self.turns.waiting()
    }

    /// Returns the instances that lookups have found.
    pub(crate) fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    fn say(&mut self, effect: Effect) {
        self.said.push(effect);
    }

    fn queue(&mut self, name: &Name, queued: Queued) {
        self.say(Effect::Queue(Name::clone(name), queued));
    }

    fn report(&mut self, node: &Arc<Node>, report: Report) {
        self.say(Effect::Report(Arc::clone(node), report));
    }

    fn entry(&mut self, name: &Name) -> &mut NodeMemory {
        self.entries.entry(Name::clone(name)).or_default()
    }

    /// Records the current state of a node.
    fn saw(&mut self, node: &Arc<Node>, claim: Option<Claim>) {
        let entry = self.entry(&node.name);
        (entry.node, entry.claim) = (Some(Arc::clone(node)), claim);
    }

    /// Records the current state of a node, and the cloud's answer about it.
    fn note_agreement(&mut self, node: &Node, inputs: &Inputs) {
        if let Ok(Lookup::Found(instance)) = &inputs.answer {
            self.entry(&node.name).agreed.note(node, instance);
        }
    }

    /// Records the outcome of the work on a node, and when it is retried.
    fn came(&mut self, name: &Name, came: Came, again: Option<Again>) {
        let (at, pace) = (self.now, again.map(Again::pace));
        if let Some(entry) = self.entries.get_mut(name) {
            entry.last = Some(Box::new(Last { at, came, pace, is_first: false }));
        }
    }

    /// Tries the node again, now that its work has ended.
    fn again(&mut self, name: &Name, again: Again) {
        if let Some(last) = &mut self.entry(name).last {
            last.pace = Some(again.pace());
        }
        self.queue(name, Queued::Again(again));
    }

    /// Records the state of the node.
    fn set_state(&mut self, name: &Name, state: NodeState) {
        let old = self.entry(name).state.replace(state);
        if old == Some(state) {
            return;
        }
        self.say(Effect::Counts(state, 1));
        self.leaves_state(old);
    }

    fn leaves_state(&mut self, old: Option<NodeState>) {
        if let Some(old) = old {
            self.say(Effect::Counts(old, -1));
        }
    }

    /// Makes the next work on this node ask the cloud.
    fn require(&mut self, name: &Name) {
        self.entry(name).is_required = true;
    }

    /// Returns the provider's claim to the node; `None` while the claim is unknown. node-ccm treats
    /// a node that is not selected like a node of another provider.
    fn claim(&self, seen: &SeenNode) -> Option<Claim> {
        if !self.params.selector.matches(&seen.node) {
            return Some(Claim::Foreign);
        }
        seen.claim
    }

    /// Leaves the node out if it belongs to another provider. Returns true if it may belong to this
    /// one; `None` while this is unknown.
    fn claim_or_leave_out(&mut self, seen: &SeenNode) -> Option<bool> {
        let is_ours = self.claim(seen)? != Claim::Foreign;
        if !is_ours {
            self.left_out(&seen.node);
        }
        Some(is_ours)
    }

    /// Records that the node belongs to another provider or is not selected. It is not written any
    /// more: it does not delay other nodes, and does not wait for a turn.
    fn left_out(&mut self, node: &Arc<Node>) {
        self.leaves_brake(&node.uid);
        self.leaves_turns(&node.name);
        let is_selected = self.params.selector.matches(node);
        self.say(Effect::LeftOut { node: Arc::clone(node), is_selected });
        let state = if is_selected { NodeState::Foreign } else { NodeState::NotSelected };
        self.set_state(&node.name, state);
    }

    /// Records that the node is up to date.
    fn settled(&mut self, name: &Name) {
        let entry = self.entry(name);
        entry.drop_answer();
        entry.take_last();
        self.leaves_turns(name);
        self.queue(name, Queued::Forget);
    }
}

#[cfg(test)]
mod tests;
