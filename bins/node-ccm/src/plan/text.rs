//! Plans as text, for logs, dry runs and snapshots.

use std::fmt;

use ccm_controller::brake::Hold;
use ccm_controller::repeats::Repeated;
use ccm_objects::{Address, Node, OWN_ANNOTATIONS};

use super::{
    APPROVED, Field, LABEL_POLICY, NodeChange, Note, Outcome, PROVIDER_ID, Plan, Step, TAINTS,
    UNINITIALIZED, Wait, WaitReason, approving_mark,
};

/// The reason of events about a provider ID that nothing confirms.
const UNCONFIRMED: &str = "ProviderIDUnconfirmed";

/// Returns the addresses on one line.
pub(crate) fn list(addresses: &[Address]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.outcome)?;
        for (at, step) in self.steps.iter().enumerate() {
            write!(f, "\n{}. {step}", at + 1)?;
        }
        for note in &self.notes {
            write!(f, "\nnote: {note}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("foreign: skipped"),
            Self::NotOurs(why) => write!(f, "not ours: {why}"),
            Self::Unconfirmed(id) => {
                write!(f, "only its name says that {id} is its instance: skipped")
            }
            Self::Waits(wait) => write!(f, "{wait}"),
            Self::Doubted(doubt) => write!(f, "{doubt}: skipped"),
            Self::Initialised => f.write_str("initialised"),
            Self::InSync => f.write_str("in sync"),
            Self::InstanceGone => f.write_str("instance gone: skipped"),
            Self::Unanswered(kind) => write!(f, "lookup failed ({kind}): skipped"),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waits ({}): {}", self.reason, self.message)
    }
}

impl WaitReason {
    /// Returns the reason of its event, and what the node waits for.
    pub(crate) fn event(self) -> (&'static str, &'static str) {
        match self {
            Self::Cloud(_) => ("WaitingForCloud", "until the cloud answers"),
            Self::InstanceNotFound => {
                ("InstanceNotFound", "because the cloud has no instance for it")
            }
            Self::NodeIp => ("InvalidNodeIP", "until its annotation matches its instance"),
            Self::NoAddress => {
                ("NoNodeAddress", "until it has an address (--node-addresses-required)")
            }
            Self::Identity => (UNCONFIRMED, "until its provider ID is confirmed (--node-identity)"),
        }
    }
}

impl Outcome {
    /// Returns the event of a skipped node, if it has one: most such nodes belong to another
    /// provider.
    pub(crate) fn event(&self, is_ready: bool) -> Option<(&'static str, String)> {
        match self {
            Self::Unconfirmed(id) => Some((
                "InstanceUnconfirmed",
                format!(
                    "The cloud has {id} with the name of this node, but neither its system UUID nor an address of it: the node is not written. If {id} is its instance, set spec.providerID to it"
                ),
            )),
            Self::Doubted(doubt) => {
                Some((UNCONFIRMED, format!("{doubt}; the node is not written")))
            }
            Self::InstanceGone if is_ready => {
                let text = "The instance of this Ready node is gone, and another machine may have its name: the node is not written";
                Some(("InstanceGone", text.to_owned()))
            }
            _ => None,
        }
    }
}

impl Note {
    /// Returns its topic, and whether it has an event of that reason.
    pub(crate) fn event(&self) -> (&'static str, bool) {
        match self {
            Self::InvalidLabel { .. } => ("InvalidLabel", true),
            Self::ReservedLabel { .. } => ("ReservedLabel", false),
            Self::LabelKept { .. } => ("LabelKept", false),
            Self::Doubted(doubt) => (UNCONFIRMED, doubt.holds()),
            Self::InternalIpRestored { .. } => ("NodeInternalIPRestored", true),
            Self::InvalidAddress(_) => ("InvalidAddress", true),
            Self::NodeIpRefused(_) => ("InvalidNodeIP", true),
            Self::FamilyLeftOut { .. } => ("NodeIPFamilyLeftOut", true),
            Self::InvalidLabelPolicy(_) => ("InvalidAnnotation", true),
            Self::Changes { field: Field::InternalIp, .. } => ("NodeInternalIPChanged", true),
            Self::Changes { field: Field::AddressFamily, .. } => ("NodeAddressFamilyLost", true),
            Self::Changes { .. } => ("NodeTopologyChanged", true),
            Self::InternalIpHeld { .. } => ("NodeInternalIPHeld", true),
        }
    }
}

/// Describes the change of a node's plan, and why the brake holds it.
pub(crate) fn held(node: &Node, plan: &Plan, hold: Hold) -> String {
    let changes: Vec<_> = plan.changes().map(|(_, note)| note.to_string()).collect();
    let changes = changes.join("; ");
    format!(
        "{changes}; held: {hold}, because too many Ready nodes would change; if the cloud is right, approve with the annotation or label {}",
        approving_mark(node)
    )
}

/// Describes how two writers change a field of the node, and when node-ccm writes it again.
pub(crate) fn repeated(node: &Node, plan: &Plan, repeated: &Repeated) -> String {
    let Repeated { kind, times, wait, .. } = repeated;
    let field = &**kind;
    let own = plan.fields().into_iter().find(|(name, _)| name == field);
    let own = match own.map(|(_, value)| value).unwrap_or_default() {
        value if value.is_empty() => "removes it".to_owned(),
        value => format!("sets it to {value:?}"),
    };
    let label = node.labels.get(field).map(|value| &**value);
    let other = match label.or_else(|| node.annotation(field)) {
        Some(value) => format!("sets {field} to {value:?}"),
        None if Field::named(field) == Field::Addresses => {
            format!("sets {field} to {:?}", list(&node.addresses))
        }
        None if field == TAINTS => format!("sets the taint {UNINITIALIZED}"),
        None => format!("removes {field}"),
    };
    let wait = wait.as_secs();
    format!(
        "Another writer {other}, and node-ccm {own}, {times} times in a row; node-ccm writes it again in {wait} s"
    )
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetAddresses { addresses, why, .. } => {
                write!(f, "addresses: {} ({why})", list(addresses))?;
                self.used_approval().map_or(Ok(()), |line| write!(f, "\n   {line}"))
            }
            Self::ChangeNode(change) => {
                write!(f, "node: {}", change.why.join("; "))?;
                self.changes().iter().try_for_each(|line| write!(f, "\n   {line}"))
            }
        }
    }
}

impl Step {
    /// Returns its kind, for metric labels, logs and `/plan`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::SetAddresses { .. } => "addresses",
            Self::ChangeNode(NodeChange { taints: Some(_), .. }) => "taint",
            Self::ChangeNode(_) => "labels",
        }
    }

    /// Returns the fields that it sets, with their values; an empty value removes the field. It
    /// shows only the taint of new nodes: the step removes this taint and keeps the others.
    pub fn fields(&self) -> Vec<(String, String)> {
        let NodeChange { labels, annotations, provider_id, taints, .. } = match self {
            Self::SetAddresses { addresses, .. } => {
                return vec![(Field::Addresses.to_string(), list(addresses))];
            }
            Self::ChangeNode(change) => change,
        };
        let id = provider_id.iter().map(|id| (PROVIDER_ID.to_owned(), id.clone()));
        let taint = taints.iter().map(|_| (TAINTS.to_owned(), String::new()));
        let keys = labels.iter().chain(annotations).filter(|(key, _)| *key != APPROVED);
        let keys = keys.map(|(key, value)| (key.clone(), value.clone().unwrap_or_default()));
        id.chain(taint).chain(keys).collect()
    }

    /// Returns the changes, one line each.
    pub fn changes(&self) -> Vec<String> {
        match self {
            Self::SetAddresses { addresses, .. } => {
                let addresses = addresses.iter().map(ToString::to_string);
                addresses.chain(self.used_approval()).collect()
            }
            Self::ChangeNode(change) => {
                change.lines().into_iter().chain(untainted(change)).collect()
            }
        }
    }

    fn used_approval(&self) -> Option<String> {
        let is_used = matches!(self, Self::SetAddresses { ends_approval: true, .. });
        is_used.then(|| format!("approval {APPROVED} removed: it is used up"))
    }

    /// Returns the reason for the write.
    pub fn reason(&self) -> String {
        match self {
            Self::SetAddresses { why, .. } => why.clone(),
            Self::ChangeNode(change) => change.why.join("; "),
        }
    }
}

/// Returns the removal of the taint, if it is part of this change.
fn untainted(change: &NodeChange) -> Option<String> {
    let kept: Vec<_> = change.taints.as_ref()?.iter().map(|taint| &*taint.key).collect();
    let kept = match &*kept {
        [] => String::new(),
        kept => format!(", kept: {}", kept.join(", ")),
    };
    Some(format!("taint {UNINITIALIZED} removed{kept}"))
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidLabel { key, value, problem } => {
                write!(f, "Discarding node label {key}={value:?} from the cloud: {problem}")
            }
            Self::ReservedLabel { key } if key.starts_with(OWN_ANNOTATIONS) => {
                write!(f, "Discarding node label {key} from the cloud: such labels are approvals")
            }
            Self::ReservedLabel { key } => {
                write!(f, "Discarding node label {key} with kubernetes namespace")
            }
            Self::LabelKept { key, node, cloud } => write!(
                f,
                "Discarding node label {key} that is already present: the node has {node:?}, the cloud returns {cloud:?}"
            ),
            Self::InvalidAddress(entry) => {
                let (kind, address) = (entry.kind.as_ref(), &entry.address);
                write!(f, "Discarding {kind} {address:?} from the cloud: it is not an IP address")
            }
            Self::Doubted(doubt) => write!(f, "{doubt}"),
            Self::InternalIpRestored { from, to } => write!(
                f,
                "another client has set the first InternalIP of this Ready node to {from}; the cloud returns {to}, as before"
            ),
            Self::NodeIpRefused(problem) => write!(f, "the node keeps its addresses: {problem}"),
            Self::FamilyLeftOut { node_ip, addresses } => write!(
                f,
                "left out because of the kubelet's --node-ip {node_ip}: {}; to have both families, set --node-ip to one address of each",
                addresses.join(", ")
            ),
            Self::InvalidLabelPolicy(text) => {
                write!(
                    f,
                    "annotation {LABEL_POLICY}: {text:?} is not follow, once or off; --node-label-policy applies"
                )
            }
            Self::Changes { field: Field::AddressFamily, from, .. } => {
                write!(f, "this Ready node loses its {from} InternalIPs")
            }
            Self::Changes { field, from, to } => {
                let (what, to) = (field.words(), to.as_deref().unwrap_or("none"));
                write!(f, "the {what} of this Ready node changes from {from} to {to}")
            }
            Self::InternalIpHeld { from, to: None, withheld: None } => write!(
                f,
                "the cloud returns no InternalIP; this node is Ready and keeps its addresses, with {from}"
            ),
            Self::InternalIpHeld { from, to: None, withheld: Some(withheld) } => write!(
                f,
                "{withheld}, so there is no InternalIP; this node is Ready and keeps its addresses, with {from}"
            ),
            Self::InternalIpHeld { from, to: Some(to), .. } => write!(
                f,
                "the cloud returns {to} as the first InternalIP; this node is Ready and keeps {from} (--node-internal-ip-change=hold)"
            ),
        }
    }
}
