//! What the policy says.

use std::{fmt, sync::Arc};

use ccm_cloud::ProofMethod;
use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

use super::At;

/// Why a node is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// It is Ready again.
    Ready,
    /// Its instance exists.
    Exists,
    /// The cloud says that it is somebody else's.
    NotOurs,
    /// It does not match the node selector.
    NotSelected,
    /// Its provider ID is another provider's.
    Foreign,
    /// Somebody deletes it already.
    Deleting,
    /// The answer is about an earlier node of that name, or the node has vanished.
    AnotherNode,
    /// The operator forbids its deletion, although its instance is gone.
    Protected,
    /// It has no provider ID, and such nodes are not judged.
    Ghost,
    /// The cloud did not answer, or not in time, or with a proof too weak.
    NoAnswer,
}

impl Reason {
    /// Every one of them.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// A short, stable name for metric labels and log fields.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// What is missing until a suspected node can be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Doubt {
    /// The node is within its grace period.
    Newborn,
    /// The first answer is too fresh.
    Unconfirmed,
    /// This time the cloud did not answer usably; what it said before still stands.
    NoAnswer,
    /// The fleet was not listed since the first answer.
    NotListed,
    /// The list shows the instance: one of the two answers is wrong, so the case starts anew.
    Listed,
}

impl Doubt {
    /// Every one of them.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// A short, stable name for metric labels and log fields.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// What is to be done about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Verdict {
    /// Nothing.
    Keep(Reason),
    /// Nothing yet; the cloud said that the instance is gone.
    Suspect {
        /// When the node is looked at again.
        look_again: At,
        /// What is missing.
        why: Doubt,
    },
    /// Delete it. The budget is taken.
    Delete,
    /// It would be deleted, but the breaker is open.
    BreakerOpen,
    /// It would be deleted, but the budget is used up.
    OverBudget {
        /// When there is budget again; never by itself if the budget is zero.
        until: Option<At>,
    },
}

impl Verdict {
    /// A short, stable name for metric labels and log fields.
    pub fn as_str(&self) -> &'static str {
        self.into()
    }

    /// The finer reason, for metric labels and log fields; empty where there is none.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Keep(reason) => reason.as_str(),
            Self::Suspect { why, .. } => why.as_str(),
            Self::Delete | Self::BreakerOpen | Self::OverBudget { .. } => "",
        }
    }
}

/// One answer "gone" that counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// When it was asked.
    pub asked: At,
    /// When it was answered.
    pub answered: At,
    /// By what the cloud was asked.
    pub method: ProofMethod,
    /// What was asked for and what came back, in the cloud's words.
    pub evidence: String,
    /// The cloud's ID of the request.
    pub request_id: Option<String>,
}

/// What the last usable list showed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ListCoverage {
    /// Instances in the list, ours or not.
    pub instances: usize,
    /// Nodes that should be in it.
    pub known: usize,
    /// Those of them that are not.
    pub missing: usize,
}

/// All that speaks against a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The answer that opened the case.
    pub first: Option<Proof>,
    /// The latest answer "gone".
    pub latest: Option<Proof>,
    /// How many such answers there were.
    pub answers: u32,
    /// The list of this answers, if it was usable.
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
        if let Some(coverage) = &self.list {
            write!(
                f,
                "; a list of {} instances shows {} of {} nodes",
                coverage.instances,
                coverage.known.saturating_sub(coverage.missing),
                coverage.known
            )?;
        }
        Ok(())
    }
}

/// What the policy says about one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// The node.
    pub name: Arc<str>,
    /// The very object that the decision is about; a deletion must demand it.
    pub uid: Box<str>,
    /// What is to be done.
    pub verdict: Verdict,
    /// When the case was opened: when the first answer "gone" was heard. For a
    /// [`Verdict::Keep`] it is the case that this decision ended.
    pub since: Option<At>,
    /// What speaks against the node.
    pub evidence: Evidence,
}
