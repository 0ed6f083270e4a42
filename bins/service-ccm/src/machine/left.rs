//! The note of a leader to the next one.

use ccm_cloud::Digest;
use ccm_controller::brake::Window;
use serde::{Deserialize, Deserializer, Serialize};

use crate::plan::{marks::Marks, members::Departures};

/// The note of a leader to the next one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LeaderNote {
    #[serde(flatten)]
    pub(super) members: Departures,
    /// The marks of nodes that are gone, and may still be members.
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    pub(super) marks: Marks,
    /// The load balancers without a Service that were deleted.
    #[serde(default)]
    pub(super) orphans: Window,
    /// The Services whose load balancers were replaced.
    #[serde(default)]
    pub(super) replaced: Window,
    /// The digest of the nodes that all load balancers have, or `None` while some have others. With
    /// the same nodes the next leader need not read the members of all load balancers at once.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient")]
    pub(super) settled: Option<Digest>,
}

impl LeaderNote {
    /// Removes details. Returns true if it could.
    pub(crate) fn shorten(&mut self) -> bool {
        self.marks.shorten()
            || self.members.sum_up()
            || self.orphans.sum_up()
            || self.replaced.sum_up()
    }
}

/// Ignores a digest that cannot be read: only the budgets must not get lost.
fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Digest>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.and_then(|text| text.parse().ok()))
}

#[cfg(test)]
mod tests {
    use ccm_base::At;

    use super::*;

    #[test]
    fn a_digest_that_cannot_be_read_loses_no_budget() {
        let text = r#"{"replaced": [["2026-01-01T00:00:00Z", "u-1"]], "settled": "nonsense"}"#;
        let left: LeaderNote = serde_json::from_str(text).expect("a note");
        assert_eq!((left.replaced.after(At::default()).count(), left.settled), (1, None));
    }
}
