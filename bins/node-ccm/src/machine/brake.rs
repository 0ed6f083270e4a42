//! The brake over changes of Ready nodes: one wrong answer of the cloud must not reach the whole
//! fleet.

use std::time::Duration;

use ccm_base::At;
use ccm_cloud::Claim;
use ccm_controller::brake::approval::SetApproval;
use ccm_controller::brake::{Budget, Hold, Transition, Usage, Window};
use ccm_controller::queue::Priority;
use ccm_objects::{Node, Shared as Name};
use serde::{Deserialize, Serialize};

use super::{
    Effect, Machine, Queued,
    entry::NodeMemory,
    gathered::{Gathered, Pause, TooMany},
};
use crate::plan::{Plan, is_approved, is_protected};

/// The time for which the Ready nodes are not counted again.
const RECOUNT: Duration = Duration::from_secs(1);

/// The brake, and what it depends on.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Brake {
    gathered: Gathered,
    approval: Option<SetApproval>,
    /// The number of Ready nodes, and when they were counted.
    population: Option<(At, usize)>,
}

impl Brake {
    /// Returns the changes that are wanted.
    pub(super) fn gathered(&self) -> &Gathered {
        &self.gathered
    }
}

/// The state of the brake, for metrics and pages.
#[derive(Debug)]
pub(crate) struct BrakeState {
    /// The used and allowed part of the budget.
    pub(crate) usage: Usage,
    /// The number of nodes whose change is held, and why.
    pub(crate) held: Option<(usize, Hold)>,
    /// The reason why the breaker is open, if it is.
    pub(crate) cause: Option<TooMany>,
}

impl Machine {
    /// Returns the state of the brake.
    pub(crate) fn brake(&self, now: At) -> BrakeState {
        let Brake { gathered, population, .. } = &self.brake;
        let population = population.map_or(0, |(_, count)| count);
        let usage = gathered.usage(now, population, self.params.budget);
        BrakeState { usage, held: gathered.held(), cause: gathered.cause() }
    }

    /// Returns the changes that were made, for the next leader.
    pub(crate) fn window(&self) -> &Window {
        self.brake.gathered.brake().window()
    }

    /// Continues with the budget that the last leader has left.
    pub(super) fn resume(&mut self, left: Window) {
        self.brake.gathered = Gathered::resume(self.now, left);
    }

    /// Takes over a changed approval on the Lease: the nodes whose change is held may change now.
    pub(super) fn approved(&mut self, approval: Option<SetApproval>) {
        self.brake.approval = approval;
        let gathered = &self.brake.gathered;
        let is_held = |entry: &NodeMemory| {
            entry.node.as_ref().is_some_and(|node| gathered.is_held(&node.uid))
        };
        let held = self.entries.iter().filter(|(_, entry)| is_held(entry));
        let held: Vec<_> = held.map(|(name, _)| Name::clone(name)).collect();
        for name in held {
            self.say(Effect::Queue(name, Queued::Add(Priority::Routine)));
        }
    }

    /// Records whether a plan of this node needs the brake.
    pub(super) fn note_change(&mut self, node: &Node, plan: &Plan) {
        let uid = &*node.uid;
        if plan.needs_brake() {
            self.change_brake(|gathered, now, _, _| gathered.wants(now, uid));
        } else if !node.is_ready() {
            self.leaves_brake(uid);
        } else if self.brake.gathered.is_wanted(uid) {
            self.change_brake(|gathered, _, _, _| gathered.agrees(uid));
        }
    }

    /// Charges the plan of an initialised node to the budget, if it needs the brake.
    ///
    /// # Errors
    ///
    /// The reason why the plan is not executed now.
    pub(super) fn pass_brake(&mut self, node: &Node, plan: &Plan) -> Result<(), Pause> {
        self.note_change(node, plan);
        if !plan.needs_brake() {
            return Ok(());
        }
        let is_approved = self.is_approved(node);
        self.change_brake(|gathered, now, population, budget| {
            gathered.request(now, &node.uid, population, budget, is_approved)
        })?;
        // Before the change: the next leader should know of it even if this one dies of it.
        self.say(Effect::Leave);
        Ok(())
    }

    fn is_approved(&self, node: &Node) -> bool {
        let set = self.brake.approval.as_ref();
        is_approved(node) || set.is_some_and(|set| set.covers(&node.labels))
    }

    /// Asks a copy of the brake whether it would allow the wanted change of the node at this time.
    pub(super) fn would_pause(&self, node: &Node, now: At) -> Option<Pause> {
        let Brake { gathered, population, .. } = &self.brake;
        let population = population.map_or(0, |(_, count)| count);
        let (budget, is_approved) = (self.params.budget, self.is_approved(node));
        gathered.clone().request(now, &node.uid, population, budget, is_approved).err()
    }

    /// Forgets an object that is gone, or not guarded any more.
    pub(super) fn leaves_brake(&mut self, uid: &str) {
        if self.brake.gathered.is_wanted(uid) {
            self.change_brake(|gathered, _, _, _| gathered.leaves(uid));
        }
    }

    /// Records that the object was changed.
    pub(super) fn changed_past_brake(&mut self, uid: &str) {
        self.change_brake(|gathered, now, _, _| gathered.made(now, uid));
        self.say(Effect::Leave);
    }

    /// Changes the wanted changes, and reports the consequences.
    fn change_brake<R>(&mut self, change: impl FnOnce(&mut Gathered, At, usize, Budget) -> R) -> R {
        let (now, population, budget) = (self.now, self.population(), self.params.budget);
        let gathered = &mut self.brake.gathered;
        let result = change(gathered, now, population, budget);
        match gathered.observe(now, population, budget) {
            Transition::Opened(cause) => self.say(Effect::BreakerOpens(cause)),
            Transition::Closed => self.say(Effect::BreakerCloses),
            Transition::StaysOpen(..) | Transition::StaysClosed => {}
        }
        self.say(Effect::BrakeChanges);
        result
    }

    /// Returns the number of Ready nodes that this program keeps in sync.
    fn population(&mut self) -> usize {
        let is_recent = |(at, _): &(At, usize)| self.now.since(*at) < RECOUNT;
        if let Some((_, population)) = self.brake.population.filter(is_recent) {
            return population;
        }
        let counts = |entry: &&NodeMemory| {
            let is_ours = matches!(entry.claim, Some(Claim::Ours | Claim::Unclaimed));
            let is_meant = |node: &Node| is_protected(node) && self.params.selector.matches(node);
            is_ours && entry.node.as_deref().is_some_and(is_meant)
        };
        let population = self.entries.values().filter(counts).count();
        self.brake.population = Some((self.now, population));
        population
    }
}
