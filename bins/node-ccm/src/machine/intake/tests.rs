use std::sync::Arc;

use ccm_objects::Condition;

use super::*;
use crate::plan::{OWNED_LABELS, PROVIDED_NODE_IP, UNINITIALIZED};

fn taint(key: &str) -> ccm_objects::Taint {
    ccm_objects::Taint {
        key: key.into(),
        effect: "NoSchedule".into(),
        ..ccm_objects::Taint::default()
    }
}

fn ready(status: &str) -> Vec<Condition> {
    vec![Condition { kind: "Ready".into(), status: status.into(), ..Condition::default() }]
}

fn node() -> Node {
    Node {
        name: "node-1".into(),
        uid: "u-1".into(),
        labels: [(Arc::from("e.com/a"), Arc::from("1"))].into(),
        annotations: [
            (Arc::from(OWNED_LABELS), "e.com/a, e.com/b".into()),
            (Arc::from(PROVIDED_NODE_IP), "".into()),
        ]
        .into(),
        provider_id: Some("sim://i-1".into()),
        taints: vec![taint("e.com/x")],
        addresses: vec![ccm_objects::Address { kind: "Hostname".into(), address: "node-1".into() }],
        conditions: ready("True"),
        system_uuid: Some("uuid".into()),
        ..Node::default()
    }
}

/// The informer must keep every annotation that the plan reads.
#[test]
fn the_informer_keeps_the_owned_labels_annotation() {
    assert!(OWNED_LABELS.starts_with(ccm_objects::OWN_ANNOTATIONS));
}

/// Quirk 14: most updates of a node do not affect this controller.
#[test]
fn only_changes_that_the_plan_reads_queue_a_node() {
    let changed = |change: fn(&mut Node)| {
        let mut new = node();
        change(&mut new);
        sync_priority(&node(), &new)
    };
    let routine = Some(Priority::Routine);
    assert_eq!(changed(|_| {}), None);
    assert_eq!(changed(|node| node.resource_version = "9".into()), None);
    assert_eq!(changed(|node| node.unschedulable = true), None);
    assert_eq!(changed(|node| node.pod_cidrs.push("10.0.0.0/24".into())), None);
    assert_eq!(changed(|node| node.labels.clear()), routine);
    assert_eq!(changed(|node| node.addresses.clear()), routine);
    assert_eq!(changed(|node| node.taints.clear()), routine);
    assert_eq!(changed(|node| node.annotations.clear()), routine);
    assert_eq!(changed(|node| node.provider_id = None), routine);
    assert_eq!(
        changed(|node| node.conditions = ready("False")),
        routine,
        "the held InternalIP may be written now"
    );
    assert_eq!(changed(|node| node.taints.push(taint(UNINITIALIZED))), Some(Priority::Urgent));
}

/// Quirk 15: events of a waiting node must not cause calls to a failing cloud.
#[test]
fn a_tainted_node_is_urgent_only_if_identity_or_annotations_change() {
    let mut waiting = node();
    waiting.taints.push(taint(UNINITIALIZED));
    let changed = |change: fn(&mut Node)| {
        let mut new = waiting.clone();
        change(&mut new);
        sync_priority(&waiting, &new)
    };
    assert_eq!(changed(|node| node.labels.clear()), Some(Priority::Routine));
    assert_eq!(changed(|node| node.conditions = ready("Unknown")), Some(Priority::Routine));
    assert_eq!(changed(|node| node.provider_id = Some("sim://i-2".into())), Some(Priority::Urgent));
    assert_eq!(changed(|node| node.annotations.clear()), Some(Priority::Urgent));
    assert_eq!(
        changed(|node| node.taints.retain(|taint| &*taint.key != UNINITIALIZED)),
        Some(Priority::Routine)
    );
}
