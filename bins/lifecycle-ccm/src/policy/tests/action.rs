//! The writes to nodes.

use ccm_objects::{Node, instance_gone};

use super::*;
use crate::policy::{
    action::{self, APPROVED, Marks, Write},
    shutdown::Removal,
};

fn node(annotations: &[(&str, &str)]) -> Arc<Node> {
    let annotations = annotations.iter().map(|(key, value)| ((*key).into(), (*value).into()));
    Arc::new(Node { annotations: annotations.collect(), ..Node::default() })
}

#[test]
fn a_ready_node_loses_proof_and_approval_and_another_one_keeps_them() {
    let marked = node(&[(instance_gone::KEY, "by_id"), (APPROVED, "yes")]);
    let marks = |view: &NodeView| {
        let action = action::marks(view, &marked, None, Removal::default())?;
        if let Write::Marks(marks) = action.write { Some(marks) } else { None }
    };
    let both = Marks { end_approval: true, end_proof: true, ..Marks::default() };
    assert_eq!(marks(&ready("a")), Some(both));
    assert_eq!(marks(&view("a")), None, "it is not Ready");
    assert_eq!(marks(&NodeView { replaced: true, ..ready("a") }), None);
    let of_others = [
        NodeView { claim: Claim::Foreign, ..ready("a") },
        NodeView { selected: false, ..ready("a") },
        NodeView { deleting: true, ..ready("a") },
    ];
    for view in &of_others {
        assert_eq!(marks(view), None, "{view:?}");
    }
}

#[test]
fn nothing_is_deleted_but_what_was_decided() {
    let node = node(&[]);
    let kept = Decision { verdict: Verdict::Keep(Reason::Exists), ..decision("a") };
    assert!(action::deletion(Some(&node), kept).is_none());
    assert!(action::deletion(None, decision("a")).is_none());
    assert!(action::deletion(Some(&node), decision("a")).is_some());
}

#[test]
fn a_proof_is_left_unless_the_node_has_a_fresh_one() {
    let proof = Proof {
        asked: at(999.0),
        answered: at(1000.0),
        method: ProofMethod::ById,
        evidence: "no such instance".to_owned(),
        request_id: None,
    };
    let evidence = Evidence { latest: Some(proof), ..Evidence::default() };
    let proven = Decision { evidence, ..decision("a") };
    let value = instance_gone::value("by_id", at(1000.0));
    let marked = node(&[(instance_gone::KEY, &value)]);
    let proof = |node: &Node, now| action::proof(node, &proven, at(now));
    assert_eq!(proof(&node(&[]), 1001.0), Some(value.clone()));
    assert_eq!(proof(&marked, 1001.0), None, "it is fresh");
    assert_eq!(proof(&marked, 1301.0), Some(value), "it ends soon");
    assert_eq!(action::proof(&node(&[]), &decision("a"), at(1001.0)), None, "there is none");
}
