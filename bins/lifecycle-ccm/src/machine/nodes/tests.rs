use ccm_objects::{Condition, Taint, node_keys};

use super::{super::event::Claimed, *};
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

/// Versions are numbers, and another node of the name has others.
#[test]
fn an_answer_does_not_bring_back_what_the_watch_has_replaced() {
    let with = |version: &str, uid: &str, label: &str| {
        Arc::new(Node {
            uid: uid.into(),
            resource_version: version.into(),
            labels: [("label".into(), label.into())].into(),
            ..Node::clone(&node("a", Some("sim://i-1")))
        })
    };
    let mut nodes = Nodes::default();
    nodes.see(At::default(), with("10", "u", "seen"), Some(Claim::Ours), false);
    for (version, uid, label, expect) in [
        ("9", "u", "earlier", "seen"),
        ("10", "u", "the same", "seen"),
        ("11", "another", "another", "seen"),
        ("11", "u", "later", "later"),
        ("odd", "u", "odd", "later"),
    ] {
        nodes.apply_answer(&with(version, uid, label));
        let known = nodes.get("a").unwrap();
        assert_eq!(*known.labels["label"], *expect, "{version} {uid}");
    }
    nodes.forget("a", "another");
    assert!(nodes.get("a").is_some(), "it is another node that is gone");
    nodes.apply_answer(&with("12", "u", "gone"));
    nodes.forget("a", "u");
    nodes.apply_answer(&with("13", "u", "gone"));
    assert!(nodes.get("a").is_none());
}

#[test]
fn a_claim_is_about_the_provider_id_that_the_node_had() {
    let mut nodes = Nodes::default();
    nodes.see(At::default(), node("a", Some("sim://i-1")), None, false);
    let claims = |nodes: &Nodes| nodes.iter().map(|(_, claim)| claim).collect::<Vec<_>>();
    for (id, expect) in [("sim://i-2", None), ("sim://i-1", Some(Claim::Foreign))] {
        let (name, provider_id) = ("a".into(), Some(id.into()));
        let claimed = Claimed { name, provider_id, claim: Some(Claim::Foreign) };
        nodes.sight(Sight { claims: vec![claimed], ..Sight::default() });
        assert_eq!(claims(&nodes), [expect], "{id}");
    }
}

#[test]
fn what_arrives_after_the_comparison_is_not_listed() {
    let mut nodes = Nodes::default();
    let mut see = |name, id| {
        nodes.see(At::default(), node(name, Some(id)), Some(Claim::Ours), false);
        nodes.arrivals()
    };
    let (as_of, changed) = (see("a", "sim://i-1"), see("a", "sim://i-1"));
    assert_eq!((as_of, changed), (1, 1), "it has not changed");
    see("b", "sim://i-2");
    let unlisted = Unlisted { missing: BTreeSet::new(), as_of };
    assert!(!nodes.is_unlisted(&"a".into(), &unlisted));
    assert!(nodes.is_unlisted(&"b".into(), &unlisted));
    nodes.see(At::default(), node("a", Some("sim://i-3")), Some(Claim::Ours), false);
    assert!(nodes.is_unlisted(&"a".into(), &unlisted), "it has another ID");
    let missing = ["a".into()].into();
    assert!(nodes.is_unlisted(&"a".into(), &Unlisted { missing, as_of: 9 }));
}

#[test]
fn the_age_is_the_shortest_possible() {
    let seconds = |count| Some(Duration::from_secs(count));
    assert_eq!(shortest(seconds(500), None), Duration::from_secs(500));
    assert_eq!(shortest(seconds(5000), seconds(3)), Duration::from_secs(3), "one is ahead");
    assert_eq!(shortest(seconds(2), seconds(30)), Duration::from_secs(2), "one is behind");
    assert_eq!(shortest(None, seconds(30)), Duration::ZERO);
}
