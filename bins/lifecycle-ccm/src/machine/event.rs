//! The events that the machine gets.

use std::{collections::BTreeSet, sync::Arc};

use ccm_cloud::{Claim, CloudError, LookupResult};
use ccm_controller::brake::{Window, approval::SetApproval};
use ccm_kube::ApiError;
use ccm_kube::selector::NodeSelector;
use ccm_objects::{Node, Shared as Name};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::policy::{Heartbeat, Policy, action::Action, shutdown::Removal};

/// An event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Event {
    /// The settings are these now.
    Parameters(Box<Parameters>),
    /// The term of this leader begins.
    TermBegins(HandoverNote),
    /// The approval on the Lease has changed.
    Approved(Option<SetApproval>),
    /// The API server shows a node that is new or has changed.
    Seen {
        /// The node as it is now.
        node: Arc<Node>,
        /// See [`Claimed::claim`].
        claim: Option<Claim>,
        /// True if it was created while this process was watching.
        is_new: bool,
    },
    /// The API server does not have this node any more.
    Gone {
        /// Its name.
        name: Name,
        /// Its UID.
        uid: Box<str>,
    },
    /// A pass begins.
    Pass(Sight),
    /// The writes at the beginning of the pass have ended, and the cloud can be asked.
    Due {
        /// The number of nodes that it answers in one lookup.
        most_lookups: usize,
        /// True if it can list the fleet.
        lists: bool,
        /// A random number, another one for each pass: it selects the witnesses.
        seed: u64,
    },
    /// The cloud has answered about a node.
    LookedUp {
        /// The node's name.
        name: Name,
        /// The node's UID when it was looked up.
        uid: Box<str>,
        /// True if it is a witness.
        is_witness: bool,
        /// The answer.
        result: LookupResult,
    },
    /// The cloud has listed the fleet, or failed to.
    Listed(Result<FleetList, CloudError>),
    /// All calls to the cloud have ended.
    Answered,
    /// The Lease of a node's kubelet was read.
    Beat {
        /// The node's name.
        name: Name,
        /// The Lease; `None` if it could not be read.
        shown: Option<Heartbeat>,
    },
    /// All answers have arrived.
    Decide {
        /// The nodes as they are now.
        sight: Sight,
        /// The list, if there is one, compared with the nodes.
        unlisted: Unlisted,
    },
    /// The API server has answered a write.
    Written {
        /// The write.
        action: Action,
        /// The answer.
        answer: WriteAnswer,
    },
    /// The pass ends.
    Ended,
}

/// The API server's answer to a write: the node after the write, unless it was deleted. The error
/// is `None` if nothing was sent.
pub type WriteAnswer = Result<Option<Arc<Node>>, Option<ApiError>>;

/// The settings that the machine uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// The parameters of the deletion policy.
    pub policy: Policy,
    /// The selector of the nodes that the policy applies to.
    pub node_selector: NodeSelector,
    /// The keys of taints that mark a node for scale-down.
    pub scale_down_taints: Vec<String>,
    /// When the shutdown taint is removed.
    pub shutdown_taint_removal: Removal,
}

/// The note of a leader to the next one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HandoverNote {
    /// The deletions that may still count for the budget.
    #[serde(default)]
    pub deleted: Window,
    /// The UIDs of nodes that run on another machine than before.
    #[serde(default)]
    pub replaced: BTreeSet<Box<str>>,
}

/// The inputs of a look at the nodes, besides the nodes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sight {
    /// The time of the wall clock, for comparison with the creation times of nodes.
    pub wall: Timestamp,
    /// The claims that have changed.
    pub claims: Vec<Claimed>,
}

/// The claim of the provider to a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claimed {
    /// The node's name.
    pub name: Name,
    /// The provider ID that the claim is about.
    pub provider_id: Option<Name>,
    /// The claim; `None` while the provider does not know its own schemes.
    pub claim: Option<Claim>,
}

/// A list of the fleet.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FleetList {
    /// The number of instances in it.
    pub instances: usize,
    /// The number of entries that could not be parsed.
    pub malformed: usize,
}

/// The comparison of a list with the nodes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Unlisted {
    /// The nodes that the list lacks.
    pub missing: BTreeSet<Name>,
    /// The [arrival](super::Machine::compared) of the last node that was compared.
    pub as_of: u64,
}
