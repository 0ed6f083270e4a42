//! The effects of the machine.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_base::{Backoff, RetryClass};
use ccm_cloud::LookupResult;
use ccm_controller::brake::Hold;
use ccm_controller::queue::{LONG_RETRY, Pace, Priority};
use ccm_controller::repeats::Repeated;
use ccm_kube::ApiError;
use ccm_objects::{Node, Shared as Name};
use serde::Serialize;

use super::{
    NodeState, Problem,
    gathered::{Pause, TooMany},
};
use crate::plan::{Note, Outcome, Plan, Step, Wait};

/// An effect of an event.
#[derive(Debug, Serialize)]
pub(crate) enum Effect {
    /// The queue does this with the node.
    Queue(Name, Queued),
    /// The node is tried again, and the user learns why and when.
    Retry(Arc<Node>, Again, RetryReason),
    /// This number of nodes has entered the state, or left it if negative.
    Counts(NodeState, i64),
    /// The number of nodes that wait for their turn has changed.
    TurnsWait,
    /// The breaker opens.
    BreakerOpens(TooMany),
    /// The breaker closes.
    BreakerCloses,
    /// The brake has changed: it holds other nodes, or another number of them.
    BrakeChanges,
    /// The next leader should know of the last changes.
    Leave,
    /// The plan for a node, for the page, and why it is not executed now.
    Publish(Arc<Node>, Arc<Plan>, Option<Pause>),
    /// The node does not have a plan any more.
    Clear(Name),
    /// The node is gone.
    Forget(Name),
    /// The node is another provider's, or not selected.
    LeftOut {
        /// The node.
        node: Arc<Node>,
        /// True if the selector selects it.
        is_selected: bool,
    },
    /// The user should learn this of a node.
    Report(Arc<Node>, Report),
    /// These fields do not last.
    Repeats(Vec<String>),
    /// A node is held because nothing confirms its provider ID.
    HeldUnconfirmed,
    /// The number of nodes with each problem.
    Irregular(BTreeMap<Problem, usize>),
    /// A request to the outside.
    Request(Request),
}

/// An effect for the part of the program that has applied the event: a write or a lookup, whose
/// answer is an event, or a result for the lookups and the refresh.
#[derive(Debug, Serialize)]
pub(crate) enum Request {
    /// Tells the lookups whether the node needs work or a call.
    Due(Due),
    /// A write to the API server.
    Write {
        /// The version that the write is for.
        node: Arc<Node>,
        /// The write.
        step: Step,
        /// True if the Lease has to be stored before.
        is_charged: bool,
    },
    /// The node was written by another client, and is queued soon unless this happens too often.
    Conflict {
        /// The node of the write.
        node: Arc<Node>,
        /// The kind of the write.
        what: &'static str,
        /// The number of conflicts in a row that are usual.
        most: u32,
        /// The priority with which the node is queued.
        priority: Priority,
    },
    /// A lookup of all of these nodes.
    LookUp(Vec<Arc<Node>>),
    /// The number of initialised nodes that differ from their instances.
    Differing(usize),
}

/// The next thing to do for a node in the queue.
#[derive(Debug, Serialize)]
pub(crate) enum Due {
    /// Nothing.
    Nothing,
    /// Work with this answer.
    Known(LookupResult),
    /// A lookup.
    Ask,
}

/// An order to the queue about a node.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Queued {
    /// The node is added.
    Add(Priority),
    /// The node is added after this time.
    After(Duration),
    /// The node is added after the next wait of its back-off.
    Again(Again),
    /// The node's failures are forgotten: its back-off begins anew.
    Forget,
}

/// The back-off after failures. Upstream begins with 5 ms, which means eight calls to a failing
/// cloud within a second.
pub(crate) const RETRY: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };

/// When a node is tried again.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Again {
    /// As the class of its error requires.
    As(RetryClass),
    /// After this time.
    Every(Duration),
    /// Rarely: an operator has to do something.
    Rarely,
}

impl Again {
    /// Returns the pace of the queue for it.
    pub(super) fn pace(self) -> Pace {
        match self {
            Self::As(class) => Pace::after_error(class, RETRY),
            Self::Every(wait) => Pace::Every(wait),
            Self::Rarely => Pace::Every(LONG_RETRY),
        }
    }
}

/// The reason why a node is tried again, for a report that says when.
#[derive(Debug, Serialize)]
pub(crate) enum RetryReason {
    /// It keeps its taint.
    Waits(Wait),
    /// The API server rejects a write of this kind.
    Refused(String, ApiError),
}

/// A report about a node.
#[derive(Debug, Serialize)]
pub(crate) enum Report {
    /// The node is about to be initialised.
    Begins,
    /// The facts of its plan.
    Notes(Arc<Plan>),
    /// A step of its plan was stored.
    Stored(Arc<Plan>, Step),
    /// A change of a Ready node was made.
    Made(Note),
    /// It lost its taint.
    Untainted,
    /// It is initialised.
    Initialised,
    /// The API server has not stored what it has answered as done.
    NotStored(Repeated),
    /// Another client undoes what was written.
    Repeated(Arc<Plan>, Repeated),
    /// The brake holds its plan.
    Held(Arc<Plan>, Hold),
    /// The reason why node-ccm skips it.
    Skipped(Outcome),
    /// Other nodes have its provider ID.
    Duplicate {
        /// The provider ID.
        id: String,
        /// The names of all of them.
        names: String,
    },
}
