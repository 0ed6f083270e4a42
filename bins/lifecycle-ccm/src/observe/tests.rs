use ccm_cloud::{ErrorKind, Instance, ProviderId};
use ccm_objects::node_keys;
use ccm_objects::{Condition, Taint};

use super::*;
use crate::policy::action::APPROVED;

fn node(name: &str, id: Option<&str>) -> Arc<Node> {
    let ready =
        Condition { kind: "Ready".into(), status: "Unknown".into(), ..Condition::default() };
    Arc::new(Node {
        name: name.into(),
        uid: "u".into(),
        provider_id: id.map(Into::into),
        conditions: vec![ready],
        ..Node::default()
    })
}

fn of(node: &Node) -> NodeView {
    view(node, Claim::Ours, Duration::from_mins(10))
}

#[test]
fn annotations_and_taints_are_read() {
    let mut plain = Node::clone(&node("a", None));
    let got = of(&plain);
    assert!(!got.protected && !got.approved && !got.uninitialised && !got.ready && !got.has_id);
    plain.annotations =
        [(PROTECTED.into(), "".into()), (APPROVED.into(), "false".into())].into_iter().collect();
    plain.taints = vec![Taint { key: node_keys::UNINITIALIZED.into(), ..Taint::default() }];
    plain.conditions[0].status = "True".into();
    let got = of(&plain);
    assert!(got.protected && !got.approved && got.uninitialised && got.ready);
}

#[test]
fn only_known_values_approve() {
    let mut node = Node::clone(&node("a", None));
    for (word, expect) in
        [("yes", true), (" True ", true), ("no", false), ("", false), ("please", false)]
    {
        node.annotations = [(APPROVED.into(), word.into())].into_iter().collect();
        assert_eq!(of(&node).approved, expect, "{word:?}");
        let labelled = Node {
            annotations: std::collections::BTreeMap::new(),
            labels: [(APPROVED.into(), word.into())].into(),
            ..node.clone()
        };
        assert_eq!(of(&labelled).approved, expect, "label {word:?}");
    }
}

#[test]
fn another_system_uuid_is_another_machine() {
    let with = |uid: &str, uuid: Option<&str>, id: Option<&str>| Node {
        uid: uid.into(),
        system_uuid: uuid.map(Into::into),
        ..Node::clone(&node("a", id))
    };
    let (old, id) = (with("u", Some("ab-1"), Some("sim://i-1")), Some("sim://i-1"));
    for (new, expect) in [
        (with("u", Some("ab-2"), id), true),
        (with("u", Some("AB-1"), id), false),
        (with("u", None, id), false),
        (with("u", Some("ab-2"), None), false),
        (with("u-2", Some("ab-2"), id), false),
    ] {
        assert_eq!(is_replaced(&old, &new), expect, "{new:?}");
    }
    assert!(!is_replaced(&with("u", None, id), &old), "it was not known");
}

/// The spelling of a cloud with lower-case IDs.
fn small(id: &str) -> String {
    id.to_lowercase()
}

#[test]
fn a_list_is_compared_with_the_nodes_that_the_provider_answers_for() {
    let nodes = [("a", "sim://i-a"), ("b", "sim://I-B"), ("gone", "sim://i-c"), ("other", "x://1")];
    let nodes = nodes.map(|(name, id)| node(name, Some(id)));
    let mut views = nodes.each_ref().map(|node| of(node));
    views[3].claim = Claim::Foreign;
    let nodes = Nodes { views: views.into(), nodes: nodes.into() };
    let instance = |id: &str| Instance::new(ProviderId::parse(id).unwrap(), "x");
    let fleet = Fleet {
        instances: vec![instance("sim://i-a"), instance("sim://i-b")],
        malformed: vec!["odd".to_owned()],
    };
    let times = (At(Duration::from_secs(1)), At(Duration::from_secs(2)));
    let missing = ["gone"].map(Into::into).into();
    let (asked, answered) = times;
    let expect = Listing::Read { asked, answered, instances: 2, malformed: 1, missing };
    assert_eq!(listing(Ok(fleet), small, &nodes, times), expect);
    let error = CloudError::new(ErrorKind::Timeout, "late");
    assert_eq!(listing(Err(error.clone()), small, &nodes, times), Listing::Failed(error));
}
