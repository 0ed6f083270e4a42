//! Which nodes are looked up next.

use std::sync::Arc;

use super::{At, Decider, Decision, NodeView, Policy, record::Record};

/// The maximum number of lookups in one pass: two batches of 500.
pub const LOOKUPS_PER_PASS: usize = 1000;

/// The number of monitor periods between two lists while the breaker is open, and between two
/// lookups of a node whose deletion is held by breaker or budget, or that may not be deleted.
const HELD_PERIODS: u32 = 6;

/// When to look up nodes again whose deletion is held: all at the same time, because each
/// round costs a list of the fleet.
pub(super) fn held_until(now: At, policy: &Policy) -> At {
    now.next_multiple_of(policy.monitor_period * HELD_PERIODS)
}

/// The next requests to the cloud.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agenda {
    /// The nodes to look up, the most urgent first; at most [`LOOKUPS_PER_PASS`].
    pub look_up: Vec<Arc<str>>,
    /// Whether to list the fleet. The first page must not be requested before this agenda
    /// exists.
    pub list: bool,
    /// When the next agenda may be non-empty if no node changes and nothing is asked now.
    /// After an answer, request a new agenda.
    pub next: Option<At>,
    /// Cases that ended without an answer: the node turned Ready, was deleted, or left the
    /// policy's reach. For the log only.
    pub ended: Vec<Decision>,
}

impl Agenda {
    /// Whether there is no request.
    pub fn is_empty(&self) -> bool {
        self.look_up.is_empty() && !self.list
    }
}

impl Decider {
    /// The next requests to the cloud.
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
        let none_due = waiting.iter().all(|node| due(node) > now);
        if none_due {
            let list = relist.is_some_and(|at| at <= now);
            let looks = waiting.iter().map(due);
            let next = looks.chain(relist.filter(|at| *at > now)).min();
            return Agenda { look_up: Vec::new(), list, next, ended };
        }
        // Nodes that are due soon are included: one batch instead of two.
        let horizon = now + policy.monitor_period / 2;
        let later = waiting.iter().map(due).filter(|at| *at > horizon);
        let next = later.chain(relist.filter(|at| *at > now)).min();
        waiting.retain(|node| due(node) <= horizon);
        let most = self.most_lookups.map_or(LOOKUPS_PER_PASS, |most| most.min(LOOKUPS_PER_PASS));
        let waiting = select(waiting, most.max(1));
        let needs_list = waiting.iter().any(|(view, record)| needs_list(now, view, record, policy));
        Agenda {
            look_up: waiting.iter().map(|(view, _)| Arc::clone(&view.name)).collect(),
            list: needs_list || relist.is_some_and(|at| at <= now),
            next,
            ended,
        }
    }

    /// When an open breaker needs a new list.
    fn relist(&self, policy: &Policy) -> Option<At> {
        let pause = policy.monitor_period * HELD_PERIODS;
        self.breaker().is_open().then(|| self.listed.unwrap_or_default() + pause)
    }
}

/// When to look up the node. A node that may not be deleted whatever the answer is looked up
/// rarely: only its shutdown taint depends on it, and a search by name costs the cloud more
/// than a lookup by ID.
fn due(view: &NodeView, record: &Record, policy: &Policy) -> At {
    match record.looked {
        Some(looked) if !view.may_be_deleted(policy) => {
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

/// Whether one more answer "gone" would make it need the list.
fn needs_list(now: At, view: &NodeView, record: &Record, policy: &Policy) -> bool {
    let confirmed = |opened: At| opened + policy.confirmation_period <= now;
    !view.protected
        && view.may_be_deleted(policy)
        && record.case.as_ref().is_some_and(|case| confirmed(case.opened()))
}
