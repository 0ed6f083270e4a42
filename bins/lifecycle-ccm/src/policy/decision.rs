//! The decisions of the policy.

use std::{fmt, sync::Arc};

use ccm_cloud::ProofMethod;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantArray};

use super::At;

/// Why a node is kept. Its texts are for metric labels and log fields.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// It is Ready again.
    Ready,
    /// Its instance exists.
    Exists,
    /// The cloud reports that another controller is responsible for it.
    NotOurs,
    /// It does not match the node selector.
    NotSelected,
    /// Its provider ID is another provider's.
    Foreign,
    /// It is already being deleted.
    Deleting,
    /// The answer is about an earlier node of that name, or the node has been deleted.
    AnotherNode,
    /// The operator protects it from deletion, although its instance is gone.
    Protected,
    /// Its kubelet has renewed its Lease since the cloud first reported its instance as gone.
    Alive,
    /// It is Ready, but on a machine that its provider ID does not name, and
    /// [`Replaced`](super::Replaced) excludes it from deletion.
    Replaced,
    /// It has no provider ID, and [`Ghosts`](super::Ghosts) excludes it from deletion.
    Ghost,
    /// The cloud did not answer, or too late, or with too weak a proof.
    NoAnswer,
}

/// Why a suspected node is not deleted yet. Its texts are for metric labels and log fields.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Doubt {
    /// The node is still in its grace period.
    Newborn,
    /// The confirmation period has not passed since the first answer.
    Unconfirmed,
    /// The latest answer of the cloud is unusable; the earlier ones still count.
    NoAnswer,
    /// The Lease of its kubelet could not be read, or not for a confirmation period.
    NoHeartbeat,
    /// The fleet has not been listed since the first answer.
    NotListed,
    /// The list shows the instance: one of the two answers is wrong, so the case starts again.
    Listed,
}

/// The action for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Verdict {
    /// No action.
    Keep(Reason),
    /// No action yet; the cloud reported the instance as gone.
    Suspect {
        /// When to look up the node again.
        look_again: At,
        /// The missing condition.
        why: Doubt,
    },
    /// Delete it. The decision has taken budget.
    Delete,
    /// Delete it, but the breaker is open.
    BreakerOpen,
    /// Delete it, but the budget is used up.
    OverBudget {
        /// When budget is available again; never, if the budget is zero.
        until: Option<At>,
    },
}

impl Verdict {
    /// Returns a short, stable name for metric labels and log fields.
    pub fn as_str(&self) -> &'static str {
        self.into()
    }

    /// Returns the detailed reason, for metric labels and log fields; empty for a reason without details.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Keep(reason) => reason.into(),
            Self::Suspect { why, .. } => why.into(),
            Self::Delete | Self::BreakerOpen | Self::OverBudget { .. } => "",
        }
    }
}

/// One accepted answer "gone".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// When the cloud was asked.
    pub asked: At,
    /// When the pass decided on the answer.
    pub answered: At,
    /// The key of the lookup.
    pub method: ProofMethod,
    /// The request and the response, in the cloud's words.
    pub evidence: String,
    /// The cloud's request ID.
    pub request_id: Option<String>,
}

impl Proof {
    /// Returns true if it is only a statement of the provider, without a request ID of the cloud.
    pub(super) fn is_weak(&self) -> bool {
        self.method == ProofMethod::ProvidersWord && self.request_id.is_none()
    }
}

/// How the cloud shows the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// By its list.
    #[default]
    #[strum(to_string = "the cloud's list")]
    List,
    /// By lookups of Ready nodes, the witnesses: it has no list.
    #[strum(to_string = "the cloud, which is asked node by node,")]
    Lookups,
}

/// The result of the last usable list, or of the lookups of witnesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListCoverage {
    /// The kind of answer: a list, or lookups.
    pub by: Source,
    /// Instances in the list, ours or not.
    pub instances: usize,
    /// Nodes that should be in the list.
    pub known: usize,
    /// How many of them are missing.
    pub missing: usize,
}

/// The evidence against a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The answer that opened the case.
    pub first: Option<Proof>,
    /// The latest answer "gone".
    pub latest: Option<Proof>,
    /// The number of such answers.
    pub answers: u32,
    /// The list of the latest pass, if it was usable.
    pub list: Option<ListCoverage>,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(first), Some(latest)) = (&self.first, &self.latest) else {
            return f.write_str("no evidence");
        };
        let seconds = latest.asked.since(first.answered).as_secs();
        if self.answers == 1 {
            write!(f, "one answer so far: {}", latest.evidence)?;
        } else {
            let answers = self.answers;
            write!(f, "{answers} answers over {seconds} s, the latest: {}", latest.evidence)?;
        }
        if let Some(request) = &latest.request_id {
            write!(f, " (request {request})")?;
        }
        if let Some(ListCoverage { by, instances, known, missing }) = self.list {
            let shown = known.saturating_sub(missing);
            match by {
                Source::List => {
                    write!(f, "; a list of {instances} instances shows {shown} of {known} nodes")?;
                }
                Source::Lookups => {
                    write!(f, "; lookups find the instances of {instances} Ready nodes")?;
                }
            }
        }
        Ok(())
    }
}

/// The policy's decision about one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The node.
    pub name: Arc<str>,
    /// The UID of the node; a deletion must use it as a precondition.
    pub uid: Box<str>,
    /// The action.
    pub verdict: Verdict,
    /// When the case was opened, by the first answer "gone". For a [`Verdict::Keep`] it is the
    /// case that this decision closed.
    pub since: Option<At>,
    /// The evidence against the node.
    pub evidence: Evidence,
    /// True if an approval exempts the deletion from breaker and budget.
    pub approved: bool,
}
