//! Which nodes are looked up next.

use std::sync::Arc;

use super::{At, Decider, Decision, NodeView, Policy, record::Record};

/// How many nodes one pass looks up at most: two batches of 500.
pub const LOOKUPS_PER_PASS: usize = 1000;

/// So many of them are for nodes without a case, however many cases there are.
const FOR_OTHERS: usize = LOOKUPS_PER_PASS / 2;

/// The monitor periods between two lists while the breaker is open, and between two
/// looks at a node whose deletion breaker or budget holds, or that can never be judged.
const HELD_PERIODS: u32 = 6;

/// When to look again at a node whose deletion is held: all of them together, because
/// each look costs a list of the fleet.
pub(super) fn held_until(now: At, policy: &Policy) -> At {
    now.next_multiple_of(policy.monitor_period * HELD_PERIODS)
}

/// What to ask the cloud.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agenda {
    /// The nodes to look up, the most urgent first; at most [`LOOKUPS_PER_PASS`].
    pub look_up: Vec<Arc<str>>,
    /// Whether to list the fleet. Its first page must not be asked before this agenda.
    pub list: bool,
    /// When the next agenda may not be empty if no node changes and nothing is asked
    /// now. After a answers, ask for a new agenda to know.
    pub next: Option<At>,
    /// Cases that ended without a answers: the node turned Ready, vanished, or left the
    /// policy's reach. For the log; nothing is to be done.
    pub ended: Vec<Decision>,
}

impl Agenda {
    /// Whether there is nothing to ask.
    pub fn is_empty(&self) -> bool {
        self.look_up.is_empty() && !self.list
    }
}

impl Decider {
    /// Says what to ask the cloud now.
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
        // Those who are due soon come along: one batch instead of two.
        let horizon = now + policy.monitor_period / 2;
        let later = waiting.iter().map(due).filter(|at| *at > horizon);
        let next = later.chain(relist.filter(|at| *at > now)).min();
        waiting.retain(|node| due(node) <= horizon);
        let waiting = share(waiting);
        let needs_list = waiting.iter().any(|(view, record)| needs_list(now, view, record, policy));
        Agenda {
            look_up: waiting.iter().map(|(view, _)| Arc::clone(&view.name)).collect(),
            list: needs_list || relist.is_some_and(|at| at <= now),
            next,
            ended,
        }
    }

    /// When an open breaker wants a new list.
    fn relist(&self, policy: &Policy) -> Option<At> {
        let pause = policy.monitor_period * HELD_PERIODS;
        self.breaker().is_open().then(|| self.listed.unwrap_or_default() + pause)
    }
}

/// When the node is to be looked at. One that no answer can bring before the policy is
/// looked at seldom: only its taint depends on it, and a search by name costs the cloud
/// more than the look at an ID.
fn due(view: &NodeView, record: &Record, policy: &Policy) -> At {
    match record.looked {
        Some(looked) if !view.can_be_judged(policy) => {
            record.look_again.max(held_until(looked, policy))
        }
        _ => record.look_again,
    }
}

/// Who finds a place: open cases first, those due longest ago first, then nodes never
/// looked at, then those looked at longest ago. Neither kind crowds the other out.
fn share<'a>(waiting: Vec<(&'a NodeView, &'a Record)>) -> Vec<(&'a NodeView, &'a Record)> {
    let (mut cases, mut others): (Vec<_>, Vec<_>) =
        waiting.into_iter().partition(|(_, record)| record.case.is_some());
    cases.sort_by(|a, b| (a.1.look_again, &a.0.name).cmp(&(b.1.look_again, &b.0.name)));
    others.sort_by(|a, b| (a.1.looked, &a.0.name).cmp(&(b.1.looked, &b.0.name)));
    cases.truncate(LOOKUPS_PER_PASS - others.len().min(FOR_OTHERS));
    others.truncate(LOOKUPS_PER_PASS - cases.len());
    cases.append(&mut others);
    cases
}

/// Whether one more answer "gone" would bring it before the list.
fn needs_list(now: At, view: &NodeView, record: &Record, policy: &Policy) -> bool {
    let confirmed = |opened: At| opened + policy.confirmation_period <= now;
    !view.protected
        && view.can_be_judged(policy)
        && record.case.as_ref().is_some_and(|case| confirmed(case.opened()))
}
