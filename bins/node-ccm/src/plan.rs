//! What to do about one node: a pure function from what is known to a list of steps.
//!
//! No clock, no I/O, no waiting in here. A [`Plan`] is a value: it can be executed,
//! printed, compared and serialised.

pub mod addresses;
pub mod label_rules;
pub mod labels;
pub mod node_ip;
pub mod pace;
mod text;

use std::collections::BTreeMap;

use ccm_cloud::{AbsenceProof, Claim, ErrorKind, Instance, Lookup, LookupResult};
pub use ccm_objects::node_keys::{PROVIDED_NODE_IP, UNINITIALIZED};
use ccm_objects::{Address, Node, Taint};
use serde::Serialize;

pub use self::labels::OWNED_LABELS;
use self::{labels::LabelChanges, node_ip::NodeIpError};

/// What to do when the first InternalIP of a Ready node changes in the cloud. Pods,
/// probes and kubelet's certificate may depend on the old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InternalIpChange {
    /// Follow the cloud, and say so.
    #[default]
    Apply,
    /// Keep the node's addresses until it is no longer Ready, and say so.
    Hold,
}

/// What is for the operator to decide, or particular to the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// See [`InternalIpChange`].
    pub internal_ip_change: InternalIpChange,
    /// The provider's labels only add: one that it does not name is not taken away.
    pub labels_only_add: bool,
}

/// What is to be done about one node, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// What the node is once the steps are done.
    pub outcome: Outcome,
    /// The writes, in order. A later one must not happen unless the earlier ones did.
    pub steps: Vec<Step>,
    /// What a person should know about it.
    pub notes: Vec<Note>,
}

/// What a node is to node-ccm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// Its provider ID is another provider's: never touched.
    Foreign,
    /// The provider says that it is somebody else's: left alone.
    NotOurs(String),
    /// It keeps its taint and waits.
    Waits(Wait),
    /// The steps initialise it.
    Initialised,
    /// It was initialised before; the steps keep it true to its instance.
    KeptTrue,
    /// It was initialised before, but its instance is gone. Whether the node goes is
    /// for lifecycle-ccm to decide.
    InstanceGone,
    /// It was initialised before, and the cloud has no answer about it now.
    Unanswered(ErrorKind),
}

/// Why a node has to wait for its initialisation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// For what.
    pub reason: WaitReason,
    /// In words, with the cloud's own.
    pub message: String,
}

/// For what a node waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum WaitReason {
    /// An answer of the cloud; what came instead was this.
    Cloud(ErrorKind),
    /// The instance to exist.
    InstanceNotFound,
    /// A provided-node-ip annotation that fits the instance.
    NodeIp,
}

/// One write to the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Step {
    /// Replace `status.addresses` by this list.
    SetAddresses {
        /// The whole list.
        addresses: Vec<Address>,
        /// Why.
        why: String,
    },
    /// Change metadata and spec, all at once.
    ChangeNode(NodeChange),
}

/// A change of a node's metadata and spec. What is not mentioned stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeChange {
    /// Sets `spec.providerID`.
    pub provider_id: Option<String>,
    /// Sets labels, or removes them (`None`).
    pub labels: BTreeMap<String, Option<String>>,
    /// Sets annotations, or removes them (`None`).
    pub annotations: BTreeMap<String, Option<String>>,
    /// Replaces `spec.taints`.
    pub taints: Option<Vec<Taint>>,
    /// Why, one line for each of the above.
    pub why: Vec<String>,
}

impl NodeChange {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.provider_id.is_none()
            && self.labels.is_empty()
            && self.annotations.is_empty()
            && self.taints.is_none()
    }
}

/// Something that a person should know, without it being a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Note {
    /// The cloud names a label that the API server would refuse: it is left out.
    InvalidLabel {
        /// The label's key.
        key: String,
        /// The cloud's value.
        value: String,
        /// What would be right.
        problem: String,
    },
    /// The cloud names an additional label in a domain of Kubernetes: it is left out.
    ReservedLabel {
        /// The label's key.
        key: String,
    },
    /// The node carries the label with another value that node-ccm has not set: it stays.
    LabelKept {
        /// The label's key.
        key: String,
        /// The node's value.
        node: String,
        /// The cloud's value.
        cloud: String,
    },
    /// An initialised node's provided-node-ip annotation does not fit its instance: the
    /// addresses stay.
    NodeIpRefused(String),
    /// The first InternalIP of a Ready node changes.
    InternalIpChanged {
        /// The one it has.
        from: String,
        /// The one it gets; `None` if it loses it.
        to: Option<String>,
    },
    /// The same, but the policy is to hold it.
    InternalIpHeld {
        /// The one it has and keeps.
        from: String,
        /// The one that the cloud names.
        to: Option<String>,
    },
}

impl Note {
    fn invalid_label(key: &str, value: &str, problem: &str) -> Self {
        Self::InvalidLabel {
            key: key.to_owned(),
            value: value.to_owned(),
            problem: problem.to_owned(),
        }
    }
}

/// Decides what to do about a node, by what the cloud said about its instance.
pub fn plan(node: &Node, claim: Claim, answer: &LookupResult, policy: Policy) -> Plan {
    if claim == Claim::Foreign {
        return Plan::nothing(Outcome::Foreign);
    }
    let waits = node.is_uninitialised();
    match answer {
        Ok(Lookup::Found(instance)) => follow(node, instance, policy),
        Ok(Lookup::NotOurs(why)) => Plan::nothing(Outcome::NotOurs(why.clone())),
        Ok(Lookup::Gone(proof)) if waits => {
            Plan::waits(WaitReason::InstanceNotFound, gone_text(proof))
        }
        Ok(Lookup::Gone(_)) => Plan::nothing(Outcome::InstanceGone),
        Err(error) if waits => Plan::waits(WaitReason::Cloud(error.kind), error.to_string()),
        Err(error) => Plan::nothing(Outcome::Unanswered(error.kind)),
    }
}

fn gone_text(proof: &AbsenceProof) -> String {
    match &proof.request_id {
        Some(id) => format!("{} (request {id})", proof.evidence),
        None => proof.evidence.clone(),
    }
}

/// The plan for a node of ours whose instance is known.
pub fn follow(node: &Node, instance: &Instance, policy: Policy) -> Plan {
    let uninitialised = node.is_uninitialised();
    let outcome = if uninitialised { Outcome::Initialised } else { Outcome::KeptTrue };
    let mut plan = Plan::nothing(outcome);
    match addresses::desired(node, instance) {
        Ok(Some(list)) if list != node.addresses => plan.set_addresses(node, list, policy),
        Ok(_) => {}
        Err(error) if uninitialised => {
            return Plan::waits(WaitReason::NodeIp, node_ip_text(node, &error));
        }
        Err(error) => plan.notes.push(Note::NodeIpRefused(node_ip_text(node, &error))),
    }
    let LabelChanges { labels, owned, notes } = labels::changes(node, instance, policy);
    plan.notes.extend(notes);
    let mut change = NodeChange::default();
    if node.provider_id.is_none() {
        change.why.push("the cloud knows the instance by this provider ID".to_owned());
        change.provider_id = Some(instance.provider_id.as_str().to_owned());
    }
    if !labels.is_empty() {
        change.why.push("labels follow the instance".to_owned());
        change.labels = labels;
    }
    if let Some(owned) = owned {
        let record = (!owned.is_empty()).then(|| labels::format_owned(&owned));
        change.why.push("which additional labels follow the cloud is recorded".to_owned());
        change.annotations.insert(OWNED_LABELS.to_owned(), record);
    }
    if uninitialised {
        let others = node.taints.iter().filter(|taint| &*taint.key != UNINITIALIZED);
        change.why.push("the node is initialised".to_owned());
        change.taints = Some(others.cloned().collect());
    }
    if !change.is_empty() {
        plan.steps.push(Step::ChangeNode(change));
    }
    plan
}

fn node_ip_text(node: &Node, error: &NodeIpError) -> String {
    format!(
        "provided node ip for node {:?} is not valid: annotation {PROVIDED_NODE_IP}: {error}",
        node.name
    )
}

impl Plan {
    fn nothing(outcome: Outcome) -> Self {
        Self { outcome, steps: Vec::new(), notes: Vec::new() }
    }

    fn waits(reason: WaitReason, message: String) -> Self {
        Self::nothing(Outcome::Waits(Wait { reason, message }))
    }

    fn set_addresses(&mut self, node: &Node, list: Vec<Address>, policy: Policy) {
        let from = addresses::primary(&node.addresses);
        let to = addresses::primary(&list);
        if let Some(from) =
            from.filter(|from| to != Some(*from) && node.is_ready() && !node.is_uninitialised())
        {
            let (from, to) = (from.to_owned(), to.map(str::to_owned));
            if policy.internal_ip_change == InternalIpChange::Hold {
                self.notes.push(Note::InternalIpHeld { from, to });
                return;
            }
            self.notes.push(Note::InternalIpChanged { from, to });
        }
        let why = match node.addresses.as_slice() {
            [] => "the node has no addresses".to_owned(),
            present => format!("the node has {}", text::list(present)),
        };
        self.steps.push(Step::SetAddresses { addresses: list, why });
    }
}

#[cfg(test)]
mod tests;
