use ccm_cloud::Instance;

use super::*;

#[test]
fn nodes_named_in_malformed_entries_may_exist() {
    let lines =
        ["instance i-7: zone is not a string.".to_owned(), "no ID: K8s-Worker-1".to_owned()];
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

#[test]
fn nodes_are_matched_by_id_or_by_name_without_one() {
    let node = |(name, id): (&str, Option<&str>)| {
        Arc::new(Node { name: name.into(), provider_id: id.map(Into::into), ..Node::default() })
    };
    let instance = |id: &str, name: &str| Instance::new(ProviderId::parse(id).unwrap(), name);
    let other = Instance {
        other_ids: vec![ProviderId::parse("sim://region/i-b").unwrap()],
        ..instance("sim://i-x", "x")
    };
    let nodes = [
        ("a", Some("sim://i-a")),
        ("b", Some("sim://i-b")),
        ("other", Some("sim://region/i-b")),
        ("loud", Some("sim://I-L")),
        ("ghost", None),
        ("named", None),
        ("loud-name", None),
        // The list has its name, but not its ID: it shows another machine of that name.
        ("again", Some("sim://i-old")),
        ("odd", None),
    ]
    .map(node);
    let fleet = Fleet {
        instances: vec![
            instance("sim://i-a", "x"),
            instance("sim://i-new", "again"),
            instance("sim://i-n", "named"),
            instance("sim://i-l", "l"),
            instance("sim://i-m", "Loud-Name"),
            other,
        ],
        malformed: vec!["odd".to_owned()],
    };
    let missing = unlisted(&fleet, str::to_lowercase, nodes.iter());
    assert_eq!(missing, ["again", "b", "ghost"].map(Into::into).into());
}
