//! Checks the provider ID that a kubelet has given its node.

use std::{fmt, sync::Arc};

use ccm_cloud::Instance;
use ccm_controller::identity::{Agreement, has_better_right};
use ccm_objects::Node;
use serde::{Deserialize, Serialize};

/// How node-ccm treats a new node whose provider ID nothing confirms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdentityPolicy {
    /// It keeps its taint, and nothing is written.
    #[default]
    Strict,
    /// It is initialised, and reported.
    Report,
}

impl IdentityPolicy {
    /// The values of the setting.
    pub const WORDS: &[(&str, Self)] = &[("strict", Self::Strict), ("report", Self::Report)];
}

/// The reason why the instance may not belong to the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Doubt {
    /// Another node has the provider ID, and a better claim to it.
    Anothers {
        /// The provider ID.
        id: String,
        /// The other node.
        node: String,
    },
    /// No property of the node agrees with the instance.
    NothingAgrees {
        /// The provider ID.
        id: String,
        /// The instance's name and addresses.
        instance: String,
    },
    /// Neither the cloud nor the kubelet reports anything that could agree.
    NotComparable(String),
}

impl Doubt {
    /// Returns the doubt about this node and instance. `rivals` are the other nodes with its ID. An
    /// ID that the kubelet has not written itself was found by the name or the system UUID, and
    /// agrees.
    pub(super) fn find(node: &Node, instance: &Instance, rivals: &[Arc<Node>]) -> Option<Self> {
        let id = instance.provider_id.to_string();
        let mut better = rivals.iter().filter(|one| has_better_right(one, node, Some(instance)));
        if let Some(other) = better.next() {
            return Some(Self::Anothers { id, node: other.name.to_string() });
        }
        node.provider_id.as_ref()?;
        match Agreement::between(node, instance) {
            Agreement::Nothing => {
                let addresses = instance.addresses.iter().map(|one| &*one.address);
                let name = std::iter::once(&*instance.name).filter(|name| !name.is_empty());
                let instance = name.chain(addresses).collect::<Vec<_>>().join(", ");
                Some(Self::NothingAgrees { id, instance })
            }
            Agreement::Unknown if node.is_uninitialised() => Some(Self::NotComparable(id)),
            _ => None,
        }
    }

    /// Returns true if a new node waits because of it.
    pub(crate) fn holds(&self) -> bool {
        !matches!(self, Self::NotComparable(_))
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anothers { id, node } => write!(
                f,
                "{id} is the instance of {node}: delete that node if its machine was renamed, or correct the provider ID of this one"
            ),
            Self::NothingAgrees { id, instance } => write!(
                f,
                "neither the name nor the system UUID nor an address of the node agrees with {id} ({instance}): correct the kubelet's --provider-id, or set --node-identity=report"
            ),
            Self::NotComparable(id) => write!(
                f,
                "nothing confirms the provider ID {id}: the cloud and the kubelet do not report names and addresses to compare"
            ),
        }
    }
}
