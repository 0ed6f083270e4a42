//! The members that have left load balancers recently. A leader leaves this record to the next one,
//! so that a change of leader does not give a new budget.

use std::collections::BTreeMap;

use ccm_base::At;
use ccm_controller::brake::{is_sum, summed_up};
use serde::{Deserialize, Serialize};

/// Members that left, by node, with the time.
type Left = BTreeMap<String, At>;

/// The members that have left load balancers recently. It does not contain which load balancers
/// they have left, so the next leader counts them for each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Departures {
    /// Members that were charged to the budget.
    pub(super) charged: Left,
    /// Members that left because of a label.
    pub(super) labelled: Left,
    /// Members that left after their nodes were cordoned. They count only for the floor.
    #[serde(skip_serializing_if = "Left::is_empty")]
    pub(super) drained: Left,
}

impl Departures {
    /// Keeps those since this time.
    pub fn retain(&mut self, since: At) {
        for part in [&mut self.charged, &mut self.labelled, &mut self.drained] {
            part.retain(|_, at| *at > since);
        }
    }

    /// Replaces the older half of the longest map by one entry. Returns true if it could.
    pub fn sum_up(&mut self) -> bool {
        let parts = [&mut self.charged, &mut self.labelled, &mut self.drained];
        let Some(part) = parts.into_iter().max_by_key(|part| part.len()) else { return false };
        let entries: Vec<_> = part.iter().map(|(node, at)| (*at, &**node)).collect();
        let Some((at, sum, older)) = summed_up(&entries) else { return false };
        let older: Vec<String> = older.into_iter().map(str::to_owned).collect();
        for node in older {
            part.remove(&node);
        }
        part.insert(sum.into(), at);
        true
    }
}

/// Adds these, except unnamed ones and those that left before `since`.
pub(super) fn add<'a>(to: &mut Left, since: At, members: impl IntoIterator<Item = (&'a str, At)>) {
    for (node, at) in members.into_iter().filter(|(node, at)| *at > since && !is_sum(node)) {
        match to.get_mut(node) {
            Some(known) => *known = (*known).max(at),
            None => drop(to.insert(node.to_owned(), at)),
        }
    }
}
