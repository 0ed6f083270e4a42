//! The reasons why a change of a route is not made now.

use std::fmt;

use ccm_cloud::ErrorKind;
use ccm_controller::brake::Hold;
use ccm_objects::Shared;
use serde::{Deserialize, Serialize};

use super::{failures::Failure, wanted::LeftOut};

/// The reason why a change is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Held {
    /// The brake holds it.
    Brake(Hold),
    /// Only the last change of the cluster CIDRs makes the route ours.
    NewlyInside {
        /// The node to which it leads or led, if it is known.
        node: Option<Shared>,
    },
    /// It leads to an excluded node, which does not get a route.
    LeftOut {
        /// The node.
        node: Shared,
        /// The reason why it is excluded.
        why: LeftOut,
    },
    /// It waits for the retry of a failed change.
    Retry(Failure),
    /// The route table has no room.
    NoRoom,
}

impl Held {
    /// Returns the node to which a route leads that only a person lets go.
    pub const fn waits_for_a_person(&self) -> Option<&Shared> {
        match self {
            Self::NewlyInside { node } => node.as_ref(),
            Self::LeftOut { node, .. } => Some(node),
            Self::Brake(_) | Self::Retry(_) | Self::NoRoom => None,
        }
    }
}

/// The reason in words.
impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Brake(hold) => hold.fmt(f),
            Self::NewlyInside { .. } => f.write_str(
                "no owner is recorded, and it is inside --cluster-cidr only since that was changed: check --cluster-cidr, or approve it",
            ),
            Self::LeftOut { node, why: LeftOut::AnotherProvider } => {
                write!(
                    f,
                    "the provider ID of node {node} is not one of this provider, so it does not need a route: approve its deletion"
                )
            }
            Self::LeftOut { node, why: LeftOut::NotSelected } => write!(
                f,
                "node {node} does not match --node-selector: check that, or approve the deletion of the route"
            ),
            Self::Retry(Failure { retry, error, kind }) => {
                let why = match kind {
                    Some(ErrorKind::Pending) => "the cloud is still making the change",
                    _ => "the last attempt failed",
                };
                write!(f, "{why}, retried at {}: {error}", retry.at)
            }
            Self::NoRoom => f.write_str("the route table has no room for another route"),
        }
    }
}
