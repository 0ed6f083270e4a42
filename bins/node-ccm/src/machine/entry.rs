//! The memory of one node.

use std::{sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::{AbsenceProof, Claim, CloudError, Instance, Lookup, LookupResult};
use ccm_controller::{queue::Pace, repeats::Repeats};
use ccm_kube::ApiError;
use ccm_objects::Node;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray, VariantNames};

use crate::plan::{Agreed, Outcome, WaitReason};

/// How long an answer of the cloud is reused for the same node, for instance after a conflict.
const FRESH: Duration = Duration::from_secs(30);

/// The state of a node.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames,
)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum NodeState {
    /// node-ccm has not synced it yet, or does not have an answer about it.
    #[default]
    Unknown,
    /// It has the taint and is about to be initialised.
    Pending,
    /// It has the taint, and cannot be initialised now.
    Waiting(WaitReason),
    /// It has the taint, and the API server rejects its writes.
    #[strum(serialize = "waiting")]
    WriteFailing,
    /// It is initialised and in sync with its instance.
    Initialised,
    /// It is initialised and its instance is gone.
    InstanceGone,
    /// It is not tainted, has no provider ID, and only its name shows which instance belongs to it.
    Unconfirmed,
    /// The provider reports that another controller is responsible for it.
    NotOurs,
    /// Its provider ID is another provider's.
    Foreign,
    /// `--node-selector` leaves it out.
    NotSelected,
}

/// A problem of an initialised node.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    IntoStaticStr,
    VariantArray,
    VariantNames,
)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Problem {
    /// Another node has the same provider ID.
    DuplicateProviderId,
    /// It has no IP address.
    NoAddress,
    /// It has no provider ID, and only its name shows which instance belongs to it.
    Unconfirmed,
    /// It is Ready, and its instance is gone.
    InstanceGone,
}

/// The memory of a node. A new leader begins without it, and decides the same.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct NodeMemory {
    /// The node as it was last heard of, and which provider owns it.
    pub(super) node: Option<Arc<Node>>,
    pub(super) claim: Option<Claim>,
    pub(super) state: Option<NodeState>,
    /// True if the next work on the node asks the cloud even if an answer is known.
    pub(super) is_required: bool,
    kept: Option<Box<LastAnswer>>,
    /// The confirmed writes to it.
    pub(super) made: Repeats,
    /// The cloud's answer at the time when the node last agreed with it.
    pub(super) agreed: Agreed,
    /// The reason why the last work on the node did not end well, if there is one: for its explanation.
    #[serde(default)]
    pub(super) last: Option<Box<Last>>,
}

/// The last work on a node that did not end well.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Last {
    pub(super) at: At,
    pub(super) came: Came,
    /// The pace of the next attempt; `None` if node-ccm waits for the next lookup of all nodes.
    pub(super) pace: Option<Pace>,
    /// True if the cloud may not know the instance yet: it was asked for the first time.
    #[serde(default)]
    pub(super) is_first: bool,
}

/// The way in which work on a node ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Came {
    /// node-ccm may not write anything to the node.
    Planned(Outcome),
    /// The instance of an initialised node is gone.
    Gone(AbsenceProof),
    /// The cloud has not answered.
    Unanswered(CloudError),
    /// The API server has refused a write of this kind, or has not answered it.
    Refused(String, ApiError),
    /// A write is due, and observe mode does not write.
    Observed,
}

impl Came {
    /// Returns the outcome of a plan without steps, with the cloud's own words.
    pub(super) fn from_outcome(outcome: &Outcome, answer: &LookupResult) -> Self {
        match (outcome, answer) {
            (_, Err(error)) => Self::Unanswered(error.clone()),
            (Outcome::InstanceGone, Ok(Lookup::Gone(proof))) => Self::Gone(proof.clone()),
            _ => Self::Planned(outcome.clone()),
        }
    }

    /// Returns true if only the cloud can say that it is over.
    pub(super) const fn is_clouds(&self) -> bool {
        matches!(self, Self::Gone(_) | Self::Unanswered(_) | Self::Planned(Outcome::NotOurs(_)))
    }
}

/// The cloud's last answer.
#[derive(Debug, Serialize, Deserialize)]
struct LastAnswer {
    node: Arc<Node>,
    answer: LookupResult,
    at: At,
}

impl NodeMemory {
    /// Keeps the cloud's answer about this node for a while.
    pub(super) fn remember(&mut self, node: Arc<Node>, answer: LookupResult, at: At) {
        self.kept = Some(Box::new(LastAnswer { node, answer, at }));
    }

    /// Returns the cloud's last answer, if it is fresh and the node is still the same object.
    pub(super) fn recall(&mut self, node: &Node, now: At) -> Option<&LookupResult> {
        let is_old = |kept: &mut Box<LastAnswer>| {
            !kept.node.has_identity_of(node) || now.since(kept.at) > FRESH
        };
        self.kept.take_if(is_old);
        self.kept.as_ref().map(|kept| &kept.answer)
    }

    /// Returns the instance in the cloud's last answer, however old, and when that came.
    pub(super) fn last_instance(&self, node: &Node) -> Option<(&Instance, At)> {
        let kept = self.kept.as_ref().filter(|kept| kept.node.has_identity_of(node))?;
        match &kept.answer {
            Ok(Lookup::Found(instance)) => Some((instance, kept.at)),
            _ => None,
        }
    }

    /// Records that the cloud has shown the instance as it was at this time. What it has denied
    /// later stays.
    pub(super) fn record_seen(&mut self, seen: At) {
        self.last.take_if(|last| match last.came {
            Came::Unanswered(_) => true,
            _ => last.came.is_clouds() && last.at <= seen,
        });
    }

    /// Clears the reason why the last work did not end well, unless only the cloud can resolve it.
    pub(super) fn take_last(&mut self) -> Option<Box<Last>> {
        self.last.take_if(|last| !last.came.is_clouds())
    }

    /// Drops the answer: the node is up to date.
    pub(super) fn drop_answer(&mut self) {
        self.kept = None;
    }
}

#[cfg(test)]
mod tests {
    use ccm_cloud::{CloudError, ErrorKind};

    use super::*;

    fn node(uid: &str) -> Arc<Node> {
        Arc::new(Node { name: "node-1".into(), uid: uid.into(), ..Node::default() })
    }

    #[test]
    fn an_answer_is_reused_for_30_s_and_for_the_same_node_only() {
        let at = |milliseconds| At(Duration::from_millis(milliseconds));
        let answer: LookupResult = Err(CloudError::new(ErrorKind::Invalid, "no"));
        let mut entry = NodeMemory::default();
        let keep = |entry: &mut NodeMemory| entry.remember(node("a"), answer.clone(), at(0));
        keep(&mut entry);
        assert_eq!(entry.recall(&node("a"), at(0)), Some(&answer));
        assert_eq!(entry.recall(&node("a"), at(30_000)), Some(&answer));
        assert_eq!(entry.recall(&node("a"), at(30_001)), None);
        keep(&mut entry);
        let named = Node { provider_id: Some("sim://i-1".into()), ..Node::clone(&node("a")) };
        assert_eq!(entry.recall(&named, at(0)), None, "its identity has changed");
        keep(&mut entry);
        assert_eq!(entry.recall(&node("b"), at(0)), None, "another node of the same name");
        keep(&mut entry);
        entry.drop_answer();
        assert_eq!(entry.recall(&node("a"), at(0)), None, "the node is up to date");
    }
}
