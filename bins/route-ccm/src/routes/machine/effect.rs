//! The effects of the machine of routes.

use std::{sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::{CloudError, RouteTarget};
use ccm_controller::brake::{Transition, Window};
use ccm_controller::queue::Priority;
use ccm_controller::repeats::Repeated;
use ccm_kube::ApiError;
use ccm_objects::{Node, Shared as Name};
use ipnet::IpNet;
use serde::Serialize;

use crate::{
    node_ipam,
    routes::plan::{
        Cause, Counts, Planned,
        claims::Claim,
        condition::{NewCondition, Status},
        wanted::{LeftOut, Problem},
    },
};

/// An effect of an event.
#[derive(Clone, Debug, Serialize)]
pub(crate) enum Effect {
    /// Make a call to the cloud.
    Call(Call),
    /// Write the condition of a node.
    Write { node: Arc<Node>, condition: NewCondition },
    /// Make a pass over all nodes soon.
    Wake,
    /// Make a pass at this time, or earlier.
    Due(At),
    /// Check the condition of the node.
    Condition(Name, Priority),
    /// The condition is written, so the next failure is the first one.
    ForgetCondition(Name),
    /// Check the condition of the node again after this time.
    ConditionEvery(Name, Duration),
    /// Check the condition of the node again after a failure: the write was not sent.
    ConditionAgain(Name),
    /// A condition was refused. `is_told` if the user learns it.
    ConditionRefused { node: Arc<Node>, error: ApiError, is_told: bool },
    /// Leave the deletions of routes and the cluster CIDRs to the next leader.
    Leave { deleted: Window, networks: Vec<IpNet> },
    /// Tell node IPAM the content of the table.
    Ipam(node_ipam::machine::Event),
    /// Show these entries on the page `/plan`, and no others of their kind.
    Show(Page),
    /// The node is gone: forget the reports about it.
    Forget(Name),
    /// The gauges have these values.
    Counted(Counts),
    /// A list has ended: the number of routes, the number of unreadable ones, and the first of
    /// these.
    ListEnded(Result<(usize, usize, Option<String>), CloudError>),
    /// The first list has succeeded.
    TableKnown,
    /// The answers of the cloud about targets do not prove anything: it says that this target of a
    /// node is gone.
    Lies(RouteTarget),
    /// The cloud does not answer about instances.
    LookUpFailed(CloudError),
    /// A change is not due any more.
    Withdrawn(Planned),
    /// A change was answered, with the defect of the route.
    Answered {
        planned: Box<Planned>,
        answer: Result<Option<String>, CloudError>,
        node: Option<Arc<Node>>,
        replaces: bool,
    },
    /// The cloud does not keep a change.
    RouteRepeated { planned: Box<Planned>, node: Option<Arc<Node>>, repeated: Repeated },
    /// The node has all its routes for the first time.
    Completed(Arc<Node>),
    /// A write of a condition was answered.
    WriteEnded(Option<ApiError>),
    /// Another client or a policy undoes a condition.
    ConditionRepeated { node: Arc<Node>, repeated: Repeated },
    /// The node shows the status.
    ConditionShown(Name, Status),
    /// Report a node without pod CIDRs.
    Bare(Arc<Node>),
    /// Report the pod CIDRs of a node that do not get routes.
    Problems(Arc<Node>, Vec<Problem>),
    /// Report on this node that routes wait for a person.
    WaitsForAPerson(Arc<Node>, String),
    /// The number of held changes, with the first one and the reason.
    Held(usize, Option<String>),
    /// The line about the brake.
    Brake(Result<(), String>),
    /// The breaker has opened or closed.
    Breaker(Transition<Cause>),
    /// The nodes with conditions that an earlier controller has left.
    LeftOver(Vec<Arc<Node>>),
}

/// A call to the cloud.
#[derive(Clone, Debug, Serialize)]
pub(crate) enum Call {
    /// Lists the table.
    List,
    /// Asks whether targets exist, together with some that do exist.
    Ask { targets: Vec<RouteTarget>, witnesses: Vec<RouteTarget> },
    /// Looks up the instances of nodes.
    LookUp(Vec<Claim>),
    /// Changes the table, when a lane is free.
    Apply { batch: Vec<Planned>, base: Option<String> },
    /// Changes the table now.
    Send { batch: Vec<Planned>, base: Option<String> },
}

/// The reason why a node does not get a route.
#[derive(Clone, Debug, Serialize)]
pub(crate) enum Blocked {
    /// The node is excluded.
    LeftOut(Arc<Node>, LeftOut),
    /// The reason, in words.
    Because(String),
}

/// All entries of a kind on the page `/plan`.
#[derive(Clone, Debug, Serialize)]
pub(crate) enum Page {
    /// The changes of routes.
    Routes(Vec<Planned>),
    /// The conditions of nodes.
    Conditions(Vec<(Name, NewCondition)>),
    /// The reasons why nodes do not get a route.
    Blocked(Vec<(Name, Blocked)>),
}
