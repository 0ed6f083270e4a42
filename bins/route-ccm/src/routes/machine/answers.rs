//! The cloud has answered; changes are about to be sent.

use std::{collections::HashMap, mem};

use ccm_base::At;
use ccm_cloud::{AppliedChange, CloudError, RouteChange, RouteTable, RouteTraits};
use ccm_controller::queue::Priority;
use ccm_controller::repeats::Content;
use ccm_objects::Shared as Name;

use super::{Applied, Basis, Call, Effect, Machine, Sending};
use crate::routes::plan::{
    Planned,
    again::Again,
    failures::{is_conflict, is_failure},
    wanted::{NodeView, Terms},
};

impl Machine {
    /// The table was listed, or not.
    pub(super) fn listed(
        &mut self,
        answer: Result<RouteTable, CloudError>,
        traits: &RouteTraits,
        now: At,
        effects: &mut Vec<Effect>,
    ) {
        let is_listed = answer.is_ok();
        effects.push(Effect::ListEnded(match &answer {
            Ok(RouteTable { routes, malformed, .. }) => {
                Ok((routes.len(), malformed.len(), malformed.first().cloned()))
            }
            Err(error) => Err(error.clone()),
        }));
        if self.listing.ended(now, answer, self.parameters.period) {
            effects.push(Effect::TableKnown);
        }
        if let (true, Some(table)) = (is_listed, &self.listing.table) {
            self.planner.listed(now, table);
            self.changes.retain(|_, repeats| !repeats.is_settled(now));
            let all = self.listing.destinations(self.planner.in_flight());
            let told = all.filter(|_| self.fixed.gives_cidrs);
            effects
                .extend(told.map(|(destinations, read)| Effect::RoutesAre { destinations, read }));
        }
        effects.push(self.repeated(now, traits).unwrap_or(Effect::Wake));
    }

    /// The call that repeats what was refused only because others have changed other routes, right
    /// after the list that shows it.
    fn repeated(&mut self, now: At, traits: &RouteTraits) -> Option<Effect> {
        if !traits.compares_version || self.listing.is_stale || !self.is_idle() {
            return None;
        }
        let base = self.listing.table.as_ref()?.version.clone();
        let mut refused = mem::take(&mut self.refused);
        refused.retain(|(planned, seen)| self.listing.seen(planned) == seen.as_slice());
        refused.truncate(traits.max_batch.max(1));
        let batch: Vec<Planned> = refused.into_iter().map(|(planned, _)| planned).collect();
        let by = self.sent_by.clone().filter(|_| !batch.is_empty())?;
        Some(self.sent(now, batch, base, by))
    }

    /// Sends the changes that are still due. Left out are those whose nodes, settings or approval are not the same any
    /// more: the next plan decides again.
    pub(super) fn sending(&mut self, sending: Sending, now: At, effects: &mut Vec<Effect>) {
        let Sending { batch, base, by, approval, nodes, traits } = sending;
        let current = Basis { parameters: self.parameters.clone(), approval };
        let named: HashMap<&Name, &NodeView> =
            nodes.iter().map(|view| (&view.node.name, view)).collect();
        let is_due = |planned: &Planned| {
            let node = planned.node.as_ref().map(|name| named.get(name));
            let suits = node.is_none_or(|node| node.is_some_and(|view| planned.suits(view)));
            let is_approved = planned.old().is_none() || current.approval == by.approval;
            suits && is_approved && current.parameters == by.parameters
        };
        let widths = self.widths();
        let (due, over): (Vec<_>, Vec<_>) = match &self.listing.table {
            Some(table) => {
                let terms = Terms {
                    cluster_cidrs: &current.parameters.cluster_cidrs,
                    traits: &traits,
                    widths: &widths,
                    approval: current.approval.as_ref(),
                    table,
                    former: &self.former,
                };
                let again = Again::new(&nodes, &terms);
                let may_go = |one: &Planned| one.old().is_none_or(|old| again.may_go(old));
                batch.into_iter().partition(|planned| is_due(planned) && may_go(planned))
            }
            None => (Vec::new(), batch),
        };
        for planned in over {
            self.planner.withdrawn(&planned);
            effects.push(Effect::Withdrawn(planned));
        }
        match due.is_empty() {
            true => self.ended(now, effects),
            false => {
                self.sent_by = Some(by);
                effects.push(Effect::Call(Call::Send { batch: due, base }));
            }
        }
    }

    /// A call that changes routes has ended. If others have changed the table, nodes wait for the list: it is not left
    /// to the next pass.
    pub(super) fn ended(&mut self, now: At, effects: &mut Vec<Effect>) {
        effects.push(match self.listing.begin(now) {
            true => Effect::Call(Call::List),
            false => Effect::Wake,
        });
    }

    /// The cloud has answered about one change. A node that has all its routes gets its condition at
    /// once.
    pub(super) fn applied(&mut self, applied: Applied, now: At, effects: &mut Vec<Effect>) {
        let Applied { planned, answer, node, replaces } = applied;
        let destination = planned.change.destination();
        let node = node.filter(|view| planned.concerns(view, answer.is_err()));
        let is_complete = self.learn(now, &planned, &answer, node.as_ref());
        if self.fixed.gives_cidrs && answer.is_ok() && self.has_no_route(destination) {
            effects.push(Effect::RouteGone(destination));
        }
        let node = node.map(|view| view.node);
        let told = || (Box::new(planned.clone()), node.clone());
        let has_failed = answer.as_ref().is_err_and(is_failure);
        let is_done = answer.is_ok();
        let answer = answer.map(|done| done.route.and_then(|route| route.defect));
        let (change, about) = told();
        effects.push(Effect::Answered { planned: change, answer, node: about, replaces });
        if is_done {
            let write = (planned.kind(), Content::of(&planned.words()));
            let repeats = self.changes.entry(destination).or_default();
            if let Some(repeated) = repeats.made(now, write.0, write.1) {
                let until = now + repeated.wait;
                self.planner.postpone(destination, until, &repeated.to_string());
                let (planned, node) = told();
                effects.push(Effect::RouteRepeated { planned, node, repeated });
            }
        }
        let Some(node) = node else { return };
        if is_complete {
            self.completed(&node, effects);
        }
        if is_complete || has_failed {
            effects.push(Effect::Condition(Name::clone(&node.name), Priority::Urgent));
        }
    }

    /// Learns from the answer to a change. Returns true if its node has all its routes now. `view` is that node as it
    /// is now, if the answer [concerns](Planned::concerns) it.
    fn learn(
        &mut self,
        now: At,
        planned: &Planned,
        answer: &Result<AppliedChange, CloudError>,
        view: Option<&NodeView>,
    ) -> bool {
        let destination = planned.change.destination();
        let must_look = self.planner.applied(now, planned, answer);
        let is_outdated = planned.node.is_some() && view.is_none();
        if is_outdated {
            // The next attempt is another change.
            self.planner.node_changed([destination].into_iter());
        }
        let is_refused = answer.as_ref().is_err_and(is_conflict);
        // A route that needs no budget of the brake is repeated.
        if is_refused && matches!(planned.change, RouteChange::Create(_)) {
            let seen = self.listing.seen(planned).to_vec();
            self.refused.push((planned.clone(), seen));
        }
        self.listing.answered(now, &planned.change, answer, must_look);
        view.is_some_and(|view| self.progress.answered(destination, answer, view))
    }
}
