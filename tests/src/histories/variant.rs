//! The subject of a history, and the rule that is missing in it.

use std::time::Duration;

use lifecycle_ccm::policy::{Ghosts, Policy};

use super::world::Kind;

/// The subject of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// A cloud with a list, whose lookups and lists do not lie together about few nodes.
    Listed,
    /// Lookups and lists deny any share of the machines together, for as long as they like. Every
    /// kubelet renews its Lease as long as its machine runs.
    Living,
    /// A cloud without a list.
    Listless,
}

impl Variant {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Listed, Self::Living, Self::Listless];

    /// Returns the time that the cloud's answers about one node must span.
    pub fn confirmation(self, policy: &Policy) -> Duration {
        match self {
            Self::Listed | Self::Living => policy.confirmation_period,
            Self::Listless => 3 * policy.confirmation_period,
        }
    }

    /// Returns true if nodes of this kind are deleted once their instances are gone.
    pub fn judges(self, kind: Kind, ghosts: Ghosts) -> bool {
        let is_ghost = kind == Kind::Ghost && ghosts == Ghosts::Uninitialised;
        kind == Kind::Ours || (is_ghost && self != Self::Listless)
    }

    /// Returns the rules that a history of this variant must notice as missing.
    pub fn rules(self) -> &'static [Sabotage] {
        match self {
            Self::Listed => &[
                Sabotage::Confirmation,
                Sabotage::Grace,
                Sabotage::Breaker,
                Sabotage::Budget,
                Sabotage::Stingy,
                Sabotage::Memory,
                Sabotage::Store,
                Sabotage::Doubt,
                Sabotage::Release,
                Sabotage::Until,
                Sabotage::Selector,
                Sabotage::Removal,
                Sabotage::Ghosts,
                Sabotage::Late,
                Sabotage::Arrival,
                Sabotage::Claims,
                Sabotage::Dropped,
                Sabotage::Observer,
            ],
            Self::Living => &[Sabotage::Life, Sabotage::Memory],
            Self::Listless => {
                &[Sabotage::Answers, Sabotage::Witnesses, Sabotage::Store, Sabotage::Late]
            }
        }
    }
}

/// A rule that a test removes from the policy, and expects a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// No confirmation period.
    Confirmation,
    /// No grace period.
    Grace,
    /// A breaker that opens for an empty list only.
    Breaker,
    /// No budget.
    Budget,
    /// A budget that allows no deletion.
    Stingy,
    /// No proof of life: every Lease looks as if it was never renewed.
    Life,
    /// Three answers within one confirmation period where there is no list.
    Answers,
    /// Witnesses that are not asked.
    Witnesses,
    /// A new leader that does not read the deletions of the last one.
    Memory,
    /// Deletions that do not wait until they are stored.
    Store,
    /// A deletion whose answer was lost, and that gives its budget back.
    Doubt,
    /// An approval on the Lease that does not end.
    Until,
    /// A deletion that was not made, and that keeps its budget.
    Release,
    /// A node selector that selects all nodes.
    Selector,
    /// A shutdown taint that is removed as soon as the machine runs.
    Removal,
    /// Nodes without a provider ID that are deleted.
    Ghosts,
    /// Answers that count however late they come.
    Late,
    /// A list that seems to be compared with nodes that arrived later.
    Arrival,
    /// Claims whose changes are not reported by events.
    Claims,
    /// An API server that seems to store whatever is written.
    Dropped,
    /// An observer that does not know that it is one.
    Observer,
}

impl Sabotage {
    /// Returns the error of a history without this rule.
    pub const fn breaks(self) -> &'static str {
        match self {
            Self::Grace | Self::Ghosts => "is exempt and was deleted",
            Self::Confirmation | Self::Answers => "without confirmation",
            Self::Breaker => "an implausible list was believed",
            Self::Budget | Self::Memory | Self::Store => "over budget",
            Self::Until => "though the breaker is open",
            Self::Stingy => "held though there is budget",
            Self::Doubt => "is not left",
            Self::Release => "was not deleted, and it is left",
            Self::Life | Self::Witnesses => "was deleted though it exists",
            Self::Selector => "is left out and looked up",
            Self::Removal => "should stay until it is Ready",
            Self::Late => "came late",
            Self::Arrival => "and the list had",
            Self::Claims => "the memory has the claim",
            Self::Dropped => "told, and not made",
            Self::Observer => "an observer",
        }
    }
}
