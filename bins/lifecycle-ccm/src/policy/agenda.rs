//! Chooses the nodes to look up next.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{At, Decider, Decision, NodeView, Policy, Replaced, record::Record};

/// The maximum number of lookups in one pass: two batches of 500.
pub const LOOKUPS_PER_PASS: usize = 1000;

/// The number of Ready nodes that are looked up when a cloud has no list.
pub const WITNESSES: usize = 60;

/// The policy's knowledge of the cloud besides its answers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Abilities {
    /// The number of nodes that it answers in one lookup.
    pub most_lookups: usize,
    /// True if it can list the fleet.
    pub lists: bool,
    /// True if lifecycle-ccm lists the fleet once even if no node is suspected. An observer should show
    /// the cloud before the first instance is gone.
    pub lists_once: bool,
    /// A random number, different for each agenda: it selects the witnesses.
    pub seed: u64,
}

impl Default for Abilities {
    fn default() -> Self {
        Self { most_lookups: LOOKUPS_PER_PASS, lists: true, lists_once: false, seed: 0 }
    }
}

/// The number of monitor periods between two lists while the breaker is open, and between two
/// lookups of a node whose deletion is held by breaker or budget, or that may not be deleted.
const HELD_PERIODS: u32 = 6;

/// Returns when to look up nodes again whose deletion is held: all at the same time, because each
/// round costs a list of the fleet.
pub(super) fn held_until(now: At, policy: &Policy) -> At {
    now.next_multiple_of(policy.monitor_period * HELD_PERIODS)
}

/// The next requests to the cloud.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agenda {
    /// The nodes to look up, the most urgent first; at most [`LOOKUPS_PER_PASS`].
    pub look_up: Vec<Arc<str>>,
    /// The nodes among them whose kubelet's Lease is read after an answer "gone".
    pub heartbeats: BTreeSet<Arc<str>>,
    /// Ready nodes to look up: the nodes that the last list lacks, or, if the cloud has no list, a
    /// random sample.
    pub witnesses: Vec<Arc<str>>,
    /// True if the fleet is listed or, if the cloud has no list, the witnesses are asked. The first
    /// page must not be requested before this agenda exists.
    pub list: bool,
    /// When the next agenda may be non-empty if no node changes and nothing is asked now.
    /// After an answer, request a new agenda.
    pub next: Option<At>,
    /// Cases that ended without an answer: the node turned Ready, was deleted, or left the
    /// policy's reach. For the log only.
    pub ended: Vec<Decision>,
}

impl Agenda {
    /// Returns true if there is no request.
    pub fn is_empty(&self) -> bool {
        self.look_up.is_empty() && self.witnesses.is_empty() && !self.list
    }
}

impl Decider {
    /// Returns the next requests to the cloud.
    pub fn agenda(&mut self, now: At, views: &[NodeView], policy: &Policy) -> Agenda {
        let ended = self.track(views);
        if self.period != policy.monitor_period {
            self.period = policy.monitor_period;
            self.records.values_mut().for_each(|record| record.look_again = At::default());
        }
        let mut waiting: Vec<(&NodeView, &Record)> = views
            .iter()
            .filter(|view| view.is_watched())
            .filter_map(|view| Some((view, self.records.get(&view.name)?)))
            .filter(|(_, record)| !record.deleted)
            .collect();
        let relist = self.relist(policy);
        let due = |(view, record): &(&NodeView, &Record)| due(view, record, policy);
        let is_due = |at: Option<At>| at.is_some_and(|at| at <= now);
        // Nodes that are due soon are included: one batch instead of two.
        let horizon = match waiting.iter().any(|node| due(node) <= now) {
            true => now + policy.monitor_period / 2,
            false => now,
        };
        let later = waiting.iter().map(due).filter(|at| *at > horizon);
        let next = later.chain(relist.filter(|at| *at > now)).min();
        waiting.retain(|node| due(node) <= horizon);
        let waiting = select(waiting, self.abilities.most_lookups.clamp(1, LOOKUPS_PER_PASS));
        let needs = waiting.iter().map(|(view, record)| self.needs(now, view, record, policy));
        let needs: Vec<Needs> = needs.collect();
        let list = needs.iter().any(|needs| needs.list) || is_due(relist);
        let beats = waiting.iter().zip(&needs).filter(|(_, needs)| needs.heartbeat);
        let heartbeats = beats.map(|((view, _), _)| Arc::clone(&view.name)).collect();
        let look_up = waiting.iter().map(|(view, _)| Arc::clone(&view.name)).collect();
        let witnesses = self.witnesses(views, list, policy);
        Agenda { look_up, heartbeats, witnesses, list, next, ended }
    }

    /// Returns the memory of this node, if lifecycle-ccm watches it, and the time of its next lookup.
    pub(crate) fn watched(&self, view: &NodeView, policy: &Policy) -> Option<(&Record, At)> {
        let record = self.records.get(&view.name).filter(|record| record.uid == view.uid)?;
        Some((record, due(view, record, policy)))
    }

    /// Returns true if the cloud can list its instances.
    pub(crate) fn lists(&self) -> bool {
        self.abilities.lists
    }

    /// Returns when an open breaker needs a new list, or an observer its first one.
    fn relist(&self, policy: &Policy) -> Option<At> {
        let pause = policy.monitor_period * HELD_PERIODS;
        let due = self.listed.map_or(At::default(), |listed| listed + pause);
        let first = self.abilities.lists_once && !self.has_seen;
        (first || self.breaker().is_open()).then_some(due)
    }

    /// Returns the Ready nodes to look up: only a few until an answer shows that the provider
    /// cannot answer for one of them, because the cloud may show another project.
    fn witnesses(&self, views: &[NodeView], list: bool, policy: &Policy) -> Vec<Arc<str>> {
        let Abilities { most_lookups, lists, seed, .. } = self.abilities;
        let witnesses = views.iter().filter(|view| view.is_well() && view.has_id);
        let unlisted = self.breaker().is_open();
        let wanted = |view: &&NodeView| match lists {
            true => {
                unlisted && self.unlisted.contains(&view.name) && self.is_expected(view, policy)
            }
            false => list && self.is_known(view, policy),
        };
        // By their positions, not by their names, so that the same nodes under other names are
        // selected in the same way.
        let places = (0..).map(|place: u64| mixed(seed.wrapping_add(place)));
        let mut witnesses: Vec<_> = places.zip(witnesses.filter(wanted)).collect();
        witnesses.sort_by_key(|(place, _)| *place);
        let is_sample = !lists || self.unjudged.is_empty();
        witnesses.truncate(if is_sample { WITNESSES } else { most_lookups });
        witnesses.into_iter().map(|(_, view)| Arc::clone(&view.name)).collect()
    }

    /// Returns the proof that is still missing before the next answer "gone" about this node
    /// counts.
    fn needs(&self, now: At, view: &NodeView, record: &Record, policy: &Policy) -> Needs {
        let is_reported = view.ready && policy.replaced == Replaced::Report;
        let decides = !view.protected && view.may_be_deleted(policy) && !is_reported;
        let Some(case) = record.case.as_ref().filter(|_| decides) else {
            return Needs { list: false, heartbeat: decides && !view.ready };
        };
        let (periods, _) = case.needs(self.abilities.lists);
        let list = case.opened() + policy.confirmation_period * periods <= now;
        Needs { list, heartbeat: !view.ready && (list || case.heartbeat.is_none()) }
    }
}

/// Returns a number that looks random, different for each input: the last step of the generator
/// SplitMix64.
const fn mixed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The needs besides an answer about the node itself.
struct Needs {
    list: bool,
    heartbeat: bool,
}

/// Returns when to look up the node. A node that lifecycle-ccm must not delete, even if its instance
/// is gone, is looked up rarely: only its shutdown taint depends on it, and a search by name costs the cloud more than
/// a lookup by ID. A Ready node is also looked up rarely.
fn due(view: &NodeView, record: &Record, policy: &Policy) -> At {
    match record.looked {
        Some(looked) if view.ready || !view.may_be_deleted(policy) => {
            record.look_again.max(held_until(looked, policy))
        }
        _ => record.look_again,
    }
}

/// Selects the nodes: open cases first, the longest overdue first, then nodes never looked up,
/// then the least recently looked up. Half of the `most` places are reserved for each group.
fn select<'a>(
    waiting: Vec<(&'a NodeView, &'a Record)>,
    most: usize,
) -> Vec<(&'a NodeView, &'a Record)> {
    let (mut cases, mut others): (Vec<_>, Vec<_>) =
        waiting.into_iter().partition(|(_, record)| record.case.is_some());
    cases.sort_by(|a, b| (a.1.look_again, &a.0.name).cmp(&(b.1.look_again, &b.0.name)));
    others.sort_by(|a, b| (a.1.looked, &a.0.name).cmp(&(b.1.looked, &b.0.name)));
    cases.truncate(most - others.len().min(most / 2));
    others.truncate(most - cases.len());
    cases.append(&mut others);
    cases
}
