use ccm_objects::Taint;
use ccm_objects::node_keys;

use super::*;
use crate::plan::WaitReason;

/// Returns a tainted node that is this many minutes old at 12:00.
fn tainted(name: &str, minutes: u32) -> Node {
    let created = format!("2026-01-01T11:{:02}:00Z", 60 - minutes);
    let taint = Taint {
        key: node_keys::UNINITIALIZED.into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    Node {
        name: name.into(),
        created: created.parse().ok(),
        taints: vec![taint],
        ..Node::default()
    }
}

#[test]
fn only_nodes_of_this_provider_count() {
    let state = |name: &str| match name {
        "waits" => Some(NodeState::Pending),
        "foreign" => Some(NodeState::Foreign),
        "elsewhere" => Some(NodeState::NotOurs),
        "not-selected" => Some(NodeState::NotSelected),
        _ => None,
    };
    let check = |nodes: &[Node], minutes: u64| {
        let nodes: Vec<_> = nodes.iter().cloned().map(Arc::new).collect();
        let age = |node: &Node| node.age("2026-01-01T12:00:00Z".parse().unwrap());
        let expect = Duration::from_mins(minutes);
        assert_eq!(waiting(&nodes, state, age).longest, expect, "{nodes:?}");
    };
    check(&[], 0);
    check(&[tainted("waits", 3), tainted("unheard-of", 5), tainted("waits-2", 4)], 5);
    check(&[tainted("waits", 3), tainted("foreign", 9), tainted("elsewhere", 9)], 3);
    check(&[tainted("waits", 3), tainted("not-selected", 9)], 3);
    check(&[Node { taints: Vec::new(), ..tainted("initialised", 9) }], 0);
    check(&[Node { deleting: true, ..tainted("leaves", 9) }], 0);
    check(&[Node { created: None, ..tainted("no-date", 9) }], 0);
}

#[test]
fn who_waits_longest_is_said_and_is_a_fault_after_five_minutes() {
    let lost = NodeState::Waiting(WaitReason::InstanceNotFound);
    let state = |name: &str| (name == "lost").then_some(lost);
    let said = |minutes: u32, is_observing| {
        let nodes = [tainted("lost", minutes), tainted("new", 1)].map(Arc::new);
        let age = |node: &Node| node.age("2026-01-01T12:00:00Z".parse().unwrap());
        verdict(&waiting(&nodes, state, age), is_observing)
    };
    let text = |minutes| {
        format!("2 nodes stay tainted, longest lost for {minutes} min: instance_not_found")
    };
    assert_eq!(said(4, false), Verdict::Passed(text(4)));
    assert_eq!(said(5, false), Verdict::Failed(text(5)));
    assert_eq!(said(9, true), Verdict::Passed(text(9)), "another program initialises them");
    assert!(verdict(&Waiting::default(), false).is_passed());
}
