//! The effects of the machine: calls, writes, reports, wake-ups.

use std::{sync::Arc, time::Duration};

use ccm_base::RetryClass;
use ccm_cloud::{CloudError, Digest, LoadBalancer, MemberChange, Note, Unwanted, Wanted};
use ccm_controller::{
    queue::{Pace, Priority},
    repeats::Repeated,
};
use ccm_kube::ApiError;
use ccm_objects::{Service, Shared as Name};
use ccm_runtime::plans;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::left::LeaderNote;
use crate::plan::{
    CallKind, Step, front_end::SpecProblem, members::Decision, orphans::Orphan, shown::Refused,
    status::StatusPatch,
};

/// An effect of an event.
#[derive(Debug, Serialize)]
pub(crate) enum Effect {
    /// The queue of this lane should do this with the Service of this name.
    Queue(Name, Lane, Turn),
    /// Work that should be done soon.
    Wake(Task),
    /// A report about a Service.
    Tell(Arc<Service>, Tell),
    /// A report about load balancers without a Service.
    TellOrphan(TellOrphan),
    /// A line of the log, about the Service of this name if there is one.
    Log(LogLevel, Option<Name>, String),
    /// The plan of an object, on the page `/plan`.
    Show(PlanPage),
    /// The reports about the object with this name are forgotten.
    ForgetReports(Name),
    /// Something to count.
    Count(Count),
    /// A line of `/readyz?verbose`; an error fails.
    Health(HealthLine, Result<String, String>),
    /// A note to the next leader.
    Leave(Box<LeaderNote>),
    /// The Service of this name is due again, at once and on this lane.
    Look(Lane, Name),
    /// A write to a Service. Its answer is an event.
    Write(Box<Write>),
    /// A call about a load balancer. Its answer is an event.
    Ask(Box<Ask>),
    /// The cloud should be asked if it shows the instance of a node.
    AskInstance,
    /// These load balancers should be read in full.
    Read(Vec<(String, Name)>),
    /// These load balancers should be polled.
    Poll(Vec<(String, Name)>),
    /// These load balancers should be read in full, because their work has ended.
    Confirm(Vec<(String, Name)>),
    /// These load balancers without a Service should be deleted, after the API server has confirmed each.
    DeleteOrphans(Vec<OrphanDue>),
    /// The API server has confirmed this one.
    DeleteOrphan(Box<OrphanDue>),
}

impl Effect {
    /// Returns the effect that the Service of this name is due, after the ones for which a user
    /// waits.
    pub(super) fn routine(name: &Name) -> Self {
        Self::Queue(Name::clone(name), Lane::Normal, Turn::Now(Priority::Routine))
    }

    /// Returns the effect on this Service in the queue of a lane.
    pub(super) fn queue(lane: Lane, service: &Service, turn: Turn) -> Self {
        Self::Queue(Name::clone(&service.key), lane, turn)
    }
}

/// The queue in which a Service waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Lane {
    Normal,
    /// The last call about it did not return in time.
    Slow,
}

/// An order to a queue about a Service.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) enum Turn {
    /// It is due.
    Now(Priority),
    /// It is due, as often as its rate allows.
    Paced(Priority),
    /// It is due after this time.
    After(Duration, Priority),
    /// It has failed.
    Failed(RetryClass),
    /// It does not count as failed any more.
    Well,
    /// It is gone.
    Gone,
}

/// Work that can be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Task {
    /// Lists the cluster's load balancers.
    Audit,
    /// Polls load balancers on which the cloud works.
    Poll,
    /// Decides about load balancers without a Service.
    Orphans,
    /// Leaves the note.
    Note,
    /// Compares the nodes.
    Nodes,
}

/// A line of `/readyz?verbose`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum HealthLine {
    LoadBalancers,
    Orphans,
}

/// The level of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum LogLevel {
    Info,
    Warn,
}

/// The plan of an object.
#[derive(Debug, Serialize)]
pub(crate) enum PlanPage {
    /// The steps of a Service.
    Service(Arc<Service>, Vec<plans::Step>),
    /// The reason why service-ccm does nothing for a Service.
    Blocked(Arc<Service>, String),
    /// The step of a load balancer without a Service.
    Orphan(String, plans::Step),
    /// The Service with this name is gone.
    NoService(Name),
    /// The load balancer with this ID has a Service, or is gone.
    NoOrphan(String),
}

/// Something to count.
#[derive(Debug, Serialize)]
pub(crate) enum Count {
    /// A call was answered like this.
    Ended(CallKind, Result<Ended, CloudError>),
    /// The Service has got its address.
    Provisioned(Arc<Service>),
    /// The load balancer whose address a Service shows is gone.
    Gone,
    /// The address in the status of a Service has changed.
    AddressChanged,
    /// The number of nodes that can be members.
    Eligible(usize),
    /// The number of load balancers without a Service, or why it is not known.
    Audited(Result<usize, CloudError>),
    /// The number of them that are held.
    OrphansHeld(usize),
    /// An orphan was deleted.
    OrphanDeleted,
}

/// How a call ended for one Service.
#[derive(Clone, Copy, Debug, Serialize, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Ended {
    Done,
    InProgress,
    Elsewhere,
    NotSeen,
    Lost,
    NotSent,
}

/// A report about a Service: an event and a line of the log.
#[derive(Debug, Serialize)]
pub(crate) enum Tell {
    Ensuring(Digest),
    Ensured,
    MembersChanged,
    NoMembers(Option<String>),
    Gone {
        id: String,
        by: Option<String>,
    },
    AddressChanged(String),
    Deleting,
    Deleted,
    /// Objects that the provider has left in the cloud on purpose.
    Kept(String),
    DuplicateDeleted,
    Failed {
        call: CallKind,
        members: Box<Decision>,
        error: CloudError,
        pace: Pace,
    },
    Trouble(String),
    NotWritten {
        what: &'static str,
        error: ApiError,
        pace: Pace,
    },
    Problems(Vec<SpecProblem>),
    Notes(Vec<Note>),
    Held(Box<Decision>),
    Refused(Vec<Refused>),
    ReleaseHeld(String),
    ReplacementHeld(String),
    Full(String),
    Unclaimed(String),
    Repeated(Repeated),
}

/// A report about load balancers without a Service. It is made when it is news.
#[derive(Debug, Serialize)]
pub(crate) enum TellOrphan {
    Found(Vec<LoadBalancer>),
    /// The load balancers of all clusters, on the first list.
    OfOthers(Vec<LoadBalancer>),
    Held {
        line: String,
        why: String,
    },
    Failed {
        id: String,
        owner: Name,
        why: String,
    },
}

/// A write to a Service.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Write {
    pub(crate) lane: Lane,
    pub(crate) service: Arc<Service>,
    pub(crate) step: Step,
    /// The change of its status and annotations. With a release, the conditions of this program go as well.
    pub(crate) change: StatusPatch,
}

/// A call about a load balancer.
#[derive(Debug, Serialize)]
pub(crate) struct Ask {
    pub(crate) lane: Lane,
    pub(crate) name: Name,
    pub(crate) uid: Box<str>,
    pub(crate) question: Question,
    /// True if a user waits for the answer.
    pub(crate) is_urgent: bool,
    /// True if the note to the next leader must be stored before.
    pub(crate) is_charged: bool,
}

/// A load balancer without a Service that is due to be deleted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OrphanDue {
    pub(crate) orphan: Orphan,
    /// True if its owner has another one.
    pub(super) is_duplicate: bool,
}

impl OrphanDue {
    /// Returns the question to the cloud.
    pub(crate) fn question(&self) -> Unwanted {
        Unwanted {
            owner: self.orphan.owner.clone(),
            known: Some(self.orphan.id.clone()),
            duplicate: self.is_duplicate,
            // The Service's annotations are not known any more, so the provider keeps the address.
            settings: None,
            address: None,
            service: None,
        }
    }
}

/// The question to the cloud.
#[derive(Debug, Serialize)]
pub(crate) enum Question {
    Ensure(Wanted),
    Members(MemberChange),
    Delete(Unwanted),
    Preview(Wanted),
}
