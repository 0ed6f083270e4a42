//! The numbers refer to the scenarios in docs/internal/parity.md.

use ccm_cloud::ProviderId;

use super::*;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn map(pairs: Pairs<'_>) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn node(labels: Pairs<'_>, owned: &str) -> Node {
    Node {
        labels: labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        annotations: [(OWNED_LABELS.into(), owned.into())].into(),
        ..Node::default()
    }
}

fn cloud(zone: Option<&str>, labels: Pairs<'_>) -> Instance {
    let mut instance = Instance::new(ProviderId::parse("sim://i-0").unwrap(), "node0");
    instance.zone = zone.map(str::to_owned);
    instance.labels = map(labels);
    instance
}

/// Changes as `key=value`, `key-` for a removal, `@keys` for the record, `!` for a note.
fn check(what: &str, node: &Node, instance: &Instance, expect: &[&str]) {
    let changes = changes(node, instance, Policy::default());
    let mut got: Vec<String> = changes
        .labels
        .iter()
        .map(|(key, value)| {
            value.as_ref().map_or(format!("{key}-"), |value| format!("{key}={value}"))
        })
        .collect();
    got.extend(changes.owned.iter().map(|owned| format!("@{}", format_owned(owned))));
    got.extend(changes.notes.iter().map(|note| format!("!{note}")));
    let matches = |got: &str, expect: &str| {
        got == expect
            || (expect.ends_with("...") && got.starts_with(expect.trim_end_matches("...")))
    };
    let equal = got.len() == expect.len()
        && got.iter().zip(expect).all(|(got, expect)| matches(got, expect));
    assert!(equal, "{what}: {got:#?}");
}

const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const GA_ZONE: &str = "topology.kubernetes.io/zone";

#[test]
fn type_zone_and_region_get_both_spellings() {
    let mut instance = cloud(Some("us-west-1a"), &[]);
    instance.region = Some("us-west".to_owned());
    instance.instance_type = Some("t1.micro".to_owned());
    let expect = [
        "beta.kubernetes.io/instance-type=t1.micro",
        "failure-domain.beta.kubernetes.io/region=us-west",
        "failure-domain.beta.kubernetes.io/zone=us-west-1a",
        "node.kubernetes.io/instance-type=t1.micro",
        "topology.kubernetes.io/region=us-west",
        "topology.kubernetes.io/zone=us-west-1a",
    ];
    check("5, 15", &node(&[], ""), &instance, &expect);
    check("6: nothing named, nothing set", &node(&[], ""), &cloud(None, &[]), &[]);
    check("an empty value is absent", &node(&[], ""), &cloud(Some(""), &[]), &[]);
}

#[test]
fn the_clouds_value_overwrites_both_labels() {
    for (what, labels, expect) in [
        ("both right", &[(BETA_ZONE, "a"), (GA_ZONE, "a")] as Pairs<'_>, &[] as &[&str]),
        ("GA edited", &[(BETA_ZONE, "a"), (GA_ZONE, "x")], &["topology.kubernetes.io/zone=a"]),
        (
            "beta edited",
            &[(BETA_ZONE, "x"), (GA_ZONE, "a")],
            &["failure-domain.beta.kubernetes.io/zone=a"],
        ),
        ("beta removed", &[(GA_ZONE, "a")], &["failure-domain.beta.kubernetes.io/zone=a"]),
        (
            "the cloud has moved on",
            &[(BETA_ZONE, "x"), (GA_ZONE, "x")],
            &["failure-domain.beta.kubernetes.io/zone=a", "topology.kubernetes.io/zone=a"],
        ),
    ] {
        check(what, &node(labels, ""), &cloud(Some("a"), &[]), expect);
    }
}

#[test]
fn without_a_value_of_the_cloud_beta_is_mirrored() {
    let three = [
        (BETA_ZONE, "z"),
        ("failure-domain.beta.kubernetes.io/region", "r"),
        ("beta.kubernetes.io/instance-type", "t"),
    ];
    let mirrored = [
        "node.kubernetes.io/instance-type=t",
        "topology.kubernetes.io/region=r",
        "topology.kubernetes.io/zone=z",
    ];
    check("23", &node(&three, ""), &cloud(None, &[]), &mirrored);
    let wrong = [
        (GA_ZONE, "x"),
        ("topology.kubernetes.io/region", "x"),
        ("node.kubernetes.io/instance-type", "x"),
    ];
    check("25", &node(&[three, wrong].concat(), ""), &cloud(None, &[]), &mirrored);
    let right = [
        (GA_ZONE, "z"),
        ("topology.kubernetes.io/region", "r"),
        ("node.kubernetes.io/instance-type", "t"),
    ];
    check("24", &node(&[three, right].concat(), ""), &cloud(None, &[]), &[]);
    check("GA alone stays alone", &node(&[(GA_ZONE, "x")], ""), &cloud(None, &[]), &[]);
}

#[test]
fn additional_labels_are_set_where_the_key_is_free() {
    let added = cloud(None, &[("topology.k8s.cp/zone-id", "az1"), ("my.custom.label/foo", "bar")]);
    let expect = [
        "my.custom.label/foo=bar",
        "topology.k8s.cp/zone-id=az1",
        "@my.custom.label/foo,topology.k8s.cp/zone-id",
    ];
    check("18", &node(&[], ""), &added, &expect);
    let mixed = cloud(
        None,
        &[
            ("topology.kubernetes.io/region", "us"),
            ("topology.k8s.io/region", "us"),
            ("kubernetes.io/equal", "same"),
            ("k8s.io/different", "cloud"),
            ("app.k8snio/bar", "baz"),
            ("k8snio/bar", "baz"),
        ],
    );
    check(
        "19",
        &node(&[("kubernetes.io/equal", "same"), ("k8s.io/different", "node")], ""),
        &mixed,
        &[
            "app.k8snio/bar=baz",
            "k8snio/bar=baz",
            "@app.k8snio/bar,k8snio/bar",
            "!Discarding node label k8s.io/different with kubernetes namespace",
            "!Discarding node label kubernetes.io/equal with kubernetes namespace",
            "!Discarding node label topology.k8s.io/region with kubernetes namespace",
            "!Discarding node label topology.kubernetes.io/region with kubernetes namespace",
        ],
    );
    check(
        "equal, set by another writer: not recorded",
        &node(&[("e.com/a", "1")], ""),
        &cloud(None, &[("e.com/a", "1")]),
        &[],
    );
    check(
        "different, set by another writer: the node's value wins",
        &node(&[("e.com/a", "mine")], ""),
        &cloud(None, &[("e.com/a", "1")]),
        &[
            "!Discarding node label e.com/a that is already present: the node has \"mine\", the cloud returns \"1\"",
        ],
    );
}

#[test]
fn recorded_labels_follow_the_cloud() {
    let one = cloud(None, &[("e.com/a", "2")]);
    check("changed", &node(&[("e.com/a", "1")], "e.com/a"), &one, &["e.com/a=2"]);
    check("removed by hand", &node(&[], "e.com/a"), &one, &["e.com/a=2"]);
    check("as it should be", &node(&[("e.com/a", "2")], " e.com/a ,"), &one, &[]);
    check(
        "gone from the cloud",
        &node(&[("e.com/b", "1")], "e.com/a,e.com/b"),
        &one,
        &["e.com/a=2", "e.com/b-"].into_iter().chain(["@e.com/a"]).collect::<Vec<_>>(),
    );
    check(
        "the last one gone",
        &node(&[("e.com/a", "2")], "e.com/a"),
        &cloud(None, &[]),
        &["e.com/a-", "@"],
    );
    check("not ours, not removed", &node(&[("e.com/z", "1")], ""), &cloud(None, &[]), &[]);
    check(
        "a record edited by hand cannot make us remove what is Kubernetes' own",
        &node(&[("kubernetes.io/hostname", "n")], "kubernetes.io/hostname"),
        &cloud(None, &[]),
        &["@"],
    );
}

#[test]
fn invalid_labels_are_skipped_and_reported() {
    let bad_zone = cloud(Some("zone one"), &[("e.com/bad", "not legal!"), ("e.com/good", "yes")]);
    check(
        "quirk 17",
        &node(&[], ""),
        &bad_zone,
        &[
            "e.com/good=yes",
            "@e.com/good",
            "!Discarding node label topology.kubernetes.io/zone=\"zone one\" from the cloud: a value must have...",
            "!Discarding node label e.com/bad=\"not legal!\" from the cloud: a value must have...",
        ],
    );
    check(
        "one of ours keeps its last legal value",
        &node(&[("e.com/bad", "fine")], "e.com/bad"),
        &cloud(None, &[("e.com/bad", "not legal!")]),
        &["!Discarding node label e.com/bad=..."],
    );
}

/// The Go providers omit a label that the node already has.
#[test]
fn add_only_labels_are_never_removed() {
    let policy = Policy { labels_only_add: true, ..Policy::default() };
    let node = node(&[("e.com/a", "1"), ("e.com/b", "1")], "e.com/a,e.com/b");
    let added = changes(&node, &cloud(None, &[("e.com/b", "2")]), policy);
    assert_eq!(added.labels, [("e.com/b".to_owned(), Some("2".to_owned()))].into());
    assert_eq!(added.owned, None, "both stay recorded");
}

/// A kubelet can set them on its own node.
#[test]
fn the_cloud_owns_the_labels_of_its_domain() {
    const RACK: &str = "openstack.quartet.dev/rack";
    const PCI: &str = "openstack.quartet.dev/pci";
    let instance = cloud(None, &[(RACK, "r1")]);
    let expect = [
        "openstack.quartet.dev/pci-",
        "openstack.quartet.dev/rack=r1",
        "@openstack.quartet.dev/rack",
    ];
    check("forged", &node(&[(RACK, "x"), (PCI, "yes")], ""), &instance, &expect);
    check("the same value", &node(&[(RACK, "r1")], ""), &instance, &[]);
    check(
        "approvals",
        &node(&[("quartet.dev/change-approved", "yes")], ""),
        &cloud(None, &[]),
        &[],
    );
    let only_add = Policy { labels_only_add: true, ..Policy::default() };
    let changes = changes(&node(&[(PCI, "yes")], ""), &instance, only_add);
    assert_eq!(changes.labels.keys().collect::<Vec<_>>(), [RACK]);
}
