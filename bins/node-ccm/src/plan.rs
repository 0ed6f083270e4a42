//! The plan for one node: a pure function from the known state to a list of steps.
//!
//! It has no clock and no I/O, and never waits. A [`Plan`] is a value: it can be executed,
//! printed, compared and serialised.

pub mod addresses;
pub mod labels;
pub mod node_ip;
mod text;

use std::collections::BTreeMap;

use ccm_cloud::{AbsenceProof, Claim, ErrorKind, Instance, Lookup, LookupResult, NodeAddress};
pub use ccm_objects::node_keys::{PROVIDED_NODE_IP, UNINITIALIZED};
use ccm_objects::{Address, Node, Taint};
use serde::Serialize;

pub use self::labels::OWNED_LABELS;
use self::{labels::LabelChanges, node_ip::NodeIpError};

/// How to handle a change of the first InternalIP of a Ready node in the cloud. Pods, probes
/// and kubelet's certificate may depend on the old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InternalIpChange {
    /// Follow the cloud, and report it.
    #[default]
    Apply,
    /// Keep the node's addresses until it is no longer Ready, and report it.
    Hold,
}

/// Settings of the operator and traits of the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// See [`InternalIpChange`].
    pub internal_ip_change: InternalIpChange,
    /// The provider's labels are only added: a missing one is not removed.
    pub labels_only_add: bool,
}

/// The steps for one node, and their reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The node's state once the steps are done.
    pub outcome: Outcome,
    /// The writes, in order. A step must not run unless all earlier ones succeeded.
    pub steps: Vec<Step>,
    /// Facts to report to the user.
    pub notes: Vec<Note>,
}

/// The node's state from node-ccm's view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// Its provider ID has another provider's scheme: never written.
    Foreign,
    /// The provider reports that another controller is responsible for it: skipped.
    NotOurs(String),
    /// It keeps its taint and waits.
    Waits(Wait),
    /// The steps initialise the node.
    Initialised,
    /// It is initialised; the steps keep it in sync with its instance.
    InSync,
    /// It is initialised, but its instance is gone. lifecycle-ccm decides whether to delete
    /// the node.
    InstanceGone,
    /// It is initialised, and the cloud has no answer about it now.
    Unanswered(ErrorKind),
}

/// Why a node waits to be initialised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// The missing condition.
    pub reason: WaitReason,
    /// The message, including the cloud's message.
    pub message: String,
}

/// The condition that a node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum WaitReason {
    /// An answer of the cloud, which returned this error instead.
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
    /// Change metadata and spec in one request.
    ChangeNode(NodeChange),
}

/// A change of a node's metadata and spec. Unset fields stay unchanged.
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
    /// The reasons, one line for each change above.
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

/// A fact to report to the user that is not a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Note {
    /// The cloud returns a label that the API server would reject: it is skipped.
    InvalidLabel {
        /// The label's key.
        key: String,
        /// The cloud's value.
        value: String,
        /// The rule that it breaks.
        problem: String,
    },
    /// The cloud returns an additional label in a Kubernetes domain: it is skipped.
    ReservedLabel {
        /// The label's key.
        key: String,
    },
    /// The node has the label with a value that node-ccm did not set: it stays.
    LabelKept {
        /// The label's key.
        key: String,
        /// The node's value.
        node: String,
        /// The cloud's value.
        cloud: String,
    },
    /// The cloud returns an IP that is none: it is left out.
    InvalidAddress(NodeAddress),
    /// The provided-node-ip annotation of an initialised node does not match its instance: the
    /// addresses stay.
    NodeIpRefused(String),
    /// The first InternalIP of a Ready node changes.
    InternalIpChanged {
        /// The old one.
        from: String,
        /// The new one; `None` if it is removed.
        to: Option<String>,
    },
    /// The same, but the policy keeps the old one.
    InternalIpHeld {
        /// The current one, which stays.
        from: String,
        /// The one that the cloud returns.
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

/// Plans the steps for a node from the cloud's answer about its instance.
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

/// The plan for a node of this provider whose instance is known.
pub fn follow(node: &Node, instance: &Instance, policy: Policy) -> Plan {
    let uninitialised = node.is_uninitialised();
    let outcome = if uninitialised { Outcome::Initialised } else { Outcome::InSync };
    let mut plan = Plan::nothing(outcome);
    match addresses::desired(node, instance) {
        Ok(Some(list)) if list != node.addresses => plan.set_addresses(node, list, policy),
        Ok(_) => {}
        Err(error) if uninitialised => {
            return Plan::waits(WaitReason::NodeIp, node_ip_text(node, &error));
        }
        Err(error) => plan.notes.push(Note::NodeIpRefused(node_ip_text(node, &error))),
    }
    plan.notes.extend(addresses::invalid(instance).cloned().map(Note::InvalidAddress));
    let LabelChanges { labels, owned, notes } = labels::changes(node, instance, policy);
    plan.notes.extend(notes);
    let mut change = NodeChange::default();
    if node.provider_id.is_none() {
        change.why.push("set the provider ID of the instance".to_owned());
        change.provider_id = Some(instance.provider_id.as_str().to_owned());
    }
    if !labels.is_empty() {
        change.why.push("update the labels from the instance".to_owned());
        change.labels = labels;
    }
    if let Some(owned) = owned {
        let record = (!owned.is_empty()).then(|| labels::format_owned(&owned));
        change.why.push("record the labels that node-ccm has set".to_owned());
        change.annotations.insert(OWNED_LABELS.to_owned(), record);
    }
    if uninitialised {
        let others = node.taints.iter().filter(|taint| &*taint.key != UNINITIALIZED);
        change.why.push("remove the uninitialized taint".to_owned());
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
