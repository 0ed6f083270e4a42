//! The plan for one node: a pure function from the known state to a list of steps.
//!
//! It has no clock and no I/O, and never waits. A [`Plan`] is a value: it can be executed,
//! printed, compared and serialised.
//!
//! | module | what it holds |
//! |---|---|
//! | [`addresses`], [`node_ip`] | the addresses of a node; those that were given to the kubelet |
//! | [`labels`] | the labels of a node, and the policy for them |
//! | `identity` | the provider ID that a kubelet has given its node |
//! | `agreed` | the cloud's answer when the node last agreed with it |
//! | `field`, `text` | the fields that a step sets; plans as text |

pub mod addresses;
mod agreed;
mod field;
mod identity;
pub mod labels;
pub mod node_ip;
pub(crate) mod text;

use std::sync::Arc;

use ccm_cloud::{Claim, ErrorKind, Instance, Lookup, LookupResult, NodeAddress};
use ccm_controller::brake::approval::{self, is_marked};
use ccm_controller::identity::is_confirmed;
pub use ccm_objects::NodeChange;
pub use ccm_objects::node_keys::{PROVIDED_NODE_IP, UNINITIALIZED};
use ccm_objects::{Address, Node};
use serde::{Deserialize, Serialize};
use strum::Display;

pub use self::{
    agreed::Agreed,
    field::Field,
    identity::{Doubt, IdentityPolicy},
    labels::{LABEL_POLICY, LabelPolicy, OWNED_LABELS},
};
use self::{labels::LabelChanges, node_ip::NodeIpError};

/// The annotation or label with which a user approves the changes of a node that the brake holds.
pub const APPROVED: &str = "quartet.dev/change-approved";
/// The provider ID in [`Plan::fields`].
pub const PROVIDER_ID: &str = "providerID";
/// The taint of new nodes in [`Plan::fields`].
pub const TAINTS: &str = "taints";

/// Returns true if a user has approved the changes of this node.
pub fn is_approved(node: &Node) -> bool {
    is_marked(node.annotation(APPROVED), node.labels.get(APPROVED))
}

/// Returns the mark that approves the changes of this node, for texts that ask for it.
pub fn approving_mark(node: &Node) -> String {
    approval::to_set(APPROVED, node.annotation(APPROVED), node.labels.get(APPROVED))
}

/// Returns the command that approves the changes of this node.
pub fn approval_command(node: &Node) -> String {
    let object = format!("node {}", node.name);
    approval::command(&object, APPROVED, node.annotation(APPROVED), node.labels.get(APPROVED))
}

/// How to handle a change of the first InternalIP of a Ready node in the cloud. Pods, probes
/// and kubelet's certificate may depend on the old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InternalIpChange {
    /// Follow the cloud, and report it.
    #[default]
    Apply,
    /// Keep the node's addresses until it is no longer Ready, and report it.
    Hold,
}

/// Settings of the operator and traits of the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The treatment of a Ready node whose first InternalIP has changed in the cloud.
    pub internal_ip_change: InternalIpChange,
    /// The treatment of a new node whose provider ID nothing confirms.
    pub identity: IdentityPolicy,
    /// The times when a node's labels follow its instance.
    pub labels: LabelPolicy,
    /// True if a node is initialised even if neither the cloud nor the node knows its IP address.
    pub without_address: bool,
    /// True if the provider's labels are only added: a missing label is not removed.
    pub labels_only_add: bool,
}

/// The inputs of a plan besides the node and the cloud's answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanInputs<'a> {
    /// The other nodes with the provider ID of the node's instance.
    pub rivals: &'a [Arc<Node>],
    /// The cloud's answer at the time when the node last agreed with it.
    pub agreed: Agreed,
}

/// The steps for one node, and their reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The node's state once the steps are done.
    pub outcome: Outcome,
    /// The writes, in order. A step must not run unless the API server has stored all earlier ones.
    pub steps: Vec<Step>,
    /// Facts to report to the user.
    pub notes: Vec<Note>,
}

/// The node's state from node-ccm's view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Its provider ID has another provider's scheme: never written.
    Foreign,
    /// The provider reports that another controller is responsible for it: skipped.
    NotOurs(String),
    /// It keeps its taint and waits.
    Waits(Wait),
    /// It is not tainted and has no provider ID, and only its name shows that this instance belongs
    /// to it: never written, because a provider ID cannot be removed.
    Unconfirmed(String),
    /// It is not tainted and has no provider ID, and its instance belongs to another node: never
    /// written.
    Doubted(Doubt),
    /// The steps initialise the node.
    Initialised,
    /// It is initialised; the steps keep it in sync with its instance.
    InSync,
    /// It is initialised, but its instance is gone. lifecycle-ccm decides whether to delete
    /// the node.
    InstanceGone,
    /// It is initialised, and the cloud does not have an answer about it now.
    Unanswered(ErrorKind),
}

/// Why a node waits to be initialised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The missing condition.
    pub reason: WaitReason,
    /// The message, including the cloud's message.
    pub message: String,
}

/// The condition that a node waits for. Its texts are for metric labels and log fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Display)]
#[strum(serialize_all = "snake_case")]
pub enum WaitReason {
    /// An answer of the cloud, which returned this error instead.
    #[strum(to_string = "{0}")]
    Cloud(ErrorKind),
    /// The instance to exist.
    InstanceNotFound,
    /// A provided-node-ip annotation that fits the instance.
    NodeIp,
    /// An IP address, of the cloud or of the kubelet.
    NoAddress,
    /// A provider ID that is its own.
    Identity,
}

/// One write to the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Replace `status.addresses` by this list.
    SetAddresses {
        /// The whole list.
        addresses: Vec<Address>,
        /// Why.
        why: String,
        /// The user's approval goes with this write: it is for one change.
        ends_approval: bool,
    },
    /// Change metadata and spec in one request.
    ChangeNode(NodeChange),
}

/// A fact to report to the user that is not a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Its instance may be another machine.
    Doubted(Doubt),
    /// The cloud returns an invalid IP: it is excluded.
    InvalidAddress(NodeAddress),
    /// The provided-node-ip annotation of an initialised node does not match its instance: the
    /// addresses stay.
    NodeIpRefused(String),
    /// The provided-node-ip annotation names one family, and the instance has internal IPs of the other
    /// one: these are left out.
    FamilyLeftOut {
        /// The annotation.
        node_ip: String,
        /// The addresses that are left out.
        addresses: Vec<String>,
    },
    /// The node's annotation is not a valid label policy: the configured one applies.
    InvalidLabelPolicy(String),
    /// A property of a Ready node changes that pods, probes or volumes depend on: the brake is
    /// asked first.
    Changes {
        /// The field.
        field: Field,
        /// The old value.
        from: String,
        /// The new one; `None` if it is removed.
        to: Option<String>,
    },
    /// Another client has set the first InternalIP of a Ready node, and the cloud reports the same
    /// as before: the change is reverted, and the brake is not asked.
    InternalIpRestored {
        /// The address of the other client.
        from: String,
        /// The cloud's.
        to: String,
    },
    /// The first InternalIP of a Ready node would change or be removed. The policy keeps the old
    /// one; the last one is always kept.
    InternalIpHeld {
        /// The current first InternalIP, which stays.
        from: String,
        /// The first InternalIP that the cloud returns.
        to: Option<String>,
        /// The addresses that the provider's settings leave out.
        withheld: Option<String>,
    },
}

impl Note {
    /// Returns the property that changes.
    pub fn change(&self) -> Option<Field> {
        match self {
            Self::Changes { field, .. } => Some(*field),
            _ => None,
        }
    }

    fn invalid_label(key: &str, value: &str, problem: &str) -> Self {
        Self::InvalidLabel {
            key: key.to_owned(),
            value: value.to_owned(),
            problem: problem.to_owned(),
        }
    }
}

/// Plans the steps for a node from the cloud's answer about its instance.
pub fn plan(
    node: &Node,
    claim: Claim,
    answer: &LookupResult,
    policy: Policy,
    known: PlanInputs<'_>,
) -> Plan {
    if claim == Claim::Foreign {
        return Plan::nothing(Outcome::Foreign);
    }
    let waits = node.is_uninitialised();
    match answer {
        Ok(Lookup::Found(instance)) => follow(node, instance, policy, known),
        Ok(Lookup::NotOurs(why)) => Plan::nothing(Outcome::NotOurs(why.clone())),
        Ok(Lookup::Gone(proof)) if waits => {
            Plan::waits(WaitReason::InstanceNotFound, proof.to_string())
        }
        Ok(Lookup::Gone(_)) => Plan::nothing(Outcome::InstanceGone),
        Err(error) if waits => Plan::waits(WaitReason::Cloud(error.kind), error.to_string()),
        Err(error) => Plan::nothing(Outcome::Unanswered(error.kind)),
    }
}

/// Returns the plan for a node of this provider whose instance is known.
pub fn follow(node: &Node, instance: &Instance, policy: Policy, known: PlanInputs<'_>) -> Plan {
    let uninitialised = node.is_uninitialised();
    let outcome = if uninitialised { Outcome::Initialised } else { Outcome::InSync };
    let mut plan = Plan::nothing(outcome);
    if let Some(doubt) = Doubt::find(node, instance, known.rivals) {
        let is_held = doubt.holds() && policy.identity == IdentityPolicy::Strict;
        if is_held && uninitialised {
            return Plan::waits(WaitReason::Identity, doubt.to_string());
        } else if is_held && node.provider_id.is_none() {
            return Plan::nothing(Outcome::Doubted(doubt));
        }
        plan.notes.push(Note::Doubted(doubt));
    }
    if !uninitialised && node.provider_id.is_none() && !is_confirmed(node, instance) {
        return Plan::nothing(Outcome::Unconfirmed(instance.provider_id.to_string()));
    }
    let desired = addresses::desired(node, instance);
    if let Ok(Some(list)) = &desired {
        plan.notes.extend(family_left_out(node, instance, list));
    }
    match desired {
        Ok(list)
            if uninitialised
                && !policy.without_address
                && !addresses::have_ip(list.as_ref().unwrap_or(&node.addresses)) =>
        {
            return Plan::waits(WaitReason::NoAddress, addresses::missing(instance));
        }
        Ok(Some(list)) if list != node.addresses => {
            plan.set_addresses(node, list, instance, policy, known.agreed);
        }
        Ok(_) => {}
        Err(error) if uninitialised => {
            return Plan::waits(WaitReason::NodeIp, node_ip_text(node, &error));
        }
        Err(error) => plan.notes.push(Note::NodeIpRefused(node_ip_text(node, &error))),
    }
    plan.notes.extend(addresses::invalid(instance).cloned().map(Note::InvalidAddress));
    plan.change_node(node, instance, policy, known.agreed);
    plan
}

/// Returns true if changes of the node are held when they are too many, because the node already
/// works.
pub fn is_protected(node: &Node) -> bool {
    node.is_ready() && !node.is_uninitialised()
}

/// Returns the note that the kubelet's `--node-ip` leaves a family out of this list. Usually the
/// kubelet has also left it out, so nothing has to be written.
fn family_left_out(node: &Node, instance: &Instance, list: &[Address]) -> Option<Note> {
    let node_ip = node.annotation(PROVIDED_NODE_IP)?.to_owned();
    let addresses = addresses::left_out(instance, list);
    (!addresses.is_empty()).then_some(Note::FamilyLeftOut { node_ip, addresses })
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

    /// Returns the changes of what the brake protects.
    pub fn changes(&self) -> impl Iterator<Item = (Field, &Note)> {
        self.notes.iter().filter_map(|note| Some((note.change()?, note)))
    }

    /// Returns true if it changes what the brake protects.
    pub fn needs_brake(&self) -> bool {
        self.changes().next().is_some()
    }

    /// Removes the approval with the last write that it approves: not later, so that it never
    /// applies to another change, and not earlier, so that the remaining changes stay approved.
    fn end_approval(&mut self, node: &Node, change: &mut NodeChange) {
        if self.changes().any(|(field, _)| !field.is_address()) {
            change.why.push("the approval is used up".to_owned());
            change.end_mark(node, APPROVED);
        } else if self.needs_brake()
            && let Some(Step::SetAddresses { ends_approval, .. }) = self.steps.first_mut()
        {
            *ends_approval = true;
        }
    }

    /// Adds the step that sets the provider ID and the labels, and removes the taint.
    fn change_node(&mut self, node: &Node, instance: &Instance, policy: Policy, agreed: Agreed) {
        let LabelChanges { labels, owned, mut notes } = labels::changes(node, instance, policy);
        if agreed.is_same_of_topology(node, instance) {
            // Another client has edited them, and the cloud's values have not changed.
            notes.retain(|note| note.change().is_none());
        }
        self.notes.extend(notes);
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
        if node.is_uninitialised() {
            let others = node.taints.iter().filter(|taint| &*taint.key != UNINITIALIZED);
            change.why.push("remove the uninitialized taint".to_owned());
            change.taints = Some(others.cloned().collect());
        }
        if is_approved(node) {
            self.end_approval(node, &mut change);
        }
        if !change.is_empty() {
            self.steps.push(Step::ChangeNode(change));
        }
    }

    /// Returns the fields that it sets, with their values; an empty value removes the field.
    pub fn fields(&self) -> Vec<(String, String)> {
        self.steps.iter().flat_map(Step::fields).collect()
    }

    /// Returns the changes of protected fields that this step has made. `rest` is the plan for the
    /// API server's answer.
    pub fn made<'a>(&'a self, step: &'a Step, rest: &'a Self) -> impl Iterator<Item = &'a Note> {
        let is_left = |field: Field| rest.changes().any(|(other, _)| other == field);
        let made = self.changes().filter(|(field, _)| field.is_written_by(step));
        made.filter(move |(field, _)| !is_left(*field)).map(|(_, note)| note)
    }

    fn waits(reason: WaitReason, message: String) -> Self {
        Self::nothing(Outcome::Waits(Wait { reason, message }))
    }

    fn set_addresses(
        &mut self,
        node: &Node,
        list: Vec<Address>,
        instance: &Instance,
        policy: Policy,
        agreed: Agreed,
    ) {
        let (from, to) = (addresses::primary(&node.addresses), addresses::primary(&list));
        if let Some(from) = from.filter(|_| is_protected(node)) {
            let (from, to) = (from.to_owned(), to.map(str::to_owned));
            let is_restored = agreed.is_same_of_addresses(node, instance);
            let holds = policy.internal_ip_change == InternalIpChange::Hold && !is_restored;
            if to.is_none() || (holds && to.as_ref() != Some(&from)) {
                let withheld = instance.withheld.clone();
                self.notes.push(Note::InternalIpHeld { from, to, withheld });
                return;
            }
            self.note_changes(node, &list, from, to, is_restored);
        }
        let why = match node.addresses.as_slice() {
            [] => "the node has no addresses".to_owned(),
            present => format!("the node has {}", text::list(present)),
        };
        self.steps.push(Step::SetAddresses { addresses: list, why, ends_approval: false });
    }

    /// Notes which addresses of a Ready node change. They are restored if the cloud still reports
    /// the old ones.
    fn note_changes(
        &mut self,
        node: &Node,
        list: &[Address],
        from: String,
        to: Option<String>,
        is_restored: bool,
    ) {
        if let (true, Some(to)) = (is_restored, &to) {
            if *to != from {
                self.notes.push(Note::InternalIpRestored { from, to: to.clone() });
            }
            return;
        }
        if to.as_ref() != Some(&from) {
            self.notes.push(Note::Changes { field: Field::InternalIp, from, to });
        }
        for from in addresses::lost_families(&node.addresses, list) {
            let (field, from) = (Field::AddressFamily, from.to_owned());
            self.notes.push(Note::Changes { field, from, to: None });
        }
    }
}

#[cfg(test)]
mod tests;
