//! The memory of the controller of routes, and the events that change it: pure.
//!
//! | module | what it holds |
//! |---|---|
//! | `event`, `effect` | its events, and their effects |
//! | `nodes` | new, changed and deleted nodes |
//! | `pass` | a pass over all nodes: the plan, and the calls that follow |
//! | `answers` | answers of the cloud; changes that are about to be sent |
//! | `conditions` | the condition `NetworkUnavailable` of a node |
//! | `listing` | the table as listed, with the changes since, and when to list it |
//! | `progress` | how far the routes of each node are |
//! | `explain` | the text of the page `/explain` about a node or a route |
//! | `recorded` | which node an event or effect is about |

mod answers;
mod conditions;
mod effect;
mod event;
mod explain;
mod listing;
mod nodes;
mod pass;
mod progress;
mod recorded;

use std::collections::{BTreeMap, BTreeSet};

use ccm_base::At;
use ccm_cloud::ClusterId;
use ccm_controller::machine;
use ccm_controller::repeats::Repeats;
use ccm_objects::Shared as Name;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    effect::{Blocked, Call, Effect, Page},
    event::{Applied, Event, Pass, Sending, Term, Written},
    explain::Asked,
};
use self::{listing::Listing, progress::Progress};
use super::plan::{Parameters, Planner, targets::Former};
use crate::networks::Config;

/// The parts of the settings that do not change, and the identity of the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fixed {
    /// This cluster.
    pub(crate) cluster: ClusterId,
    /// True if nodes get routes.
    pub(crate) has_routes: bool,
    /// True if this program gives nodes their pod CIDRs.
    pub(crate) gives_cidrs: bool,
    /// True for an observer, which changes nothing.
    pub(crate) is_observing: bool,
}

/// The memory of the controller of routes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    fixed: Fixed,
    /// The settings and the approval by which the last changes were decided. A change that was decided
    /// by others is not sent.
    decided_by: Option<Parameters>,
    /// How nodes get their pod CIDRs, if they get them from this program.
    blocks: Option<Config>,
    leads: bool,
    planner: Planner,
    listing: Listing,
    progress: Progress,
    /// The targets that nodes have had before.
    former: Former,
    /// The pod CIDRs of nodes that have changed since the last plan; `None` before the first one.
    changed: Option<BTreeSet<IpNet>>,
    is_asking: bool,
    is_looking_up: bool,
    /// True if the program ends: no change begins any more.
    #[serde(default)]
    is_ending: bool,
    /// The confirmed writes of conditions, by node.
    conditions: BTreeMap<Name, Repeats>,
    /// The confirmed changes of routes, by destination.
    changes: BTreeMap<IpNet, Repeats>,
}

impl machine::Machine for Machine {
    type Event = Event;
    type Effect = Effect;

    fn apply(&mut self, event: Event, now: At) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.take(event, now, &mut effects);
        effects
    }
}

impl Machine {
    /// Creates a machine that knows nothing yet.
    pub(crate) fn new(fixed: Fixed) -> Self {
        Self {
            fixed,
            decided_by: None,
            blocks: None,
            leads: false,
            planner: Planner::default(),
            listing: Listing::new(At::default()),
            progress: Progress::default(),
            former: Former::default(),
            changed: None,
            is_asking: false,
            is_looking_up: false,
            is_ending: false,
            conditions: BTreeMap::new(),
            changes: BTreeMap::new(),
        }
    }

    fn take(&mut self, event: Event, now: At, effects: &mut Vec<Effect>) {
        match event {
            Event::Term(term) => self.begin(*term, now),
            Event::Changed { before, after } => self.apply_change(before.as_ref(), &after, effects),
            Event::Gone { view, is_marked } => self.gone(&view, is_marked, effects),
            Event::Assigned(view) => self.record_change(&view),
            Event::Pass(pass) => self.pass(&pass, now, effects),
            Event::Listed { answer, pass } => self.listed(answer, &pass, now, effects),
            Event::Asked { answers, witnesses } => {
                self.is_asking = false;
                let lie = self.planner.record_answers(now, answers, &witnesses);
                effects.extend(lie.map(Effect::Lies));
                effects.push(Effect::Wake);
            }
            Event::LookedUp(answers) => {
                self.is_looking_up = false;
                let error = answers.iter().find_map(|(_, answer)| answer.as_ref().err());
                effects.extend(error.cloned().map(Effect::LookUpFailed));
                self.planner.claimed(now, answers);
                effects.push(Effect::Wake);
            }
            Event::Sending(sending) => self.sending(*sending, now, effects),
            Event::Applied(applied) => self.applied(*applied, now, effects),
            Event::Ended => self.ended(now, effects),
            Event::Condition { name, node, lack } => {
                self.write_condition(now, name, node, lack.as_deref(), effects);
            }
            Event::Written(written) => self.written(now, *written, effects),
            Event::LeftOver(nodes) => self.left_over(nodes, effects),
            Event::Ending => self.is_ending = true,
        }
    }

    /// Begins a term.
    fn begin(&mut self, term: Term, now: At) {
        let Term { begun, deleted, networks, blocks } = term;
        self.leads = true;
        self.planner = Planner::resume(now, deleted, networks);
        self.blocks = blocks;
        self.listing = Listing::new(now);
        self.progress = Progress::new(begun);
    }

    /// Decides by these settings and this approval from now on.
    fn decide_by(&mut self, parameters: &Parameters) {
        if self.decided_by.as_ref() != Some(parameters) {
            self.decided_by = Some(parameters.clone());
            self.planner.in_flight.decide_anew();
        }
    }

    /// Returns true if the table does not have a route to this destination, and route-ccm is not making one.
    fn has_no_route(&self, destination: IpNet) -> bool {
        self.listing.has_no_route(destination, &self.planner.in_flight)
    }

    /// Returns true if no change waits for its answer.
    pub(crate) fn is_idle(&self) -> bool {
        self.planner.in_flight.is_empty()
    }

    /// Returns how long the node that waits longest has lacked a route, and how many routes can be
    /// added, if the cloud says so.
    pub(crate) fn look(&self, now: At) -> (std::time::Duration, Option<u32>) {
        let room = self.listing.table.as_ref().and_then(|table| table.room);
        (self.progress.longest_wait(now), room)
    }
}

#[cfg(test)]
mod tests;
