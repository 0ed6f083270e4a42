//! At least half of the members stay, whatever the nodes seem to be.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_base::At;
use ccm_controller::brake::split;

use super::Pool;

/// The members that left for one cause within the window, or may leave, and whose place no other member
/// has taken: at least half, rounded up, of the members with those stay.
#[derive(Clone, Debug, Default)]
pub(super) struct Floor {
    left: BTreeMap<Arc<str>, At>,
    /// The number of members together with those that have left; None while it is not known.
    total: Option<usize>,
}

impl Floor {
    /// Those that left under the last leader.
    pub(super) fn resume<'a>(
        now: At,
        left: impl IntoIterator<Item = (&'a String, &'a At)>,
    ) -> Self {
        let each = |(node, at): (&'a String, &'a At)| {
            split(node).map(|node| (Arc::<str>::from(node), (*at).min(now)))
        };
        Self { left: left.into_iter().flat_map(each).collect(), total: None }
    }

    /// Forgets those that left before the window.
    pub(super) fn expire(&mut self, now: At, window: Duration) {
        self.left.retain(|_, at| *at + window > now);
    }

    /// A member that has joined takes the place of the one that left first. Returns those whose place was
    /// taken.
    pub(super) fn fill(&mut self, pool: &Pool<'_>) -> Vec<Arc<str>> {
        let is_gone = |(node, at): (&Arc<str>, &At)| (!pool.has(node)).then(|| (*at, node.clone()));
        let mut gone: Vec<(At, Arc<str>)> = self.left.iter().filter_map(is_gone).collect();
        let total = pool.members.len() + gone.len();
        let joined = total.saturating_sub(self.total.unwrap_or(total)).min(gone.len());
        self.total = Some(total - joined);
        gone.sort_unstable();
        gone.truncate(joined);
        for (_, node) in &gone {
            self.left.remove(node);
        }
        gone.into_iter().map(|(_, node)| node).collect()
    }

    /// Lets this member leave, unless fewer than half would stay.
    pub(super) fn may_leave(&self, node: &str, pool: &Pool<'_>) -> bool {
        let gone = self.left.keys().filter(|node| !pool.has(node)).count();
        self.has(node) || (self.left.len() + 1) * 2 <= pool.count + pool.joins + gone
    }

    /// Records that this member may leave now.
    pub(super) fn add(&mut self, now: At, node: &str) {
        self.left.insert(node.into(), now);
    }

    /// It left at this time, and not when it was recorded.
    pub(super) fn renew(&mut self, now: At, node: &str) {
        if let Some(at) = self.left.get_mut(node) {
            *at = now;
        }
    }

    /// It has not left, or it is back.
    pub(super) fn release(&mut self, node: &str) {
        self.left.remove(node);
    }

    /// Returns true if this member has left, or may leave.
    pub(super) fn has(&self, node: &str) -> bool {
        self.left.contains_key(node)
    }

    /// Returns true if no member has left, and none may leave.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// The members that left, and when.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, At)> {
        self.left.iter().map(|(node, at)| (&**node, *at))
    }
}
