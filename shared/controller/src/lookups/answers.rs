use std::{collections::HashMap, sync::Arc, time::Duration};

use ccm_cloud::LookupResult;
use ccm_objects::{Node, Shared as Name};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long an answer of the cloud is reused for the same node, for instance after a conflict.
const FRESH: Duration = Duration::from_secs(30);

/// The cloud's last answers, and which nodes it is to be asked about whatever is known of them.
/// Clones share them. None of it is needed for correctness: a new leader begins without.
#[derive(Clone, Default)]
pub struct Answers {
    nodes: Arc<Mutex<HashMap<Name, Entry>>>,
}

#[derive(Default)]
struct Entry {
    is_required: bool,
    kept: Option<Kept>,
    /// Consecutive lookups without an answer because they had too many nodes.
    unanswered: u32,
}

struct Kept {
    node: Arc<Node>,
    answer: LookupResult,
    at: Instant,
}

impl Answers {
    fn with<R>(&self, name: &Name, change: impl FnOnce(&mut Entry) -> R) -> R {
        change(self.nodes.lock().entry(Name::clone(name)).or_default())
    }

    /// Makes the next work on this node ask the cloud.
    pub fn require(&self, name: &Name) {
        self.with(name, |entry| entry.is_required = true);
    }

    /// Whether the cloud must be asked about this node; clears the request.
    pub fn take_required(&self, name: &Name) -> bool {
        self.with(name, |entry| std::mem::take(&mut entry.is_required))
    }

    /// Keeps the cloud's answer about this node for a while.
    pub fn remember(&self, node: Arc<Node>, answer: LookupResult) {
        let name = Name::clone(&node.name);
        self.with(&name, |entry| {
            entry.kept = Some(Kept { node, answer, at: Instant::now() });
            entry.unanswered = 0;
        });
    }

    /// The cloud's last answer about this node, if it is fresh and the node is still the same
    /// object.
    pub fn recall(&self, node: &Node) -> Option<LookupResult> {
        let is_old =
            |kept: &mut Kept| !kept.node.has_identity_of(node) || kept.at.elapsed() > FRESH;
        self.with(&node.name, |entry| {
            entry.kept.take_if(is_old);
            entry.kept.as_ref().map(|kept| kept.answer.clone())
        })
    }

    /// Drops the answer about a node that is up to date.
    pub fn settled(&self, name: &Name) {
        self.with(name, |entry| entry.kept = None);
    }

    /// Forgets a node that is gone.
    pub fn forget(&self, name: &str) {
        self.nodes.lock().remove(name);
    }

    /// Counts a lookup without an answer and returns the number of consecutive ones.
    pub(super) fn unanswered(&self, name: &Name) -> u32 {
        self.with(name, |entry| {
            entry.unanswered = entry.unanswered.saturating_add(1);
            entry.unanswered
        })
    }

    /// The cloud has answered about this node: the end of such a series.
    pub(super) fn answered(&self, name: &str) {
        if let Some(entry) = self.nodes.lock().get_mut(name) {
            entry.unanswered = 0;
        }
    }
}

#[cfg(test)]
mod tests;
