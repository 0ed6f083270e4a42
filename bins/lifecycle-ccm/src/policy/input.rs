//! The input of the policy: the nodes, and the cloud's answers about them.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use ccm_cloud::{Claim, CloudError, LookupResult};
use serde::{Deserialize, Serialize};

use super::{At, Ghosts, Policy};

/// The current state of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The node's name.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// The owner of the node, by its provider ID.
    pub claim: Claim,
    /// True if `spec.providerID` is set.
    pub has_id: bool,
    /// True if it matches `--node-selector`.
    pub selected: bool,
    /// True if its condition Ready is True.
    pub ready: bool,
    /// True if it is being deleted already (`metadata.deletionTimestamp`).
    pub deleting: bool,
    /// True if it has the taint `node.cloudprovider.kubernetes.io/uninitialized`.
    pub uninitialised: bool,
    /// The age of the node object; where in doubt, the shortest possible age.
    pub age: Duration,
    /// True if the operator protects it from deletion.
    pub protected: bool,
    /// True if the operator exempts it from breaker and budget.
    pub approved: bool,
    /// True if the cluster itself removes it: it has a taint of `--scale-down-taints`.
    pub marked: bool,
    /// True if it runs on another machine than before: its system UUID has changed. Only for a node
    /// with a provider ID.
    pub replaced: bool,
}

impl NodeView {
    /// Returns true if the policy applies to it, Ready or not.
    pub fn in_reach(&self) -> bool {
        self.selected && !self.deleting && self.claim != Claim::Foreign
    }

    /// Returns true if nothing is wrong with it.
    pub fn is_well(&self) -> bool {
        self.ready && !self.replaced
    }

    /// Returns true if it is looked up: in reach, and not Ready or on another machine than before.
    pub fn is_watched(&self) -> bool {
        self.in_reach() && !self.is_well()
    }

    /// Returns true if it was past its grace period at `then`, given its age at `now`.
    pub(super) fn was_past_grace_period(&self, now: At, then: At, policy: &Policy) -> bool {
        self.age.saturating_sub(now.since(then)) >= policy.grace_period
    }

    /// Returns true if it may be deleted when its instance is gone: it has a provider ID, or
    /// [`Ghosts`] allows it.
    pub(crate) fn may_be_deleted(&self, policy: &Policy) -> bool {
        self.has_id || (policy.ghosts == Ghosts::Uninitialised && self.uninitialised)
    }
}

/// The cloud's answer about one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookedUp {
    /// The node's name in the lookup.
    pub name: Arc<str>,
    /// The node's UID at the time of the lookup.
    pub uid: Box<str>,
    /// When this answer arrived.
    pub answered: At,
    /// The answer. An error is never evidence.
    pub result: LookupResult,
    /// The Lease of its kubelet after an answer "gone", if it was requested and could be read.
    pub heartbeat: Option<Heartbeat>,
}

/// The renewal that the Lease of a kubelet shows; empty without a renewal. It is only compared with
/// an earlier one, so the clocks of the nodes do not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat(pub String);

/// The list of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Listing {
    /// It was read completely.
    Read {
        /// When the first page was requested.
        asked: At,
        /// When the last page arrived.
        answered: At,
        /// The number of instances in it, ours or not.
        instances: usize,
        /// The number of entries that could not be parsed.
        malformed: usize,
        /// The nodes that are missing: by provider ID, or by name for nodes without one. Every
        /// other view in reach is shown.
        missing: BTreeSet<Arc<str>>,
    },
    /// The cloud has no list: the witnesses replace it.
    Witnesses,
    /// It could not be read, which proves nothing.
    Failed(CloudError),
}

/// The answers of one pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// When the first lookup was sent.
    pub asked: At,
    /// The answers to the lookups.
    pub lookups: Vec<LookedUp>,
    /// The answers about the agenda's witnesses.
    pub witnesses: Vec<LookedUp>,
    /// The list, if the agenda asked for one.
    pub list: Option<Listing>,
}

impl Answers {
    /// Returns the kinds of the errors, by the names of their nodes.
    pub(crate) fn errors(&self) -> HashMap<Arc<str>, &'static str> {
        let error = |one: &LookedUp| {
            Some((Arc::clone(&one.name), one.result.as_ref().err()?.kind.reason()))
        };
        self.lookups.iter().filter_map(error).collect()
    }
}
