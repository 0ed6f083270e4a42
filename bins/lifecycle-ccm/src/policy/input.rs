//! What the policy decides by: the nodes, and what the cloud answered about them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ccm_cloud::{Claim, CloudError, LookupResult};

use super::{At, Ghosts, Policy};

/// One node as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The node's name.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// Whose node it is by its provider ID.
    pub claim: Claim,
    /// Whether `spec.providerID` is set.
    pub has_id: bool,
    /// Whether it matches `--node-selector`.
    pub selected: bool,
    /// Whether its condition Ready is True.
    pub ready: bool,
    /// Whether it is being deleted already (`metadata.deletionTimestamp`).
    pub deleting: bool,
    /// Whether it has the taint `node.cloudprovider.kubernetes.io/uninitialized`.
    pub uninitialised: bool,
    /// How long the node object exists; where in doubt, the shortest that may be true.
    pub age: Duration,
    /// Whether the operator forbids its deletion.
    pub protected: bool,
    /// Whether the operator exempts it from breaker and budget.
    pub approved: bool,
}

impl NodeView {
    /// Whether the policy may have anything to say about it, Ready or not.
    pub fn in_reach(&self) -> bool {
        self.selected && !self.deleting && self.claim != Claim::Foreign
    }

    /// Whether it is looked up: in reach and not Ready.
    pub fn is_watched(&self) -> bool {
        self.in_reach() && !self.ready
    }

    /// Whether it was past its grace period at `then`, given its age at `now`.
    pub(super) fn was_grown(&self, now: At, then: At, policy: &Policy) -> bool {
        self.age.saturating_sub(now.since(then)) >= policy.grace_period
    }

    /// Whether it may be deleted at all if its instance is gone: it has a provider ID,
    /// or the policy lets ghosts be judged.
    pub(super) fn can_be_judged(&self, policy: &Policy) -> bool {
        self.has_id || (policy.ghosts == Ghosts::Uninitialised && self.uninitialised)
    }
}

/// What was said about one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookedUp {
    /// The node that was asked about.
    pub name: Arc<str>,
    /// Its UID when it was asked about.
    pub uid: Box<str>,
    /// The answer. An error is never evidence.
    pub result: LookupResult,
}

/// The list of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    /// It was read.
    Read {
        /// When the first page was asked for.
        asked: At,
        /// When the last page was there.
        answered: At,
        /// How many instances it shows, ours or not.
        instances: usize,
        /// How many of its entries could not be understood.
        malformed: usize,
        /// Which nodes it does not show: by provider ID, or by name those without one.
        /// Every view in reach that is not in here is shown.
        missing: BTreeSet<Arc<str>>,
    },
    /// It could not be read, which says nothing.
    Failed(CloudError),
}

/// The answers of one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// When the first lookup was asked.
    pub asked: At,
    /// When the last lookup was answered.
    pub answered: At,
    /// What the lookups said.
    pub lookups: Vec<LookedUp>,
    /// The list, if the agenda asked for one.
    pub list: Option<Listing>,
}
