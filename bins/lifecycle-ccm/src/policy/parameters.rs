//! The operator's parameters.

use std::time::Duration;

use ccm_controller::brake::{Budget, Limit};
use serde::{Deserialize, Serialize};

/// The policy for nodes without a provider ID whose name the cloud does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ghosts {
    /// Apply the policy to them while they are uninitialised.
    #[default]
    Uninitialised,
    /// Keep them.
    Never,
}

/// The treatment of a Ready node on a replaced machine: its provider ID belongs to an instance that
/// is gone, and its system UUID has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replaced {
    /// Report it.
    #[default]
    Report,
    /// Apply the policy to it.
    Delete,
}

/// The operator's parameters. They may change between two calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The minimum time between the first answer "gone" and the last lookup.
    pub confirmation_period: Duration,
    /// The minimum age of a node before an answer "gone" counts. It must be longer than the cloud
    /// takes to show a new instance everywhere.
    pub grace_period: Duration,
    /// The interval between two lookups of a node that is not Ready.
    pub monitor_period: Duration,
    /// The maximum number of deleted nodes per [`Policy::budget_window`].
    pub budget: Limit,
    /// The sliding window of the budget.
    pub budget_window: Duration,
    /// The percentage of the known nodes that a list may lack; if it lacks more, the breaker opens.
    pub shrink_threshold: u8,
    /// The policy for nodes without a provider ID.
    pub ghosts: Ghosts,
    /// The policy for Ready nodes on a replaced machine.
    pub replaced: Replaced,
    /// The maximum duration of a call whose answer still counts as evidence.
    pub evidence_age: Duration,
}

impl Policy {
    /// Returns the maximum number of deleted nodes, for the budget.
    pub(super) const fn deletions(&self) -> Budget {
        Budget { limit: self.budget, window: self.budget_window }
    }
}
