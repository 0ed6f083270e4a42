//! At least half of the members stay, even if the list of nodes is empty.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_base::At;
use ccm_controller::brake::split_all;
use serde::{Deserialize, Serialize};

use super::MemberPool;

/// The members that left for one cause within the window, or may leave, and that no other member
/// has replaced. At least half of them and the present members together, rounded up, stay.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Floor(BTreeMap<Arc<str>, At>);

impl Floor {
    /// Creates the floor with the members that left under the last leader.
    pub(super) fn resume<'a>(
        now: At,
        left: impl IntoIterator<Item = (&'a String, &'a At)>,
    ) -> Self {
        let left = left.into_iter().map(|(node, at)| ((*at).min(now), node.as_str()));
        Self(split_all(left).map(|(at, node)| (Arc::from(node), at)).collect())
    }

    /// Forgets those that left before the window.
    pub(super) fn expire(&mut self, now: At, window: Duration) {
        self.0.retain(|_, at| *at + window > now);
    }

    /// Lets another member take the place of the one that left first among the selected ones.
    /// Returns the one that left.
    pub(super) fn fill(&mut self, is_it: impl Fn(&str, At) -> bool) -> Option<Arc<str>> {
        let all = self.0.iter().filter(|(node, at)| is_it(node, **at));
        let first = all.min_by_key(|(_, at)| **at).map(|(node, _)| Arc::clone(node))?;
        self.0.remove(&first);
        Some(first)
    }

    /// Lets this member leave, unless fewer than half would stay.
    pub(super) fn may_leave(&self, node: &str, pool: &MemberPool<'_>) -> bool {
        let gone = self.0.keys().filter(|node| !pool.has(node)).count();
        self.has(node) || (self.0.len() + 1) * 2 <= pool.count + pool.joins + gone
    }

    /// Records that this member may leave now.
    pub(super) fn add(&mut self, now: At, node: &str) {
        self.0.insert(node.into(), now);
    }

    /// Records that the member left at this time, and not when it was recorded.
    pub(super) fn renew(&mut self, now: At, node: &str) {
        if let Some(at) = self.0.get_mut(node) {
            *at = now;
        }
    }

    /// Records that the member has not left, or is back.
    pub(super) fn release(&mut self, node: &str) {
        self.0.remove(node);
    }

    /// Returns true if this member has left, or may leave.
    pub(super) fn has(&self, node: &str) -> bool {
        self.0.contains_key(node)
    }

    /// Returns true if no member has left or may leave.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the members that left, and when.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, At)> {
        self.0.iter().map(|(node, at)| (&**node, *at))
    }
}
