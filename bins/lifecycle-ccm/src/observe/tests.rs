use ccm_cloud::{ErrorKind, Instance, ProviderId};
use ccm_objects::node_keys;
use ccm_objects::{Condition, Taint};

use super::*;
use crate::policy::action::APPROVED;

fn node(name: &str, id: Option<&str>) -> Arc<Node> {
    let ready = Condition { kind: "Ready".into(), status: "Unknown".into(), reason: None };
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

#[test]
fn nodes_named_in_malformed_entries_may_exist() {
    let lines = ["instance i-7: zone is no string.".to_owned(), "no ID: K8s-Worker-1".to_owned()];
    for (name, id, expect) in [
        ("n", Some("sim://i-7"), true),
        ("n", Some("sim:///region/i-7"), true),
        ("n", Some("sim://i-77"), false),
        ("i-7", None, true),
        ("string", Some("sim://i-9"), true),
        ("k8s-worker-1", None, true),
        ("i", None, false),
    ] {
        assert_eq!(may_be_in(&lines, name, id), expect, "{name} {id:?}");
    }
}

/// The spelling of a cloud with lower-case IDs.
fn small(id: &str) -> String {
    id.to_lowercase()
}

#[test]
fn the_age_is_the_shortest_possible() {
    let seconds = |count| Some(Duration::from_secs(count));
    assert_eq!(age(seconds(500), None), Duration::from_mins(500 / 60) + Duration::from_secs(20));
    assert_eq!(age(seconds(5000), seconds(3)), Duration::from_secs(3), "a clock that is ahead");
    assert_eq!(age(seconds(2), seconds(30)), Duration::from_secs(2), "a clock that is behind");
    assert_eq!(age(None, seconds(30)), Duration::ZERO);
}

#[test]
fn nodes_are_matched_by_id_or_by_name_without_one() {
    let instance = |id: &str, name: &str| Instance::new(ProviderId::parse(id).unwrap(), name);
    let nodes: Vec<_> = [
        node("a", Some("sim://i-a")),
        node("b", Some("sim://i-b")),
        node("loud", Some("sim://I-L")),
        node("ghost", None),
        node("named", None),
        node("loud-name", None),
        // Its name is listed, its ID is not: another machine of that name.
        node("again", Some("sim://i-old")),
    ]
    .into_iter()
    .map(|node| (of(&node), node))
    .collect();
    let (views, nodes) = nodes.into_iter().unzip();
    let nodes = Nodes { views, nodes };
    let fleet = Fleet {
        instances: vec![
            instance("sim://i-a", "x"),
            instance("sim://i-new", "again"),
            instance("sim://i-n", "named"),
            instance("sim://i-l", "l"),
            instance("sim://i-m", "Loud-Name"),
        ],
        malformed: vec!["odd".to_owned()],
    };
    let times = (At(Duration::from_secs(1)), At(Duration::from_secs(2)));
    let missing = ["again", "b", "ghost"].map(Into::into).into();
    let (asked, answered) = times;
    let expect = Listing::Read { asked, answered, instances: 5, malformed: 1, missing };
    assert_eq!(listing(Ok(fleet), small, &nodes, times), expect);
    let error = CloudError::new(ErrorKind::Timeout, "late");
    assert_eq!(listing(Err(error.clone()), small, &nodes, times), Listing::Failed(error));
}
