//! The cloud has answered, or changes are about to be sent.

use ccm_base::At;
use ccm_cloud::{AppliedChange, CloudError, RouteTable};
use ccm_controller::queue::Priority;
use ccm_controller::repeats::Content;
use ccm_objects::Shared as Name;

use super::{Applied, Call, Effect, Machine, Pass, Sending};
use crate::{
    node_ipam::machine::Event as Ipam,
    routes::plan::{Planned, failures::is_failure, wanted::NodeView},
};

impl Machine {
    /// Handles a list of the table, or its error. If others have changed it, the next plan follows
    /// at once, unless the program ends: if they write all the time, a later call is refused again.
    pub(super) fn listed(
        &mut self,
        answer: Result<RouteTable, CloudError>,
        pass: &Pass,
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
        if self.listing.ended(now, answer, pass.parameters.period) {
            effects.push(Effect::TableKnown);
        }
        if let (true, Some(table)) = (is_listed, &self.listing.table) {
            self.planner.listed(now, table);
            self.changes.retain(|_, repeats| !repeats.is_settled(now));
            let all = self.listing.destinations(&self.planner.in_flight);
            let told = all.filter(|_| self.fixed.gives_cidrs);
            let tell = |(destinations, read)| Ipam::RoutesAre { destinations, read };
            effects.extend(told.map(tell).map(Effect::Ipam));
            if self.listing.is_after_conflict() && self.is_idle() && !self.is_ending {
                self.pass(pass, now, effects);
                // The wake makes the next pass, which says when another one is due.
                effects.retain(|effect| !matches!(effect, Effect::Due(_)));
            }
        }
        effects.push(Effect::Wake);
    }

    /// Sends the changes that are still due, unless the program ends. The next plan decides again about a change whose node is another one now, and
    /// about a change that other settings or another approval have decided.
    pub(super) fn sending(&mut self, sending: Sending, now: At, effects: &mut Vec<Effect>) {
        let Sending { batch, base, pass } = sending;
        self.decide_by(&pass.parameters);
        let lost = self.lost_again(&batch, &pass, now);
        let is_due = |planned: &Planned| {
            let is_current =
                !self.is_ending && self.planner.in_flight.is_current(planned.change.destination());
            let suits = match planned.old() {
                Some(_) => lost.contains(&planned.change),
                None => pass.nodes.iter().any(|view| planned.suits(view)),
            };
            is_current && suits
        };
        let (due, over): (Vec<_>, Vec<_>) = batch.into_iter().partition(is_due);
        for planned in over {
            self.planner.withdrawn(&planned);
            effects.push(Effect::Withdrawn(planned));
        }
        match due.is_empty() {
            true => self.ended(now, effects),
            false => effects.push(Effect::Call(Call::Send { batch: due, base })),
        }
    }

    /// Records that a call that changes routes has ended. If others have changed the table, nodes
    /// wait for the list: it is not left to the next pass.
    pub(super) fn ended(&mut self, now: At, effects: &mut Vec<Effect>) {
        effects.push(match !self.is_ending && self.listing.begin(now) {
            true => Effect::Call(Call::List),
            false => Effect::Wake,
        });
    }

    /// Handles the cloud's answer about one change. A node that has all its routes gets its
    /// condition at once.
    pub(super) fn applied(&mut self, applied: Applied, now: At, effects: &mut Vec<Effect>) {
        let Applied { planned, answer, node, replaces } = applied;
        let destination = planned.change.destination();
        let node = node.filter(|view| planned.concerns(view, answer.is_err()));
        let is_complete = self.learn(now, &planned, &answer, node.as_ref());
        if self.fixed.gives_cidrs && answer.is_ok() && self.has_no_route(destination) {
            effects.push(Effect::Ipam(Ipam::RouteGone(destination)));
        }
        let node = node.map(|view| view.node);
        let told = || (Box::new(planned.clone()), node.clone());
        let has_failed = answer.as_ref().is_err_and(is_failure);
        let is_done = answer.is_ok();
        let answer = answer.map(|done| done.route.and_then(|route| route.defect));
        let (change, about) = told();
        effects.push(Effect::Answered { planned: change, answer, node: about, replaces });
        if is_done {
            let write = (planned.kind(), Content::digest(&planned.words()));
            let repeats = self.changes.entry(destination).or_default();
            if let Some(repeated) = repeats.made(now, write.0, write.1) {
                let until = now + repeated.wait;
                self.planner.failures.postpone(destination, until, &repeated.to_string());
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
            // The next attempt is a different change.
            self.planner.node_changed([destination].into_iter());
        }
        self.listing.record_answer(now, &planned.change, answer, must_look);
        view.is_some_and(|view| self.progress.record_answer(destination, answer, view))
    }
}
