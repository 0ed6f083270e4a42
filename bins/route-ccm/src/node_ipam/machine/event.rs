//! The events of the machine of node IPAM.

use std::sync::Arc;

use ccm_base::At;
use ccm_cloud::LookupResult;
use ccm_kube::ApiError;
use ccm_objects::{Node, Shared as Name};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{networks::BlockSizes, node_ipam::ipam::HeldBlocks};

/// An event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The term begins. The nodes are not read in it yet.
    TermBegins,
    /// The nodes are read.
    Begin(Begin),
    /// A node is new, or has changed.
    Changed {
        /// The node before.
        before: Option<Arc<Node>>,
        /// The node now.
        after: Arc<Node>,
    },
    /// A node is gone.
    Gone(Arc<Node>),
    /// It is the turn of a node, which gets blocks of the cluster CIDRs.
    Turn {
        /// Its name.
        name: Name,
        /// The node, if there is one.
        node: Option<Arc<Node>>,
    },
    /// The cloud has answered about the instance of a node.
    Found(Box<Found>),
    /// The provider ID of the node is another provider's.
    NotOurs(Arc<Node>),
    /// The API server has answered a write.
    Written(Box<Written>),
    /// The table of the routes, with the routes that are being made.
    RoutesAre {
        /// The destinations.
        destinations: Vec<IpNet>,
        /// When the table was requested from the cloud.
        read: At,
    },
    /// The table does not have a route with this destination, and route-ccm is not making one.
    RouteGone(IpNet),
    /// Time has passed.
    Time,
    /// The program does not assign blocks any more.
    Ends,
}

/// The inputs of a new term.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Begin {
    /// All nodes.
    pub(crate) nodes: Vec<Arc<Node>>,
    /// The blocks that the last leader has held.
    pub(crate) held: Vec<HeldBlocks>,
    /// Since when blocks have had their sizes.
    pub(crate) sizes: BlockSizes,
}

/// An answer of the cloud.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Found {
    /// The node as it was when the cloud was asked.
    pub(crate) asked: Arc<Node>,
    /// The node of this name now.
    pub(crate) node: Option<Arc<Node>>,
    /// The answer.
    pub(crate) answer: LookupResult,
    /// How often in a row the node has failed before.
    pub(crate) failures: u32,
}

/// An answer to a write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Written {
    /// The node as it was when it was written.
    pub(crate) asked: Arc<Node>,
    /// The pod CIDRs.
    pub(crate) cidrs: Vec<IpNet>,
    /// The node of this name now.
    pub(crate) node: Option<Arc<Node>>,
    /// The answer. An error of `None`: nothing was sent.
    pub(crate) answer: Result<Arc<Node>, Option<ApiError>>,
}
