//! The news for the machine.

use std::{net::IpAddr, sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::{
    AbsenceProof, CloudError, Digest, LoadBalancer, LoadBalancerList, LoadBalancerTraits,
    MembersSet, NodeSelector, Owner, Progress,
};
use ccm_controller::brake::{Budget, approval::SetApproval};
use ccm_kube::{ApiError, selector::NodeSelector as NodeLabels};
use ccm_objects::{Node, Service, Shared as Name};
use serde::{Deserialize, Serialize};

use super::{
    effect::{Lane, OrphanDue, Question},
    left::LeaderNote,
};
use crate::plan::{CallKind, Classes, Step, orphans, shown};

/// News. A list of Services or nodes contains their current state.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The settings are these from now on.
    Settings { settings: Box<Parameters>, services: Vec<Arc<Service>> },
    /// The provider offers this now. `has_changed`: the provider reports a change itself.
    Offered { offer: Box<Result<Offer, CloudError>>, has_changed: bool },
    /// The API server has these addresses.
    ApiServer(Vec<IpAddr>),
    /// The term begins; the last leader has left this.
    TermBegins(Box<LeaderNote>),
    /// Services are queued from now on.
    QueueOpens,
    /// These Services may need work: the term has begun.
    Services(Vec<Arc<Service>>),
    /// The Lease approves these sets: for members that leave, and for load balancers that are
    /// replaced.
    Approved([Option<SetApproval>; 2]),
    /// A Service has changed.
    Service(Changed<Service>),
    /// A node has changed.
    Node(Changed<Node>),
    /// The nodes have been listed.
    Nodes(NodesSeen),
    /// A Service selects nodes by labels that did not count before.
    Labels { selector: NodeSelector, nodes: Vec<Arc<Node>> },
    /// A Service is due.
    Due(Due),
    /// The API server has answered a write to a Service.
    Written(Written),
    /// The cloud has answered a call about a load balancer.
    Answered(Answered),
    /// A slow lane begins, or has ended.
    SlowLane { begins: bool },
    /// The provider has no list, and it is time to look at load balancers without one.
    NoList(Vec<Arc<Service>>),
    /// The cluster's load balancers have been listed.
    Listed(Box<Listed>),
    /// The cluster's load balancers could not be listed.
    NotListed { error: CloudError, services: Vec<Arc<Service>> },
    /// The cloud was asked if it shows the instance of a node.
    Instance { is_shown: bool },
    /// Load balancers were read in full.
    Read(Polled),
    /// It is time to poll load balancers on which the cloud works.
    PollDue,
    /// These load balancers have been polled.
    Polled(Polled),
    /// The poll has failed.
    NotPolled(CloudError),
    /// The load balancers whose work has ended have been read in full.
    Confirmed(Polled),
    /// It is time to decide about load balancers without a Service, by the current rules of the
    /// settings.
    OrphansDue(orphans::OrphanRules),
    /// The API server is being asked about the owners of these.
    OrphansCalled(Vec<Owner>),
    /// The API server has answered.
    OrphanLookedUp { due: Box<OrphanDue>, found: Result<Option<Box<Service>>, ApiError> },
    /// The cloud has answered the deletion of one.
    OrphanAnswered { due: Box<OrphanDue>, answer: Result<Progress<AbsenceProof>, CloudError> },
    /// It is time to leave a note to the next leader. `gone`: of the marked nodes, those that do not exist any
    /// more. `must`: also if nothing has changed.
    NoteDue { gone: Vec<Name>, must: bool },
}

/// An object before and after a change. One of them is missing if the object is new, or gone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Changed<K> {
    pub(crate) old: Option<Arc<K>>,
    pub(crate) new: Option<Arc<K>>,
}

/// The settings that the machine uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Parameters {
    /// The classes that this program serves, and its name on Services.
    pub(crate) classes: Classes,
    /// How many members may leave.
    pub(crate) budget: Budget,
    /// The addresses and annotations that the provider may show on Services.
    pub(crate) shown: shown::ShownRules,
    /// The keys of taints that mark a node for scale-down.
    pub(crate) scale_down_taints: Vec<String>,
    /// True if nodes of other providers are members.
    pub(crate) foreign_nodes: bool,
    /// The nodes that may be members.
    pub(crate) node_selector: NodeLabels,
    /// The shortest interval between two changes of the members.
    pub(crate) member_update_interval: Duration,
    /// True if load balancers of other controllers are adopted without a request.
    pub(crate) adopts: bool,
    /// The maximum number of load balancers of a namespace; 0 means no limit.
    pub(crate) most_per_namespace: usize,
    /// The interval between two looks at a load balancer that no list shows.
    pub(crate) look_period: Duration,
    /// The time limit of a call to the cloud.
    pub(crate) call_timeout: Duration,
}

/// The offer of the provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// The specifics of its load balancers.
    pub(crate) traits: LoadBalancerTraits,
    /// The nodes that may be members where a Service does not choose.
    pub(crate) selector: NodeSelector,
}

/// The nodes, and what decides with them who is a member.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NodesSeen {
    pub(crate) nodes: Vec<Arc<Node>>,
    /// The schemes of the provider's own IDs.
    pub(crate) schemes: Vec<String>,
    /// The reason why they were listed.
    pub(crate) why: NodesWhy,
}

/// The reason why the nodes were listed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum NodesWhy {
    /// A node or the settings have changed.
    Changed,
    /// Changes are due to be passed on. The Services select members by these labels.
    Due { selectors: Vec<NodeSelector>, services: Vec<Arc<Service>> },
    /// The term begins. The Services select members by these labels.
    Term { selectors: Vec<NodeSelector> },
}

/// A Service that is due.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Due {
    pub(crate) lane: Lane,
    pub(crate) name: Name,
    /// The Service; `None` if it is gone.
    pub(crate) service: Option<Arc<Service>>,
    /// The nodes that may be members of its load balancer.
    pub(crate) selector: NodeSelector,
    /// True if the Service makes the provider's default choice.
    pub(crate) is_default: bool,
    /// True if it was read as the settings and the provider need it now.
    pub(crate) is_read: bool,
    /// How often the settings and the provider had changed when the translator looked at them.
    pub(crate) changes: u64,
    /// True if the cloud is provably the one in which the load balancers were made.
    pub(crate) is_same_cloud: bool,
    /// The other Services of its namespace, if that has a limit.
    pub(crate) neighbours: Vec<Arc<Service>>,
    /// False if a call to the cloud has to wait for the next batch.
    pub(crate) may_call: bool,
}

/// The API server's answer to a write to a Service.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Written {
    pub(crate) lane: Lane,
    /// The Service on which the write was decided.
    pub(crate) service: Arc<Service>,
    pub(crate) step: Step,
    /// The new Service, or the error; `None` if nothing was sent.
    pub(crate) answer: Result<Arc<Service>, Option<ApiError>>,
}

/// The cloud's answer to a call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answered {
    pub(crate) lane: Lane,
    pub(crate) name: Name,
    /// The UID of the Service when the call was made.
    pub(crate) uid: Box<str>,
    pub(crate) answer: CallAnswer,
}

/// The answer to each kind of call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum CallAnswer {
    Ensure(Box<Result<Progress<LoadBalancer>, CloudError>>),
    Members(Result<Progress<MembersSet>, CloudError>),
    Delete(Result<Progress<AbsenceProof>, CloudError>),
    Preview(Digest, Result<Vec<String>, CloudError>),
}

impl CallAnswer {
    /// Returns the answer to a question that has this error.
    pub(crate) fn failed(question: &Question, error: CloudError) -> Self {
        match question {
            Question::Ensure(_) => Self::Ensure(Box::new(Err(error))),
            Question::Members(_) => Self::Members(Err(error)),
            Question::Delete(_) => Self::Delete(Err(error)),
            Question::Preview(wanted) => Self::Preview(wanted.front_end.digest, Err(error)),
        }
    }

    /// Returns the kind of the call; a duplicate is also deleted by [`CallKind::Delete`]. `None`
    /// for a preview, which changes nothing.
    pub(crate) const fn call(&self) -> Option<CallKind> {
        match self {
            Self::Ensure(_) => Some(CallKind::Ensure),
            Self::Members(_) => Some(CallKind::Members),
            Self::Delete(_) => Some(CallKind::Delete),
            Self::Preview(..) => None,
        }
    }
}

/// A list of the cluster's load balancers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Listed {
    /// When it was requested.
    pub(crate) started: At,
    pub(crate) list: LoadBalancerList,
    /// The load balancers of all clusters, if they were listed as well.
    pub(crate) all: Option<Vec<LoadBalancer>>,
    /// The Services that have the type or the finalizer.
    pub(crate) services: Vec<Arc<Service>>,
    /// The number of Services of any type; 0 if they are not known.
    pub(crate) count: usize,
}

/// Load balancers that were read by their IDs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Polled {
    /// When that was requested.
    pub(crate) started: At,
    /// Their IDs, and the names of their Services.
    pub(crate) asked: Vec<(String, Name)>,
    pub(crate) list: LoadBalancerList,
    /// These Services.
    pub(crate) services: Vec<Arc<Service>>,
}
