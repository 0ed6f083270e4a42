//! What is for the operator to decide.

use std::time::Duration;

use ccm_controller::brake::{Budget, Limit};
use serde::Serialize;

/// What becomes of nodes without a provider ID whose name the cloud does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ghosts {
    /// They are judged as long as they are uninitialised.
    #[default]
    Uninitialised,
    /// They are kept.
    Never,
}

/// The operator's decisions. They may change between two calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// How long after the first answer "gone" was heard the last one must be asked.
    pub confirmation_period: Duration,
    /// How old a node must be before an answer "gone" counts. Must be longer than the
    /// cloud takes to show a new instance everywhere.
    pub grace_period: Duration,
    /// How often a node that is not Ready is looked up.
    pub monitor_period: Duration,
    /// How many nodes may be deleted per [`Policy::budget_window`].
    pub budget: Limit,
    /// The sliding window of the budget.
    pub budget_window: Duration,
    /// Percent of the known nodes; if more of them than this miss in a list, the breaker opens.
    pub shrink_threshold: u8,
    /// What becomes of nodes without a provider ID.
    pub ghosts: Ghosts,
    /// How long an answer may take and still be evidence.
    pub evidence_age: Duration,
}

impl Policy {
    /// How many nodes may be deleted, for the brake.
    pub(super) const fn deletions(&self) -> Budget {
        Budget { limit: self.budget, window: self.budget_window }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            confirmation_period: Duration::from_secs(20),
            grace_period: Duration::from_secs(120),
            monitor_period: Duration::from_secs(5),
            budget: Limit::Percent(10),
            budget_window: Duration::from_secs(600),
            shrink_threshold: 50,
            ghosts: Ghosts::default(),
            evidence_age: Duration::from_secs(30),
        }
    }
}
