//! Matches members that joined with members that left without a mark.
//!
//! A cluster whose nodes are replaced does not lose nodes, so a node that joins replaces a node
//! that left. But an autoscaler that replaces nodes must not give budget to a list that lacks
//! nodes: a member that joins first replaces a marked or cordoned one, which may leave before or
//! after it. Only after [`SETTLED`] it counts as the replacement of a member without a mark.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::Member;
use serde::{Deserialize, Serialize};

use super::{MemberPool, MemberRules, Membership, NodeSet};

/// How long a member that joins waits for one that was marked or cordoned.
const SETTLED: Duration = Duration::from_hours(1);

/// Nodes with the time, and true if the place of the node that left or joined is still open.
type Places = BTreeMap<Arc<str>, (At, bool)>;

/// The members that joined, and those that were meant to leave, while others are missing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Joins {
    joined: Places,
    left: Places,
}

impl Joins {
    /// Forgets the members that left before the window.
    pub(super) fn expire(&mut self, now: At, window: Duration) {
        self.left.retain(|_, (at, _)| *at + window > now);
    }

    /// Returns true if it is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.joined.is_empty() && self.left.is_empty()
    }

    /// Returns true if this member has joined lately, or has left.
    pub(super) fn has(&self, node: &str) -> bool {
        self.joined.contains_key(node) || self.left.contains_key(node)
    }

    /// Records that a member joins. It takes the place of a member that left on purpose, or else of the
    /// one that `fill` finds.
    pub(super) fn join(&mut self, now: At, node: &str, fill: impl FnOnce() -> bool) {
        let is_spare = !take_first(&mut self.left) && !fill();
        self.joined.insert(node.into(), (now, is_spare));
    }

    /// Records that a marked member leaves.
    pub(super) fn leave(&mut self, now: At, node: &str) {
        if !self.left.contains_key(node) && !self.replace(now, node) {
            self.left.insert(node.into(), (now, true));
        }
    }

    /// Records that a cordoned member leaves. Returns true if a member that has joined takes its
    /// place, now or before.
    pub(super) fn replace(&mut self, now: At, node: &str) -> bool {
        if let Some((_, is_open)) = self.left.get(node) {
            return !is_open;
        }
        let is_replaced = take_first(&mut self.joined);
        if is_replaced {
            self.left.insert(node.into(), (now, false));
        }
        is_replaced
    }

    /// Records that the member has not left, or is back.
    pub(super) fn release(&mut self, node: &str) {
        self.left.remove(node);
    }

    /// Takes the members that joined long enough ago, and have taken no place yet, with the time at which
    /// they joined.
    pub(super) fn take_settled(&mut self, now: At) -> Vec<(Arc<str>, At)> {
        let is_settled = |at: At| at + SETTLED <= now;
        let spare = self.joined.iter().filter(|(_, (at, is_spare))| *is_spare && is_settled(*at));
        let spare: Vec<_> = spare.map(|(node, (at, _))| (Arc::clone(node), *at)).collect();
        self.joined.retain(|_, (at, _)| !is_settled(*at));
        spare
    }
}

impl Membership {
    /// Counts the members that join, and have joined, for those that left.
    pub(super) fn joined(
        &mut self,
        now: At,
        pool: &MemberPool<'_>,
        nodes: &NodeSet,
        rules: MemberRules<'_>,
    ) {
        // Its node exists, but was not picked any more.
        self.charged.retain(|node| pool.has(node));
        for (node, joined) in self.joins.take_settled(now) {
            let is_earlier = |one: &str, at: At| at <= joined && !pool.has(one);
            if pool.has(&node)
                && let Some(gone) = self.vanished.fill(is_earlier)
            {
                self.brake.release(&gone);
            }
        }
        // Nodes that another selector picks existed before.
        let is_reselected = self.picked.as_ref().is_some_and(|picked| picked != rules.selector);
        if is_reselected || self.vanished.is_empty() && self.joins.is_empty() {
            return;
        }
        let joining = |node: &&Member| rules.select(node) && !pool.has(&node.node);
        for Member { node, .. } in nodes.members.iter().filter(joining) {
            let left = [&self.vanished, &self.labelled].iter().any(|floor| floor.has(node));
            if left || self.joins.has(node) || self.away.contains(node.as_str()) {
                continue;
            }
            let (brake, vanished) = (&self.brake, &mut self.vanished);
            let is_charged =
                |one: &str| brake.window().after(At::default()).any(|(_, it)| it == one);
            self.joins.join(now, node, || {
                vanished.fill(|one, _| !pool.has(one) && !is_charged(one)).is_some()
            });
        }
    }
}

/// Takes the earliest place that is open. Returns false if there is none.
fn take_first(of: &mut Places) -> bool {
    let open = of.values_mut().filter(|(_, is_open)| *is_open);
    let Some((_, is_open)) = open.min_by_key(|(at, _)| *at) else { return false };
    *is_open = false;
    true
}
