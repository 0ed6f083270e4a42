use ccm_cloud::NodeSelector;
use ccm_objects::{Address, Condition, Taint, node_keys};

use std::{sync::LazyLock, time::Duration};

use super::*;

fn node() -> Node {
    Node {
        name: "n".into(),
        provider_id: Some("sim://n".into()),
        addresses: [("InternalIP", "10.0.0.1"), ("Hostname", "n"), ("ExternalIP", "192.0.2.1")]
            .map(|(kind, address)| Address::new(kind, address))
            .into(),
        ..Node::default()
    }
}

fn traits() -> LoadBalancerTraits {
    LoadBalancerTraits { member_ids: true, ..LoadBalancerTraits::default() }
}

fn rules<'a>(taints: &'a [String], traits: &'a LoadBalancerTraits) -> NodeRules<'a> {
    static NO_LABELS: LazyLock<LabelKeys> = LazyLock::new(LabelKeys::default);
    static NONE: BTreeSet<Arc<str>> = BTreeSet::new();
    NodeRules {
        scale_down_taints: taints,
        schemes: &[],
        foreign_nodes: false,
        left_out: &NONE,
        traits,
        labels: &NO_LABELS,
    }
}

#[test]
fn a_node_that_is_not_selected_is_no_member() {
    let (left_out, traits) = ([node().name].into(), traits());
    let rules = NodeRules { left_out: &left_out, ..rules(&[], &traits) };
    assert_eq!(member(&node(), rules), Err(Excluded::NotSelected));
    assert!(member(&Node { name: "m".into(), ..node() }, rules).is_ok());
}

#[test]
fn nodes_of_other_providers_are_no_members_unless_a_setting_says_so() {
    let schemes = ["sim".to_owned()];
    let of_id = |name: &str, id: Option<&str>| Node {
        name: name.into(),
        provider_id: id.map(Into::into),
        ..node()
    };
    let traits = LoadBalancerTraits::default();
    let set = |foreign_nodes, nodes: &[Node]| {
        let rules = NodeRules { schemes: &schemes, foreign_nodes, ..rules(&[], &traits) };
        node_set(nodes.iter(), rules, &NodeSet::default(), At::default())
    };
    let names = |set: &NodeSet| -> Vec<String> {
        set.members.iter().map(|member| member.node.clone()).collect()
    };
    let nodes = [
        of_id("bare", None),
        of_id("edge", Some("kubeedge://e")),
        of_id("odd", Some("odd")),
        of_id("own", Some("sim://i-1")),
    ];
    let without = set(false, &nodes);
    assert_eq!(names(&without), ["bare", "odd", "own"]);
    assert_eq!(
        without.summary(),
        "3 of 4 nodes can be members of load balancers: 1 of another provider"
    );
    let with = set(true, &nodes);
    assert_eq!(names(&with), ["bare", "edge", "odd", "own"]);
    assert_eq!(with.summary(), "4 of 4 nodes can be members of load balancers");
    // If no node belongs to the provider, no node is known to belong to another one.
    assert_eq!(names(&set(false, &nodes[..3])), ["bare", "edge", "odd"]);
}

fn sorted(node: &Node) -> Result<Member, Excluded> {
    let scale_down_taints = ["ToBeDeletedByClusterAutoscaler".to_owned()];
    member(node, rules(&scale_down_taints, &traits()))
}

fn taint(key: &str) -> Taint {
    Taint { key: key.into(), effect: "NoSchedule".into(), ..Taint::default() }
}

#[test]
fn a_member_has_what_the_provider_needs() {
    let member = sorted(&node()).expect("eligible");
    assert_eq!(member.provider_id.as_ref().map(ProviderId::as_str), Some("sim://n"));
    let addresses: Vec<_> = member.addresses.iter().map(|one| &*one.address).collect();
    assert_eq!(addresses, ["10.0.0.1", "192.0.2.1"], "no host names");
    assert!(member.labels.is_empty());
}

#[test]
fn readiness_and_cordons_do_not_drain_a_load_balancer() {
    let condition = |status: &str| Condition {
        kind: "Ready".into(),
        status: status.into(),
        ..Condition::default()
    };
    for status in ["False", "Unknown"] {
        assert!(sorted(&Node { conditions: vec![condition(status)], ..node() }).is_ok());
    }
    assert!(sorted(&Node { unschedulable: true, ..node() }).is_ok());
    assert!(sorted(&Node { taints: vec![taint("example.com/other")], ..node() }).is_ok());
}

#[test]
fn each_reason_to_be_no_member() {
    let label = |value: &str| Node {
        labels: [(service_keys::EXCLUDE_NODE.into(), value.into())].into(),
        ..node()
    };
    for value in ["", "true", "1", "t", "yes", "no", "false "] {
        assert_eq!(sorted(&label(value)), Err(Excluded::Label), "{value:?}");
    }
    for value in ["0", "f", "F", "FALSE", "false", "False"] {
        assert!(sorted(&label(value)).is_ok(), "{value:?}");
    }
    for (node, why) in [
        (
            Node { taints: vec![taint("ToBeDeletedByClusterAutoscaler")], ..label("true") },
            Excluded::ScaleDown,
        ),
        (Node { deleting: true, ..label("true") }, Excluded::Label),
        (Node { deleting: true, ..node() }, Excluded::Deleting),
        (Node { taints: vec![taint(node_keys::UNINITIALIZED)], ..node() }, Excluded::Uninitialised),
        (Node { provider_id: None, ..node() }, Excluded::NoProviderId),
        (Node { provider_id: Some("nonsense".into()), ..node() }, Excluded::NoProviderId),
        (Node { addresses: vec![Address::new("Hostname", "n")], ..node() }, Excluded::NoAddress),
    ] {
        assert_eq!(sorted(&node), Err(why), "{node:?}");
    }
}

#[test]
fn why_no_node_is_a_member() {
    let traits = traits();
    let rules = rules(&[], &traits);
    let why = |nodes: &[Node]| {
        node_set(nodes.iter(), rules, &NodeSet::default(), At::default()).why_none()
    };
    assert_eq!(why(&[node()]), None);
    assert_eq!(why(&[]).as_deref(), Some("the cluster has no node"));
    let labelled = |name: &str| Node {
        name: name.into(),
        labels: [(service_keys::EXCLUDE_NODE.into(), "".into())].into(),
        ..node()
    };
    let bare = Node { name: "c".into(), provider_id: None, ..node() };
    let two = why(&[labelled("a"), bare.clone()]).unwrap_or_default();
    assert_eq!(
        two,
        "none of 2 nodes can be a member: 1 with the label node.kubernetes.io/exclude-from-external-load-balancers, 1 without a provider ID"
    );
    // A different number of nodes is not reported, a different cause is.
    let three = why(&[labelled("a"), labelled("b"), bare]).unwrap_or_default();
    assert_ne!(two, three);
    assert_eq!(without_numbers(&two), without_numbers(&three));
    let one = why(&[labelled("a")]).unwrap_or_default();
    assert_ne!(without_numbers(&two), without_numbers(&one));
}

/// Returns true if the change of this node changes the members of load balancers.
fn passes_on(before: &Node, after: &Node) -> bool {
    let scale_down_taints = ["ToBeDeletedByClusterAutoscaler".to_owned()];
    let traits = traits();
    let rules = rules(&scale_down_taints, &traits);
    let now = At::default();
    let set = |node: &Node, last: &NodeSet| node_set(std::iter::once(node), rules, last, now);
    let last = set(before, &NodeSet::default());
    let is_same = Arc::ptr_eq(&set(after, &last).members, &last.members);
    assert_eq!(is_same, set(after, &last).members == last.members, "an equal set is shared");
    !is_same
}

#[test]
fn what_changes_of_a_node_is_passed_on() {
    let with_condition = |mut node: Node, kind: &str, status: &str| {
        node.conditions =
            vec![Condition { kind: kind.into(), status: status.into(), ..Condition::default() }];
        node
    };
    let ready = |node, status| with_condition(node, "Ready", status);
    let excluded = |mut node: Node| {
        node.labels = [(service_keys::EXCLUDE_NODE.into(), "".into())].into();
        node
    };
    let tainted = |node| Node { taints: vec![taint("ToBeDeletedByClusterAutoscaler")], ..node };
    let with_id = |node, id: &str| Node { provider_id: Some(id.into()), ..node };
    let without_id = |node| Node { provider_id: None, ..node };
    let labelled = |node| Node { labels: [("a".into(), "b".into())].into(), ..node };
    for (before, after, expect) in [
        (node(), node(), false),
        (node(), excluded(node()), true),
        (excluded(node()), excluded(node()), false),
        (node(), tainted(node()), true),
        (node(), Node { taints: vec![taint("example.com/other")], ..node() }, false),
        (node(), labelled(node()), false),
        (ready(node(), "False"), ready(node(), "True"), false),
        (ready(node(), "False"), node(), false),
        (node(), with_condition(node(), "DiskPressure", "True"), false),
        (node(), Node { deleting: true, ..node() }, true),
        (node(), with_id(node(), "sim://other"), true),
        (without_id(node()), node(), true),
        (without_id(node()), excluded(without_id(node())), false),
        (without_id(node()), tainted(without_id(node())), false),
        (without_id(node()), ready(without_id(node()), "False"), false),
        (tainted(node()), excluded(tainted(node())), false),
        (tainted(node()), without_id(tainted(node())), false),
        (tainted(node()), with_id(tainted(node()), "sim://other"), false),
        (tainted(node()), ready(tainted(node()), "False"), false),
        (excluded(node()), tainted(excluded(node())), false),
        (excluded(node()), ready(excluded(node()), "False"), false),
        (excluded(node()), without_id(excluded(node())), false),
        (excluded(node()), with_id(excluded(node()), "sim://other"), false),
        (ready(node(), "False"), tainted(ready(node(), "False")), true),
        (ready(node(), "False"), excluded(ready(node(), "False")), true),
        (ready(node(), "False"), without_id(ready(node(), "False")), true),
        (ready(node(), "False"), with_id(ready(node(), "False"), "sim://other"), true),
    ] {
        assert_eq!(passes_on(&before, &after), expect, "{before:?} to {after:?}");
        assert_eq!(passes_on(&after, &before), expect, "{after:?} to {before:?}");
    }
}

#[test]
fn members_are_sorted_whatever_the_order_of_the_nodes() {
    let traits = traits();
    let rules = rules(&[], &traits);
    let named = |name: &str| Node { name: name.into(), ..node() };
    let set = |nodes: [Node; 2]| {
        node_set(nodes.iter(), rules, &NodeSet::default(), At::default()).members
    };
    let members = set([named("b"), named("a")]);
    assert_eq!(members, set([named("a"), named("b")]));
    assert_eq!(members.iter().map(|one| &*one.node).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_node_that_goes_keeps_its_mark_for_a_day() {
    let traits = traits();
    let scale_down_taints = ["ToBeDeletedByClusterAutoscaler".to_owned()];
    let rules = rules(&scale_down_taints, &traits);
    let marked = Node { taints: vec![taint("ToBeDeletedByClusterAutoscaler")], ..node() };
    let at = |hours| At::default() + Duration::from_hours(hours);
    let seen = node_set([&marked].into_iter(), rules, &NodeSet::default(), at(0));
    for (hours, is_marked) in [(1, true), (23, true), (25, false)] {
        let set = node_set([].into_iter(), rules, &seen, at(hours));
        assert_eq!(set.marks.get("n").is_some(), is_marked, "{hours}");
    }
}

#[test]
fn the_digest_covers_the_addresses() {
    let with = |address: &str| {
        let addresses = [Address::new("InternalIP", address)].into();
        let member = sorted(&Node { addresses, ..node() }).expect("eligible");
        digest(&[member])
    };
    assert_eq!(with("10.0.0.1"), with("10.0.0.1"));
    assert_ne!(with("10.0.0.1"), with("10.0.0.2"));
    let member = sorted(&node()).expect("eligible");
    let with = |pool: &str| {
        let labels = Arc::new([("pool".to_owned(), pool.to_owned())].into());
        digest(&[Member { labels, ..member.clone() }])
    };
    assert_eq!(with("a"), with("a"));
    assert_ne!(with("a"), with("b"));
}

/// A change of a label that counted before is a change of the nodes, and is handled as such.
#[test]
fn with_further_labels_nothing_else_changes() {
    let labels = |pool: &str| -> Labels {
        [("pool", pool), ("rack", "1"), ("zone", "z")]
            .map(|(key, value)| (key.into(), value.into()))
            .into()
    };
    let keys = |text: &str| {
        let mut keys = LabelKeys::default();
        keys.add(&NodeSelector::parse(text));
        keys
    };
    let (before, now) = (keys("pool"), keys("pool,rack"));
    let traits = traits();
    let rules = NodeRules { labels: &before, ..rules(&[], &traits) };
    let seen = Node { labels: labels("a"), ..node() };
    let set = node_set([&seen].into_iter(), rules, &NodeSet::default(), At::default());
    let later = labels("b");
    let set = set.with_labels(|_| Some(&later), (&before, &now));
    let expect =
        [("pool", "a"), ("rack", "1")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(*set.members[0].labels, BTreeMap::from(expect));
}
