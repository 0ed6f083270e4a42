//! Losses of routes must pass the brake.

use std::collections::BTreeSet;

use ccm_cloud::{Route, RouteChange, RouteTarget};
use ccm_controller::brake::Hold;
use ccm_objects::Shared;

use super::{Decider, Orphan};
use crate::routes::plan::{
    Cause, Held, Lack, Plan, Planned, Planner,
    cases::{Finding, witnesses},
    target_of,
};

/// A deletion that the brake decides about.
pub(super) struct Loss {
    pub(super) planned: Planned,
    /// The node that waits for it.
    pub(super) place: Option<usize>,
    pub(super) orphan: Orphan,
    /// The reason why it waits for a person, if it does.
    pub(super) waits: Option<Held>,
}

impl Decider<'_> {
    /// Plans a deletion, if the brake allows it.
    pub(super) fn delete(&mut self, route: &Route, orphan: Orphan) {
        let waits = match (&orphan.node, orphan.left_out) {
            (Some(node), Some(why)) => Some(Held::LeftOut { node: Shared::clone(node), why }),
            (node, _) if self.is_newly_inside(route) => {
                Some(Held::NewlyInside { node: node.as_ref().map(Shared::clone) })
            }
            _ => None,
        };
        let change = RouteChange::Delete(Box::new(route.clone()));
        let planned = Planned { change, node: None, why: orphan.why.clone(), held: None };
        self.losses.push(Loss { planned, place: None, orphan, waits });
    }

    /// Asks the brake about what is lost, and completes the plan. Returns the targets that are
    /// none of our nodes.
    pub(in crate::routes::plan) fn finish(mut self) -> (Plan, BTreeSet<RouteTarget>) {
        let cause =
            (self.view.nodes.is_empty() && self.plan.counts.ours > 0).then_some(Cause::NoNodes);
        self.plan.breaker = Some(self.planner.brake.observe(self.now, cause));
        for loss in std::mem::take(&mut self.losses) {
            self.lose(loss);
        }
        self.planner.give_back(&self.passed);
        // An empty table may be a lie, and does not remove a doubt.
        let is_first = self.planner.networks.is_empty();
        if is_first || !self.is_in_doubt && self.plan.counts.ours > 0 {
            self.planner.networks = self.view.parameters.cluster_cidrs.clone();
        }
        self.plan.changes.sort_by_key(|planned| planned.node.is_none());
        let mut plan = self.plan;
        for (place, state) in self.lacks {
            if let Some(view) = self.view.nodes.get(place) {
                plan.nodes.insert(Shared::clone(&view.node.name), state);
            }
        }
        plan.witnesses = witnesses(&self.right, self.planner.questions);
        plan.claims = self.claims.into_values().collect();
        (plan, self.unknown)
    }

    fn lose(&mut self, Loss { planned, place, orphan, waits }: Loss) {
        let is_approved =
            self.view.parameters.approval.as_ref().is_some_and(|set| set.covers(&orphan.labels));
        let Planned { change, node, why, .. } = planned;
        if let Some(held) = waits.filter(|_| !is_approved) {
            self.plan.counts.held += 1;
            return self.plan.changes.push(Planned { change, node, why, held: Some(held) });
        }
        if !is_approved && let Err(hold) = self.brake(&change, &orphan) {
            self.plan.counts.held += 1;
            if let Hold::Budget { until: Some(until) } = hold {
                self.plan.again(until);
            }
            if let (RouteChange::Replace { old, .. }, Some(place)) = (&change, place) {
                let destination = change.destination();
                let lack = format!(
                    "the route of {destination} stays at {}, held by --route-loss: {hold}",
                    target_of(old)
                );
                self.lack(destination, place, Lack::failed(lack));
            }
            // The cloud may prove that nothing is lost, if a target of a node shows whether it lies.
            self.unknown.extend(orphan.target.filter(|_| !self.right.is_empty()));
            let held = Some(Held::Brake(hold));
            return self.plan.changes.push(Planned { change, node, why, held });
        }
        let destination = change.destination();
        if let (Some(lack), Some(place)) = (self.push(change, node, why), place) {
            self.lack(destination, place, lack);
        }
    }

    /// Asks the brake whether the route may be removed, and charges the budget if the loss counts. The
    /// error is the reason why the change is held.
    fn brake(&mut self, change: &RouteChange, orphan: &Orphan) -> Result<(), Hold> {
        let destination = change.destination();
        let retries = |planner: &Planner| {
            planner.failures.get(destination).is_some_and(|last| !last.retry.is_due(self.now))
        };
        let is_proven = orphan.target.as_ref().is_some_and(|target| self.is_gone(target));
        if is_proven {
            // The proof counts as long as the route exists.
            self.unknown.extend(orphan.target.clone());
        }
        // Marked nodes and proven ends do not count for a limit, but a list without any nodes is
        // never believed. A limit of zero also stops the proofs.
        let proof_counts = is_proven
            && self.view.parameters.budget.limit.for_population(self.plan.counts.ours) > 0;
        let counts = self.planner.brake.breaker().is_open() || !orphan.was_marked && !proof_counts;
        if !counts || retries(self.planner) {
            return Ok(());
        }
        let (uid, population) = (destination.to_string(), self.plan.counts.ours);
        let budget = self.view.parameters.budget;
        let brake = &mut self.planner.brake;
        let is_new = !brake.window().after(self.now - budget.window).any(|(_, paid)| *paid == *uid);
        brake.request(self.now, &uid, population, budget)?;
        // An earlier loss was charged, so the next leader must know about this one before it is
        // made.
        brake.renew(self.now, &uid);
        self.planner.passed.entry(destination).or_insert(is_new);
        self.passed.insert(destination);
        Ok(())
    }

    /// Returns true if the cloud has proven, with answers that found targets of nodes, that the target is gone.
    fn is_gone(&self, target: &RouteTarget) -> bool {
        let finding = self.planner.cases.finding(target);
        matches!(finding, Finding::Gone { is_witnessed: true, .. })
    }
}
