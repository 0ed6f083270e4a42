//! The instances capability: the machines behind the nodes.

use std::{collections::BTreeMap, fmt};

use async_trait::async_trait;
use futures::{StreamExt, stream};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use strum::AsRefStr;

use crate::{Answers, Call, CloudError, ErrorKind, NodeAddress, NodeIdentity, ProviderId};

/// The power state of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerState {
    /// It runs.
    Running,
    /// It is shut down until it is started again. It still exists.
    Stopped,
    /// It is between two states (building, rebooting, migrating).
    Changing,
    /// The cloud reports no state, or one that this version does not know.
    #[default]
    Unknown,
}

/// One machine in the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The ID to write into `spec.providerID` of a node without one.
    pub provider_id: ProviderId,
    /// Other forms of the ID for this instance, so that a node that was registered with an
    /// older form is still recognised.
    pub other_ids: Vec<ProviderId>,
    /// The machine's name in the cloud.
    pub name: String,
    /// Its type (flavor, size), for the label `node.kubernetes.io/instance-type`.
    pub instance_type: Option<String>,
    /// Its zone, for the label `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// Its region, for the label `topology.kubernetes.io/region`.
    pub region: Option<String>,
    /// Its addresses, in the order for the node.
    pub addresses: Vec<NodeAddress>,
    /// Additional labels for the node.
    pub labels: BTreeMap<String, String>,
    /// Its power state.
    pub power: PowerState,
    /// The networks that the cloud has assigned to its pods, if the cloud does so. Host bits have
    /// no meaning.
    pub pod_cidrs: Vec<IpNet>,
    /// The addresses that the provider's own settings exclude, and the names of these settings, in
    /// words for people: only set if no InternalIP is left. These addresses are not missing in the
    /// cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
}

impl Instance {
    /// Creates an instance with only ID and name.
    pub fn new(provider_id: ProviderId, name: impl Into<String>) -> Self {
        Self {
            provider_id,
            other_ids: Vec::new(),
            name: name.into(),
            instance_type: None,
            zone: None,
            region: None,
            addresses: Vec::new(),
            labels: BTreeMap::new(),
            power: PowerState::default(),
            pod_cidrs: Vec::new(),
            withheld: None,
        }
    }
}

/// The key of the lookup that found an instance gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, AsRefStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ProofMethod {
    /// The instance's own ID: the strongest proof.
    ById,
    /// The machine's system UUID.
    BySystemUuid,
    /// The exact name, or the address of a route's target, among all instances that these
    /// credentials can see.
    ByName,
    /// The recorded owner, among all load balancers that these credentials can see.
    ByOwner,
    /// The key is unknown: the provider only answers yes or no, and answered no. The weakest proof;
    /// for a lookup by name it proves nothing.
    ProvidersWord,
}

/// The cloud's own statement that an instance does not exist.
///
/// Only an authoritative answer about the object is a proof. An error, an empty list, a cache or a
/// wrong path never is. By ID or system UUID an instance is gone only if the cloud was asked for
/// exactly that ID. By name a list may prove it as well, if the list was read for this lookup, is
/// complete, shows other instances, contains the name of each, and came with the request ID where
/// the cloud provides one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsenceProof {
    /// The key of the lookup.
    pub method: ProofMethod,
    /// The request and the response, in the cloud's words.
    pub evidence: String,
    /// The cloud's request ID.
    pub request_id: Option<String>,
    /// Objects that the provider has left in the cloud on purpose after the deletion of a load
    /// balancer, in one line. The controller shows it in an event.
    #[serde(default)]
    pub kept: Option<String>,
}

impl AbsenceProof {
    /// Creates a proof by this method, with the cloud's words.
    pub fn new(method: ProofMethod, evidence: impl Into<String>) -> Self {
        Self { method, evidence: evidence.into(), request_id: None, kept: None }
    }
}

impl fmt::Display for AbsenceProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.evidence)?;
        self.request_id.as_ref().map_or(Ok(()), |id| write!(f, " (request {id})"))
    }
}

/// The cloud's answer about one node's instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lookup {
    /// It exists.
    Found(Box<Instance>),
    /// It does not exist, with the proof.
    Gone(AbsenceProof),
    /// It does not belong to this provider, for this reason.
    NotOurs(String),
}

/// The answer for one node of a batch: an error only affects this node.
pub type LookupResult = Result<Lookup, CloudError>;

/// All instances that the provider can see, read at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fleet {
    /// The instances that could be read.
    pub instances: Vec<Instance>,
    /// Entries of the cloud's answer that could not be parsed, one line each. They never
    /// invalidate the rest.
    ///
    /// A line must contain the instance's name, or the provider's own part of the ID (the part
    /// after the last `/` or `:`), as a separate word: nodes that a list does not show may be
    /// deleted, and the node that such a line names counts as shown.
    pub malformed: Vec<String>,
}

/// The parts of an instance that the caller reads. This is a hint: an answer may contain more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Detail {
    /// All of it.
    #[default]
    Everything,
    /// Its IDs, its name and its power state. A provider should omit the rest if that saves
    /// requests.
    Presence,
}

/// The parts of a node that a provider needs besides its name and its IDs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Wants {
    /// [`NodeIdentity::uid`].
    pub uid: bool,
    /// [`NodeIdentity::labels`].
    pub labels: bool,
    /// [`NodeIdentity::addresses`].
    pub addresses: bool,
}

/// The specifics of a provider's instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InstanceTraits {
    /// True if the fleet can be listed. If not, more lookups confirm that an instance is gone.
    pub lists: bool,
    /// True if a label that is missing in [`Instance::labels`] only means that the provider does
    /// not manage it: then no label is removed from a node.
    pub labels_only_add: bool,
    /// True if one lookup of many nodes is cheaper than several of fewer nodes, because the
    /// provider reads a list for it. A transport then does not split it.
    pub lists_for_lookups: bool,
    /// The parts of a node that it needs.
    pub wants: Wants,
}

impl Default for InstanceTraits {
    fn default() -> Self {
        Self {
            lists: true,
            labels_only_add: false,
            lists_for_lookups: false,
            wants: Wants::default(),
        }
    }
}

/// The machines behind the nodes.
#[async_trait]
pub trait Instances: Send + Sync {
    /// Returns the specifics of these instances. Cheap, makes no request, and may change with the
    /// provider's configuration.
    fn traits(&self) -> InstanceTraits {
        InstanceTraits::default()
    }

    /// Looks up many nodes at once. The answer has exactly one entry per node, in the same
    /// order. Providers split large requests themselves.
    async fn lookup(&self, nodes: &[NodeIdentity], detail: Detail, call: Call)
    -> Vec<LookupResult>;

    /// Looks up many nodes and streams the answers, for callers that can use the first answer
    /// before the last. A node without an answer within the call's time limit gets its own error.
    fn lookup_each<'a>(
        &'a self,
        nodes: &'a [NodeIdentity],
        detail: Detail,
        call: Call,
    ) -> Answers<'a, Lookup> {
        let all = async move {
            let answers = self.lookup(nodes, detail, call).await;
            stream::iter(one_each(answers, nodes.len()).into_iter().enumerate())
        };
        stream::once(all).flatten().boxed()
    }

    /// Reads the whole fleet, page by page as the cloud requires. Called only if
    /// [`InstanceTraits::lists`] is true. The callers read IDs and names; other fields may be
    /// left out.
    ///
    /// A list confirms presence. An instance that is missing here is *not*
    /// therefore gone: use [`Instances::lookup`].
    async fn list(&self, _call: Call) -> Result<Fleet, CloudError> {
        Err(CloudError::new(ErrorKind::Unsupported, "the provider cannot list instances"))
    }
}

/// Checks the number of answers. If it is wrong, answers cannot be assigned to nodes, so all
/// of them are discarded.
pub fn one_each(answers: Vec<LookupResult>, nodes: usize) -> Vec<LookupResult> {
    if answers.len() == nodes {
        return answers;
    }
    let what = format!("{} answers to a lookup of {nodes} nodes", answers.len());
    vec![Err(CloudError::new(ErrorKind::Malformed, what)); nodes]
}
