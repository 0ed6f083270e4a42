//! From what the informer keeps to the plain values that the plan works on.

use ccm_controller::queue::Priority;
use ccm_objects::Node;

use crate::plan::{
    Address, NodeFacts, OWNED_LABELS, PROVIDED_NODE_IP, Taint, facts::parse_owned_labels,
};

/// What the plan is told about a node.
pub(crate) fn facts(node: &Node) -> NodeFacts {
    let annotation = |key: &str| node.annotations.get(key).map(|value| &**value);
    NodeFacts {
        name: node.name.to_string(),
        provider_id: node.provider_id.as_deref().map(str::to_owned),
        labels: node
            .labels
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
        owned_labels: annotation(OWNED_LABELS).map(parse_owned_labels).unwrap_or_default(),
        provided_node_ip: annotation(PROVIDED_NODE_IP).map(str::to_owned),
        taints: node.taints.iter().map(taint).collect(),
        addresses: node
            .addresses
            .iter()
            .map(|entry| Address::new(&*entry.kind, &*entry.address))
            .collect(),
        ready: node.is_ready(),
    }
}

fn taint(taint: &ccm_objects::Taint) -> Taint {
    let text = |text: &ccm_objects::Shared| text.to_string();
    Taint {
        key: text(&taint.key),
        value: taint.value.as_ref().map(text),
        effect: text(&taint.effect),
        time_added: taint.time_added.as_ref().map(text),
    }
}

/// Whether an answer about one is an answer about the other: they are the same object
/// and say the same about who they are.
pub(crate) fn same_machine(a: &Node, b: &Node) -> bool {
    a.uid == b.uid && a.provider_id == b.provider_id && a.system_uuid == b.system_uuid
}

/// How soon a node that has changed like this is to be looked at; `None` if nothing has
/// changed that the plan looks at. Most updates are of that kind.
///
/// What a person or kubelet changed in order to mend something is urgent: it also
/// shortens a back-off. The rest is not, so that a busy node does not drive the calls
/// to a cloud that fails.
pub(crate) fn wakes(old: &Node, new: &Node) -> Option<Priority> {
    let identified = same_machine(old, new);
    let annotated = old.annotations == new.annotations;
    if new.is_uninitialised() && (!old.is_uninitialised() || !identified || !annotated) {
        return Some(Priority::Urgent);
    }
    let same = identified
        && annotated
        && old.labels == new.labels
        && old.taints == new.taints
        && old.addresses == new.addresses
        // An InternalIP that is held is let go when the node stops being Ready.
        && (new.is_ready() || !old.is_ready());
    (!same).then_some(Priority::Routine)
}

#[cfg(test)]
mod tests;
