//! The effects of the machine of node IPAM.

use std::{sync::Arc, time::Duration};

use ccm_base::{At, RetryClass};
use ccm_controller::queue::Pace;
use ccm_controller::queue::Priority;
use ccm_kube::ApiError;
use ccm_objects::{Node, Shared as Name};
use ipnet::IpNet;
use serde::Serialize;

use crate::node_ipam::ipam::{Foreign, HeldBlocks, Problem, Rival};

/// An effect of an event.
#[derive(Clone, Debug, Serialize)]
pub(crate) enum Effect {
    /// Write these pod CIDRs to the node.
    Write { node: Arc<Node>, cidrs: Vec<IpNet> },
    /// Queue the node.
    Queue(Name, Priority),
    /// The node's turn is over: the next failure is the first one.
    Forget(Name),
    /// The node is gone: remove it from the queue.
    Remove(Name),
    /// Queue the node again after this time.
    RetryEvery(Name, Duration),
    /// Queue the node again after a failure.
    RetryAs(Name, RetryClass),
    /// Queue the node again after a refused write. The event is on this node.
    RetryRefused { name: Name, error: ApiError, told: Option<Arc<Node>> },
    /// Check the condition of the node.
    Condition(Name, Priority),
    /// Show on the page `/plan` what the node gets, and the reason if not now.
    Show { node: Arc<Node>, cidrs: Vec<IpNet>, held: Option<String> },
    /// Remove it from the page.
    Clear(Name),
    /// Leave the blocks of nodes that are gone to the next leader.
    Leave(Vec<HeldBlocks>),
    /// Check again at this time.
    Due(At),
    /// Check again now.
    WakeRelease,
    /// Tell the routes that the node has got its pod CIDRs, which the informer does not report.
    Assigned(Arc<Node>),
    /// The controller runs, or does not.
    Runs(bool),
    /// The allocator stops because another one is at work, or continues.
    Stops(bool),
    /// All nodes are known: how many have pod CIDRs, and how many do not.
    Known { assigned: usize, bare: usize },
    /// How many places were tried for the blocks of each cluster CIDR.
    Tried(Vec<u32>),
    /// A write has ended.
    Ended(WriteEnd),
    /// The node has got its pod CIDRs from us.
    Given(Arc<Node>),
    /// Report that the node does not get pod CIDRs now.
    HasNone { node: Arc<Node>, state: String, why: String },
    /// Report the end of that.
    HasCidrs(Arc<Node>),
    /// Report that the API server has not stored them.
    NotStored { node: Arc<Node>, why: String, pace: Pace },
    /// Report the problem with the pod CIDRs of the node of this name.
    Strange(Name, Problem),
    /// Report that another client has given the node its pod CIDRs.
    Foreign(Arc<Node>, Foreign),
    /// Report that another allocator is at work.
    Rival(Arc<Node>, Rival),
}

/// The end of a write.
#[derive(Clone, Debug, Serialize)]
pub(crate) enum WriteEnd {
    /// The answer shows the pod CIDRs.
    Stored,
    /// The answer is that it is done, and does not show them.
    NotStored,
    /// The API server has refused it, or its outcome is not known.
    Refused(ApiError),
}
