//! Decides which nodes of the queue are looked up in the cloud, and keeps the answers.

use std::sync::Arc;

use ccm_base::At;
use ccm_cloud::{CloudError, ErrorKind, Instance, Lookup, LookupResult};
use ccm_objects::Node;

use super::{Due, Effect, Machine, Request, SeenNode};

/// After this number of refresh periods without an answer, node-ccm does not write known facts about
/// an instance to its node any more.
pub(super) const STALE_PERIODS: u32 = 2;

impl Machine {
    pub(super) fn look(&mut self, seen: &SeenNode) {
        let due = self.due(seen);
        self.say(Effect::Request(Request::Due(due)));
    }

    fn due(&mut self, seen: &SeenNode) -> Due {
        let (node, now) = (&seen.node, self.now);
        let uninitialised = node.is_uninitialised();
        match self.claim_or_leave_out(seen) {
            Some(true) => {}
            None if uninitialised => return Due::Known(Err(unknown_schemes_error())),
            _ => return Due::Nothing,
        }
        let entry = self.entry(&node.name);
        let required = std::mem::take(&mut entry.is_required);
        if !required && let Some(answer) = entry.recall(node, now) {
            return Due::Known(answer.clone());
        }
        if uninitialised || required {
            return Due::Ask;
        }
        // The last lookups are enough to revert another writer's change, unless refreshes have
        // failed since. Changes that they do not show wait for the next refresh.
        match seen.id.as_deref().and_then(|id| self.inventory.get(id)) {
            Some(known)
                if now.since(known.seen) > self.params.period.saturating_mul(STALE_PERIODS) =>
            {
                Due::Ask
            }
            Some(known) => {
                Due::Known(Ok(Lookup::Found(Box::new(Instance::clone(&known.instance)))))
            }
            None => Due::Nothing,
        }
    }

    /// Records the cloud's answers in a call that began at `started`.
    pub(super) fn record_answers(&mut self, answers: Vec<(Arc<Node>, LookupResult)>, started: At) {
        let found = answers.iter().filter_map(|(_, answer)| match answer {
            Ok(Lookup::Found(instance)) => Some(Instance::clone(instance)),
            _ => None,
        });
        self.inventory.update(found, started);
        let now = self.now;
        for (node, answer) in answers {
            if matches!(answer, Ok(Lookup::Found(_))) {
                let entry = self.entry(&Arc::clone(&node.name));
                entry.record_seen(started);
                entry.remember(node, answer, now);
            }
        }
    }
}

/// Returns the answer for a node while the provider has not reported its schemes.
pub(super) fn unknown_schemes_error() -> CloudError {
    let message = "the cloud provider has not reported its provider ID schemes yet";
    CloudError::new(ErrorKind::Unavailable, message)
}
