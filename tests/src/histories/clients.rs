//! Other clients of the API server, and its admission policies.

use std::collections::BTreeSet;

use ccm_controller::brake::approval::{KEYS, SELECTOR, SetApproval, UNTIL};
use ccm_objects::instance_gone;
use lifecycle_ccm::{
    machine::Event,
    policy::{NodeView, action::Marks},
};

use super::{
    Run, Sabotage, at,
    objects::{UID, wall},
    world::{World, within},
};
use crate::dice::Dice;

/// The parts of a write that admission policies undo for some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Admission {
    when: (u64, u64),
    taints: bool,
    approvals: bool,
    proofs: bool,
}

impl Admission {
    /// Draws the parts to undo.
    pub fn draw(dice: &mut Dice, world: &World) -> Self {
        if !dice.percent(25) {
            return Self::default();
        }
        let when = (dice.within(0, world.end), world.end);
        let mut some = || dice.percent(60);
        Self { when, taints: some(), approvals: some(), proofs: some() }
    }

    /// Returns true if a proof that is written at this time is not stored.
    pub fn drops_proof(&self, now: u64) -> bool {
        within(self.when, now) && self.proofs
    }

    /// Returns the marks that are stored of these.
    pub fn stored(&self, now: u64, marks: Marks) -> Marks {
        if !within(self.when, now) {
            return marks;
        }
        Marks {
            taint: marks.taint.filter(|_| !self.taints),
            end_approval: marks.end_approval && !self.approvals,
            end_proof: marks.end_proof && !self.proofs,
        }
    }
}

impl Run {
    /// Changes a node as another client does: a former leader, an operator with a backup, or a
    /// client that has nothing to do with lifecycle-ccm.
    pub fn meddle(&mut self, now: u64) {
        let index = self.dice.below(self.world.nodes.len());
        let Some(node) = self.world.nodes.get(index).filter(|node| node.registered(now)) else {
            return;
        };
        let marks = self.objects.marks.entry(node.uid.clone()).or_default();
        match self.dice.within(0, 5) {
            0 => marks.proof = Some(instance_gone::value("by_id", at(now))),
            1 => marks.proof = Some("by hand".to_owned()),
            2 => marks.is_shut_down = true,
            3 => marks.is_shut_down = false,
            _ => marks.touched += 1,
        }
    }

    /// Registers another machine under the name of a node.
    pub fn register_again(&mut self, now: u64) {
        let index = self.dice.below(self.world.nodes.len());
        let Some(name) = self.world.nodes.get(index).map(|node| node.name.clone()) else { return };
        self.world.register_again(&mut self.dice, &name, now);
        self.healthy.resize(self.world.nodes.len(), None);
    }

    /// Approves on the Lease the deletion of some nodes whose machines are gone, or ends the
    /// approval, as the operator does.
    pub fn approve_set(&mut self, now: u64) {
        let gone = self.world.nodes.iter().filter(|node| !node.lives(now));
        let gone: Vec<Box<str>> = gone.map(|node| node.uid.clone()).collect();
        let some = gone.into_iter().filter(|_| self.dice.percent(50));
        let uids: BTreeSet<Box<str>> = some.collect();
        self.approved = (uids, now + self.dice.within(1_000, 120_000));
        self.tell_set(now);
    }

    /// Tells the leader about the approvals on the Lease.
    pub fn tell_set(&mut self, now: u64) {
        let (uids, until) = &self.approved;
        let end = if self.sabotage == Some(Sabotage::Until) { until * 2 } else { *until };
        let uids: Vec<&str> = uids.iter().map(|uid| &**uid).collect();
        let annotation = |key: &str| match key {
            SELECTOR => Some(format!("{UID} in ({})", uids.join(","))),
            UNTIL => Some(wall(end).to_string()),
            _ => None,
        };
        let read = || SetApproval::read(KEYS, annotation).unwrap();
        let approved = if uids.is_empty() { None } else { read() };
        self.leader.tell(now, Event::Approved(approved));
    }

    /// Returns true if an approval on the Lease covers this node.
    pub fn is_in_set(&self, view: &NodeView, now: u64) -> bool {
        let (uids, until) = &self.approved;
        !view.is_well() && now < *until && uids.contains(&view.uid)
    }
}
