//! The events of the machine.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{Claim, Instance, LookupResult};
use ccm_controller::brake::{Budget, Window, approval::SetApproval};
use ccm_kube::ApiError;
use ccm_kube::selector::NodeSelector;
use ccm_objects::{Node, Shared as Name};
use serde::{Deserialize, Serialize};

use super::inventory::KnownAnswer;
use crate::plan::Policy;

/// The settings that the machine uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Params {
    /// See [`Policy`]. The traits of the cloud come with each node.
    pub(crate) policy: Policy,
    /// The nodes that are written.
    pub(crate) selector: NodeSelector,
    /// The number of Ready nodes that may change within a time.
    pub(crate) budget: Budget,
    /// Writes to initialised nodes per second.
    pub(crate) per_second: Option<f64>,
    /// The time between two refreshes.
    pub(crate) period: Duration,
    /// True if plans are only published.
    pub(crate) is_observing: bool,
}

/// A node, and what the traits of the cloud say of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SeenNode {
    /// The node.
    pub(crate) node: Arc<Node>,
    /// The provider's claim to it; `None` while the claim is unknown.
    pub(crate) claim: Option<Claim>,
    /// Its provider ID in the form that the cloud returns.
    pub(crate) id: Option<String>,
    /// True if the cloud's labels are only added.
    pub(crate) labels_only_add: bool,
}

/// A node that a worker has, with the cloud's answer about it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    /// The node as it was when the cloud was asked.
    pub(crate) asked: Arc<Node>,
    /// The node now.
    pub(crate) seen: SeenNode,
    /// The cloud's answer.
    pub(crate) answer: LookupResult,
    /// The other nodes with the provider ID of the instance.
    pub(crate) rivals: Vec<Arc<Node>>,
    /// The number of consecutive failures of the work on the node.
    pub(crate) failures: u32,
}

/// An event.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// This replica leads. Its store may still be old.
    TermBegins {
        /// The changes of Ready nodes that the last leader has made.
        left: Window,
        /// The settings now.
        params: Params,
    },
    /// The settings have changed.
    Set(Params),
    /// The store is new: from now on nodes are queued.
    StoreIsNew,
    /// A node that existed before this replica led.
    Listed(SeenNode),
    /// A node is new.
    Added(SeenNode),
    /// A node has changed.
    Updated {
        /// The node as it was.
        old: Arc<Node>,
        /// The node now.
        new: SeenNode,
    },
    /// A node is gone.
    Deleted(Arc<Node>),
    /// The event before was about a node that the store no longer has.
    Gone(Name),
    /// The approval of a user on the Lease.
    Approved(Option<SetApproval>),
    /// It is the node's turn in the queue: should the cloud be asked?
    Look(SeenNode),
    /// A call had too many nodes; this one is queued again.
    AskedAgain(Name),
    /// The cloud's answers in a call.
    Answered {
        /// The time since the call began.
        ago: Duration,
        /// The nodes with their answers.
        answers: Vec<(Arc<Node>, LookupResult)>,
    },
    /// A worker has a node and the cloud's answer about it.
    Work(Box<Work>),
    /// The API server has answered the last write to this node. `None`: nothing was sent.
    Written {
        /// The node.
        name: Name,
        /// The node after the write, or the error.
        answer: Result<Arc<Node>, Option<ApiError>>,
    },
    /// A write met one of many conflicts in a row.
    Conflicts {
        /// The node of the write.
        node: Arc<Node>,
        /// The kind of the write.
        what: String,
    },
    /// A refresh begins: these are all nodes.
    Refresh(Vec<SeenNode>),
    /// A lookup of many nodes has found these instances.
    Found {
        /// The time since it began.
        ago: Duration,
        /// The instances.
        instances: Vec<Instance>,
    },
    /// The answer about one of the nodes of a refresh.
    Compare {
        /// The node as it was when the refresh began.
        seen: SeenNode,
        /// The answer.
        answer: KnownAnswer,
    },
    /// All nodes of the refresh were compared.
    Compared {
        /// The time since the refresh began.
        ago: Duration,
    },
}
