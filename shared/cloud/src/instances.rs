//! The instances capability: the machines behind the nodes.

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use serde::{Deserialize, Serialize};

use crate::{Call, CloudError, ErrorKind, NodeAddress, NodeIdentity, ProviderId};

/// Whether the machine runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerState {
    /// It runs.
    Running,
    /// It is shut down and stays so until somebody starts it. It still exists.
    Stopped,
    /// It is between two states (building, rebooting, migrating).
    Changing,
    /// The cloud does not say, or says something this version does not know.
    #[default]
    Unknown,
}

/// One machine as the cloud describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The ID to write into `spec.providerID` of a node that has none.
    pub provider_id: ProviderId,
    /// Other spellings of the ID that mean this instance, so that a node that was
    /// registered under an older spelling is still recognised.
    pub other_ids: Vec<ProviderId>,
    /// The machine's name in the cloud.
    pub name: String,
    /// Its type (flavor, size), for the label `node.kubernetes.io/instance-type`.
    pub instance_type: Option<String>,
    /// Its zone, for the label `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// Its region, for the label `topology.kubernetes.io/region`.
    pub region: Option<String>,
    /// Its addresses, in the order in which the node should show them.
    pub addresses: Vec<NodeAddress>,
    /// Further labels that the cloud wants on the node.
    pub labels: BTreeMap<String, String>,
    /// Whether it runs.
    pub power: PowerState,
}

impl Instance {
    /// An instance of which only ID and name are known.
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
        }
    }
}

/// By what the cloud was asked when it said that an instance is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProofMethod {
    /// The instance's own ID: the strongest proof.
    ById,
    /// The system UUID.
    BySystemUuid,
    /// The exact name, among all instances that these credentials can see.
    ByName,
    /// What was asked is not known: a provider that only says yes or no said no. The
    /// weakest proof, and never one for an instance that was asked for by name.
    ProvidersWord,
}

/// The cloud's own word that an instance does not exist.
///
/// Only an authoritative answer about the object earns one; an error, an empty
/// list, a cache or a wrong path never does. By its ID or system UUID an instance is gone
/// only when the cloud was asked for just that. By name it may be proven by a list as
/// well, if that list was read for this question, is whole, shows other instances, tells
/// the name of each, and came with the ID of the request where the cloud gives one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsenceProof {
    /// By what the cloud was asked.
    pub method: ProofMethod,
    /// What was asked for and what came back, in the cloud's words.
    pub evidence: String,
    /// The cloud's ID of the request.
    pub request_id: Option<String>,
}

/// What the cloud knows about one node's instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It exists.
    Found(Box<Instance>),
    /// It does not exist; here is the proof.
    Gone(AbsenceProof),
    /// It is not this provider's, for the reason given.
    NotOurs(String),
}

/// The answer for one node of a batch: an error concerns this node alone.
pub type LookupResult = Result<Lookup, CloudError>;

/// All instances that the provider can see, read at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// The instances that could be read.
    pub instances: Vec<Instance>,
    /// Entries of the cloud's answer that could not be understood, one line each.
    /// They never make the rest unusable.
    ///
    /// A line must name its instance as a word of its own, by the provider's own part of
    /// the ID (what follows the last `/` or `:`) or by the name: nodes may be deleted that
    /// a list does not show, and the node that such a line names counts as shown.
    pub malformed: Vec<String>,
}

/// How much of an instance the caller looks at. A hint: an answer may say more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Detail {
    /// All of it.
    #[default]
    Everything,
    /// Its IDs and its name, and in a lookup also whether it runs. A provider that can
    /// spare requests by leaving the rest out should.
    Presence,
}

/// What a provider wants to know of a node beyond its name and its IDs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wants {
    /// [`NodeIdentity::uid`].
    pub uid: bool,
    /// [`NodeIdentity::labels`].
    pub labels: bool,
    /// [`NodeIdentity::addresses`].
    pub addresses: bool,
}

/// How a provider's instances differ from those of most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InstanceTraits {
    /// Whether the fleet can be listed. Without a list no node is deleted.
    pub lists: bool,
    /// Whether a label that [`Instance::labels`] lacks only means that the provider has no
    /// opinion about it: then no label is taken from a node.
    pub labels_only_add: bool,
    /// What it wants to know of a node.
    pub wants: Wants,
}

impl Default for InstanceTraits {
    fn default() -> Self {
        Self { lists: true, labels_only_add: false, wants: Wants::default() }
    }
}

/// Answers to the nodes of a lookup as they come: the node's place in the question, and
/// what is known about it.
pub type Answers<'a> = BoxStream<'a, (usize, LookupResult)>;

/// The machines behind the nodes.
#[async_trait]
pub trait Instances: Send + Sync {
    /// What is particular to these instances. Cheap, asks nobody, and may change when the
    /// provider's configuration does.
    fn traits(&self) -> InstanceTraits {
        InstanceTraits::default()
    }

    /// Looks up many nodes at once. The answer has exactly one entry per node, in
    /// the same order. Providers split large requests themselves.
    async fn lookup(&self, nodes: &[NodeIdentity], detail: Detail, call: Call)
    -> Vec<LookupResult>;

    /// The same, for callers who need not wait for the last answer to use the first. A
    /// node that is not answered within the call's time is an error of its own.
    fn lookup_each<'a>(
        &'a self,
        nodes: &'a [NodeIdentity],
        detail: Detail,
        call: Call,
    ) -> Answers<'a> {
        let all = async move {
            let answers = self.lookup(nodes, detail, call).await;
            stream::iter(one_each(answers, nodes.len()).into_iter().enumerate())
        };
        stream::once(all).flatten().boxed()
    }

    /// Reads the whole fleet, page by page as the cloud demands. Called only where
    /// [`InstanceTraits::lists`] says so.
    ///
    /// Confirms presence and shows changes. An instance that is missing here is
    /// *not* thereby gone: ask [`Instances::lookup`].
    async fn list(&self, _detail: Detail, _call: Call) -> Result<Fleet, CloudError> {
        Err(CloudError::new(ErrorKind::Unsupported, "the provider has no list of its instances"))
    }
}

/// The answers about so many nodes. If the number is wrong, which of them belongs to which
/// node cannot be known, so none is used.
fn one_each(answers: Vec<LookupResult>, nodes: usize) -> Vec<LookupResult> {
    if answers.len() == nodes {
        return answers;
    }
    let what = format!("{} answers to a lookup of {nodes} nodes", answers.len());
    vec![Err(CloudError::new(ErrorKind::Malformed, what)); nodes]
}
