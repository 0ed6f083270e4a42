//! The memory of node IPAM, and the events that change it: pure.
//!
//! | module | what it holds |
//! |---|---|
//! | `event`, `effect` | its events, and their effects |
//! | `seen` | the beginning of a term; nodes that are new, have changed or are gone |
//! | `turn` | a node has its turn, or the cloud has answered about its instance |
//! | `written` | the API server has answered a write |
//! | `explain` | the text of the page `/explain` about a node |
//! | `core` | the knowledge of a leader: the allocator, and the nodes that wait |
//! | `waiting` | the nodes that do not get pod CIDRs now |
//! | `recorded` | which node an event or effect is about |
//! | this file | the news about routes; when blocks become free; the content of pages and metrics |

mod core;
mod effect;
mod event;
mod explain;
mod recorded;
mod seen;
mod turn;
mod waiting;
mod written;

use std::collections::BTreeMap;

use ccm_base::At;
use ccm_controller::machine;
use ccm_objects::Shared as Name;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use self::core::Core;
pub(crate) use self::{
    core::needs_cidrs,
    effect::{Effect, WriteEnd},
    event::{Begin, Event, Found, Written},
};
use super::ipam::{Config, HoldUntil, Usage};

/// The number of deleted nodes that the next leader learns about, because a text with the Lease is
/// short.
const LEFT: usize = 200;

/// The parts of the settings that do not change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fixed {
    /// The allocator, and the blocks that it assigns.
    pub(crate) config: Config,
    /// When the blocks of a node that is gone become free.
    pub(crate) hold: HoldUntil,
    /// True for an observer, which writes nothing.
    pub(crate) is_observing: bool,
}

/// The memory of node IPAM.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    fixed: Fixed,
    /// True from the beginning of the term on.
    leads: bool,
    /// `None` before the nodes were read in the term.
    core: Option<Core>,
    /// The first table of the routes, if it was read before the nodes.
    table: Option<(Vec<IpNet>, At)>,
}

impl machine::Machine for Machine {
    type Event = Event;
    type Effect = Effect;

    fn apply(&mut self, event: Event, now: At) -> Vec<Effect> {
        let before = self.core.as_ref().map(Core::is_stopped);
        let mut effects = Vec::new();
        self.take(event, now, &mut effects);
        // Waiting nodes are tried again if a block is free, and all of them when a stop begins or
        // ends.
        let mut turned = Vec::new();
        if let (Some(core), Some(was_stopped)) = (&self.core, before)
            && core.is_stopped() != was_stopped
        {
            turned.push(Effect::Stops(core.is_stopped()));
            self.runs(!core.is_stopped(), &mut turned);
            core.wake_all(&mut turned);
        }
        if let Some(core) = &mut self.core {
            core.wake(&mut turned);
        }
        turned.append(&mut effects);
        turned
    }
}

impl Machine {
    /// Creates a machine that knows nothing yet.
    pub(crate) const fn new(fixed: Fixed) -> Self {
        Self { fixed, leads: false, core: None, table: None }
    }

    fn take(&mut self, event: Event, now: At, effects: &mut Vec<Effect>) {
        match event {
            Event::TermBegins => {
                self.leads = true;
                self.runs(true, effects);
            }
            Event::Begin(begin) => self.begin(begin, now, effects),
            Event::Changed { before, after } => {
                self.look_at(before.as_deref(), &after, now, effects);
            }
            Event::Gone(node) => self.gone(&node, now, effects),
            Event::Turn { name, node } => self.turn(name, node, now, effects),
            Event::Found(found) => self.found(*found, now, effects),
            Event::NotOurs(node) => self.drop_foreign(&node, now, effects),
            Event::Written(written) => self.written(*written, now, effects),
            Event::RoutesAre { destinations, read } => self.routes_are(destinations, read, effects),
            Event::RouteGone(destination) => {
                if let Some(core) = &mut self.core {
                    core.allocator.route_gone(destination);
                }
                effects.push(Effect::WakeRelease);
            }
            Event::Time => self.release(now, effects),
            Event::Ends => self.runs(false, effects),
        }
    }

    /// Shows if the controller runs. An observer's does not.
    fn runs(&self, does: bool, effects: &mut Vec<Effect>) {
        if self.leads && !self.fixed.is_observing {
            effects.push(Effect::Runs(does));
        }
    }

    /// Learns the table of the routes.
    fn routes_are(&mut self, destinations: Vec<IpNet>, read: At, effects: &mut Vec<Effect>) {
        match &mut self.core {
            Some(core) => {
                let is_first = !core.allocator.knows_routes();
                core.allocator.routes_are(destinations, read);
                if is_first {
                    core.wake_all(effects);
                }
            }
            None => self.table = Some((destinations, read)),
        }
        effects.push(Effect::WakeRelease);
    }

    /// Frees what is due.
    fn release(&mut self, now: At, effects: &mut Vec<Effect>) {
        let Some(core) = &mut self.core else { return };
        core.allocator.expire(now);
        if !self.fixed.is_observing {
            effects.push(Effect::Leave(core.allocator.held(LEFT)));
        }
        effects.extend(core.allocator.next_release().map(Effect::Due));
    }

    /// Returns the reason why the node does not have pod CIDRs, if node IPAM does not assign any
    /// now.
    pub(crate) fn lack(&self, name: &str) -> Option<String> {
        self.core.as_ref()?.waiting.why(name)
    }

    /// Returns these reasons for all nodes.
    pub(crate) fn lacks(&self) -> BTreeMap<Name, String> {
        let reasons = self.core.iter().flat_map(|core| core.waiting.reasons());
        reasons.map(|(name, why)| (Name::clone(name), why.to_owned())).collect()
    }

    /// Returns the networks whose routes must end before nodes get them.
    pub(crate) fn awaited(&self) -> Vec<IpNet> {
        self.core.iter().flat_map(|core| core.allocator.waiting_for_routes()).collect()
    }

    /// Returns how far the nodes are, in words; an error if some wait.
    pub(crate) fn verdict(&self) -> Result<&'static str, String> {
        let Some(core) = &self.core else {
            return Ok(match self.leads {
                true => "the nodes are being read",
                false => "not assigned here: this replica does not lead",
            });
        };
        if let Some(rival) = core.allocator.rival() {
            return Err(rival.to_string());
        }
        let count = core.waiting.len();
        match core.waiting.reasons().next() {
            Some((name, why)) => {
                Err(format!("{count} nodes wait for pod CIDRs, first {name}: {why}"))
            }
            None if count > 0 => {
                Err(format!("{count} nodes wait for pod CIDRs until the cloud's routes are known"))
            }
            None => Ok("every node gets its pod CIDRs"),
        }
    }

    /// Returns how full each cluster CIDR is.
    pub(crate) fn usage(&self) -> Vec<Usage> {
        self.core.iter().flat_map(|core| core.allocator.usage()).collect()
    }

    /// Returns how many nodes wait, and how many are gone and hold their blocks.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let counts = |core: &Core| (core.waiting.len(), core.allocator.held_nodes());
        self.core.as_ref().map(counts).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
