//! The node state that node-ccm remembers in addition to the API server: the sync state and
//! the cloud's last answer.
//!
//! None of it is needed for correctness: a new leader begins with an empty ledger.

use std::{collections::HashMap, sync::Arc, time::Duration};

use ccm_cloud::LookupResult;
use ccm_controller::{
    corrections::{Contested, Corrections},
    turns::Turns,
};
use ccm_objects::Node;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::metrics::{NodeMetrics, State};

/// How long an answer of the cloud is reused for the same node, for instance after a conflict.
const FRESH: Duration = Duration::from_secs(30);

/// How long corrections step aside for a new node, so that they do not compete with it for the
/// API server: the batch window and a fast lookup, and again its writes.
const NEW_NODE: Duration = Duration::from_millis(200);

/// The remembered state of all nodes. Clones share it.
#[derive(Clone)]
pub(crate) struct Ledger {
    shared: Arc<Shared>,
}

struct Shared {
    nodes: Mutex<HashMap<Arc<str>, Entry>>,
    /// The turns of initialised nodes to be written.
    turns: Mutex<Turns<Arc<str>>>,
    metrics: NodeMetrics,
}

#[derive(Default)]
struct Entry {
    state: State,
    /// The next sync of this node asks the cloud, even if the inventory has an answer.
    ask: bool,
    answer: Option<Kept>,
    conflicts: u32,
    corrections: Corrections,
    /// Consecutive lookups that the cloud did not answer because they had too many nodes.
    unanswered: u32,
}

struct Kept {
    node: Arc<Node>,
    answer: LookupResult,
    at: Instant,
}

impl Ledger {
    /// `corrections`: writes per second to initialised nodes.
    pub(crate) fn new(metrics: NodeMetrics, corrections: Option<f64>) -> Self {
        let turns = Mutex::new(Turns::new(corrections));
        Self { shared: Arc::new(Shared { nodes: Mutex::default(), turns, metrics }) }
    }

    fn with_turns<R>(&self, change: impl FnOnce(&mut Turns<Arc<str>>) -> R) -> R {
        let mut turns = self.shared.turns.lock();
        let result = change(&mut turns);
        self.shared.metrics.corrections_wait(turns.waiting());
        result
    }

    /// Uses the turn of an initialised node for this many writes.
    ///
    /// # Errors
    ///
    /// The time until its turn.
    pub(crate) fn take_turn(&self, name: &Arc<str>, writes: usize) -> Result<(), Duration> {
        self.with_turns(|turns| turns.take(name, writes, Instant::now()))
    }

    /// A new node has arrived or is about to be written: writes to initialised nodes step aside
    /// for a moment.
    pub(crate) fn new_node(&self) {
        self.with_turns(|turns| turns.step_aside(Instant::now() + NEW_NODE));
    }

    /// Changes the rate of writes to initialised nodes. Returns the nodes that wait for their
    /// turn: they have to take a new one.
    pub(crate) fn set_correction_rate(&self, per_second: Option<f64>) -> Vec<Arc<str>> {
        self.with_turns(|turns| turns.configure(per_second))
    }

    fn with<R>(&self, name: &Arc<str>, change: impl FnOnce(&mut Entry) -> R) -> R {
        let mut nodes = self.shared.nodes.lock();
        let entry = nodes.entry(Arc::clone(name)).or_insert_with(|| {
            self.shared.metrics.count(State::default(), 1);
            Entry::default()
        });
        change(entry)
    }

    /// Records the node's state.
    pub(crate) fn set_state(&self, name: &Arc<str>, state: State) {
        let old = self.with(name, |entry| std::mem::replace(&mut entry.state, state));
        self.shared.metrics.count(old, -1);
        self.shared.metrics.count(state, 1);
    }

    /// The node's state, if it is known.
    pub(crate) fn state(&self, name: &str) -> Option<State> {
        self.shared.nodes.lock().get(name).map(|entry| entry.state)
    }

    /// Forgets a deleted node.
    pub(crate) fn forget(&self, name: &Arc<str>) {
        self.with_turns(|turns| turns.forget(name));
        if let Some(entry) = self.shared.nodes.lock().remove(&**name) {
            self.shared.metrics.count(entry.state, -1);
        }
    }

    /// Forgets nodes that were recorded when they were gone already.
    pub(crate) fn retain(&self, exists: impl Fn(&str) -> bool) {
        let gone = |name: &&Arc<str>| !exists(name);
        let gone: Vec<_> = self.shared.nodes.lock().keys().filter(gone).cloned().collect();
        for name in &gone {
            self.forget(name);
        }
    }

    /// Whether these fields of the node may be corrected now; the error is one that another
    /// writer sets as well.
    pub(crate) fn may_correct(
        &self,
        name: &Arc<str>,
        fields: &[(String, String)],
    ) -> Result<(), Contested> {
        self.with(name, |entry| entry.corrections.check(Instant::now(), texts(fields)))
    }

    /// These fields of the node were corrected. Returns those that are contested.
    pub(crate) fn corrected(&self, name: &Arc<str>, fields: &[(String, String)]) -> Vec<String> {
        self.with(name, |entry| entry.corrections.made(Instant::now(), texts(fields)))
    }

    /// Makes the next sync of this node ask the cloud.
    pub(crate) fn require_lookup(&self, name: &Arc<str>) {
        self.with(name, |entry| entry.ask = true);
    }

    /// Whether the next sync must ask the cloud about this node; clears the request.
    pub(crate) fn take_required_lookup(&self, name: &Arc<str>) -> bool {
        self.with(name, |entry| std::mem::take(&mut entry.ask))
    }

    /// Keeps the cloud's answer about this node for a while.
    pub(crate) fn remember(&self, node: Arc<Node>, answer: LookupResult) {
        let (name, at) = (Arc::clone(&node.name), Instant::now());
        self.with(&name, |entry| {
            entry.answer = Some(Kept { node, answer, at });
            entry.unanswered = 0;
        });
    }

    /// The cloud's last answer about this node, if it is fresh and the node is still the same
    /// object.
    pub(crate) fn remembered(&self, node: &Node) -> Option<LookupResult> {
        self.with(&node.name, |entry| {
            entry
                .answer
                .take_if(|kept| !kept.node.has_identity_of(node) || kept.at.elapsed() > FRESH);
            entry.answer.as_ref().map(|kept| kept.answer.clone())
        })
    }

    /// The node is up to date: drops its answer, its conflict count and its turn.
    pub(crate) fn settled(&self, name: &Arc<str>) {
        self.with_turns(|turns| turns.forget(name));
        self.with(name, |entry| {
            entry.answer = None;
            entry.conflicts = 0;
        });
    }

    /// Counts a lookup without an answer and returns the number of consecutive ones.
    pub(crate) fn unanswered(&self, name: &Arc<str>) -> u32 {
        self.with(name, |entry| {
            entry.unanswered = entry.unanswered.saturating_add(1);
            entry.unanswered
        })
    }

    /// Counts a conflict and returns the number of consecutive conflicts.
    pub(crate) fn conflict(&self, name: &Arc<str>) -> u32 {
        self.with(name, |entry| {
            entry.conflicts = entry.conflicts.saturating_add(1);
            entry.conflicts
        })
    }
}

fn texts(fields: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    fields.iter().map(|(field, value)| (&**field, &**value))
}

#[cfg(test)]
mod tests;
