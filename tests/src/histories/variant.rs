//! What a history is about, and the rule that it lacks.

use std::time::Duration;

use lifecycle_ccm::policy::Policy;

use super::world::Kind;

/// What a history is about.
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

    /// The time that the cloud's answers about one node must span.
    pub fn confirmation(self, policy: &Policy) -> Duration {
        match self {
            Self::Listed | Self::Living => policy.confirmation_period,
            Self::Listless => 3 * policy.confirmation_period,
        }
    }

    /// Whether nodes of this kind are deleted once their instances are gone.
    pub fn judges(self, kind: Kind) -> bool {
        kind == Kind::Ours || (kind == Kind::Ghost && self != Self::Listless)
    }

    /// The rules that a history of this variant must notice as missing.
    pub fn rules(self) -> &'static [Sabotage] {
        match self {
            Self::Listed => &[
                Sabotage::Confirmation,
                Sabotage::Grace,
                Sabotage::Breaker,
                Sabotage::Budget,
                Sabotage::Memory,
                Sabotage::Store,
                Sabotage::Doubt,
                Sabotage::Release,
            ],
            Self::Living => &[Sabotage::Life, Sabotage::Memory],
            Self::Listless => &[Sabotage::Answers, Sabotage::Witnesses, Sabotage::Store],
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
    /// A deletion that was not made, and that keeps its budget.
    Release,
}

impl Sabotage {
    /// The error of a history without this rule.
    pub const fn breaks(self) -> &'static str {
        match self {
            Self::Grace => "and was deleted",
            Self::Budget | Self::Memory | Self::Store | Self::Doubt => "over budget",
            Self::Release => "held though there is budget",
            Self::Confirmation | Self::Breaker | Self::Life | Self::Answers | Self::Witnesses => {
                "was deleted though it exists"
            }
        }
    }
}
