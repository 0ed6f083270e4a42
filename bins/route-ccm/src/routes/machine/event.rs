//! The events of the machine of routes.

use std::{collections::BTreeMap, sync::Arc};

use ccm_base::At;
use ccm_cloud::{
    AppliedChange, CloudError, LookupResult, RouteTable, RouteTarget, RouteTraits, TargetState,
};
use ccm_controller::brake::Window;
use ccm_kube::ApiError;
use ccm_objects::{Node, Shared as Name};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{
    networks::Config,
    routes::plan::{Parameters, Planned, claims::Claim, condition::Status, wanted::NodeView},
};

/// An event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The term begins.
    Term(Box<Term>),
    /// A node is new, or has changed.
    Changed {
        /// The node before.
        before: Option<NodeView>,
        /// The node now.
        after: NodeView,
    },
    /// A node is gone.
    Gone {
        /// The node.
        view: NodeView,
        /// True if an autoscaler had marked it.
        is_marked: bool,
    },
    /// A node has got its pod CIDRs from us, which the informer does not report.
    Assigned(NodeView),
    /// It is time for a pass over all nodes.
    Pass(Box<Pass>),
    /// The table was listed, or not.
    Listed {
        /// The answer.
        answer: Result<RouteTable, CloudError>,
        /// The nodes as they are then.
        pass: Box<Pass>,
    },
    /// The cloud has answered about targets.
    Asked {
        /// The answers.
        answers: Vec<(RouteTarget, Result<TargetState, CloudError>)>,
        /// The targets that belong to nodes.
        witnesses: Vec<RouteTarget>,
    },
    /// The cloud has answered about the instances of nodes.
    LookedUp(Vec<(Claim, LookupResult)>),
    /// Changes have waited for a lane, and are about to be sent.
    Sending(Box<Sending>),
    /// The cloud has answered about a change.
    Applied(Box<Applied>),
    /// A call that changes routes has ended.
    Ended,
    /// The condition of a node may have to be written.
    Condition {
        /// The name of the node.
        name: Name,
        /// The node, if there is one.
        node: Option<NodeView>,
        /// The reason why the node does not have pod CIDRs, if this program does not assign any now.
        lack: Option<String>,
    },
    /// The API server has answered the write of a condition.
    Written(Box<Written>),
    /// It is time to search for conditions that an earlier controller has left on these nodes.
    LeftOver(Vec<NodeView>),
    /// The program ends, and no pass begins any more.
    Ending,
}

/// The inputs of a new term.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Term {
    /// The begin, by the clock of creation times.
    pub(crate) begun: At,
    /// The deletions of the last leader.
    pub(crate) deleted: Window,
    /// The cluster CIDRs of the last leader.
    pub(crate) networks: Vec<IpNet>,
    /// How nodes get their pod CIDRs, if they get them from this program.
    pub(crate) blocks: Option<Config>,
}

/// Everything that a pass depends on, besides the memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pass {
    /// The settings and the approval.
    pub(crate) parameters: Parameters,
    /// The nodes.
    pub(crate) nodes: Vec<NodeView>,
    /// The reasons why nodes do not have pod CIDRs, for the nodes to which this program does not assign any now.
    pub(crate) lacks: BTreeMap<Name, String>,
    /// The networks that nodes get when no route leads to them any more.
    pub(crate) awaited: Vec<IpNet>,
    /// The traits of the provider.
    pub(crate) traits: RouteTraits,
    /// True if the cloud can be asked for the instances of nodes.
    pub(crate) has_instances: bool,
    /// How many calls may wait for a lane.
    pub(crate) room: usize,
}

/// Changes that are about to be sent, and the data that they depend on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sending {
    /// The changes.
    pub(crate) batch: Vec<Planned>,
    /// The version of the table.
    pub(crate) base: Option<String>,
    /// The current nodes: all nodes if a route is removed, otherwise the nodes of the changes.
    pub(crate) pass: Pass,
}

/// The answer about a change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Applied {
    /// The change.
    pub(crate) planned: Planned,
    /// The answer.
    pub(crate) answer: Result<AppliedChange, CloudError>,
    /// The node of this name now.
    pub(crate) node: Option<NodeView>,
    /// True if the provider replaces routes in one step.
    pub(crate) replaces: bool,
}

/// The answer to the write of a condition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Written {
    /// The node as it was when it was written.
    pub(crate) asked: Arc<Node>,
    /// The status.
    pub(crate) status: Status,
    /// True if it was another one before.
    pub(crate) moves: bool,
    /// The answer. An error of `None`: nothing was sent.
    pub(crate) answer: Result<NodeView, Option<ApiError>>,
    /// The reason why the node does not have pod CIDRs, if this program does not assign any now.
    pub(crate) lack: Option<String>,
}
