//! Parsing of valid and invalid objects.

use kube::core::{ObjectList, WatchEvent};
use proptest::prelude::*;
use serde_json::{Value, json};

use ccm_objects::{Node, Taint, node_keys};
use jiff::Timestamp;
use std::{collections::BTreeMap, time::Duration};

use crate::{
    store::{Rule, Stored},
    wire::Received,
};

/// Returns a node with every field that is read and many that are not.
fn sound() -> Value {
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {
            "name": "node-1", "uid": "u-1", "resourceVersion": "42", "generation": 3,
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"zone": "a", "kubernetes.io/hostname": "node-1"},
            "annotations": {
                "alpha.kubernetes.io/provided-node-ip": "10.0.0.1",
                "quartet.dev/hold": "yes", "other.example/large": "x".repeat(1000),
            },
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
        },
        "spec": {
            "providerID": "sim://i-1", "podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/80"],
            "unschedulable": true,
            "taints": [
                {"key": "a", "value": "v", "effect": "NoSchedule"},
                {"key": "b", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
                {"key": "c", "value": "", "effect": "EffectOfTheFuture"},
            ],
        },
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "fd00::1"},
                {"type": "KindOfTheFuture", "address": "x"},
            ],
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "m"},
                {"type": "NetworkUnavailable", "status": "Unknown"},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {"systemUUID": "su-1", "kubeletVersion": "v1.36.3"},
            "images": [{"names": ["a", "b"], "sizeBytes": 12345}],
        },
    })
}

fn read(object: &Value) -> Result<Node, String> {
    let received = serde_json::from_str::<Received<Node>>(&object.to_string()).unwrap();
    received.into_object(&Rule::default())
}

/// Returns the valid node with another value at one place.
fn with(pointer: &str, value: Value) -> Node {
    let mut object = sound();
    *object.pointer_mut(pointer).expect("a place in the sound node") = value;
    read(&object).unwrap()
}

#[test]
fn what_is_looked_at_is_kept_and_nothing_else() {
    let node = read(&sound()).unwrap();
    assert_eq!((&*node.name, &*node.uid, &*node.resource_version), ("node-1", "u-1", "42"));
    assert_eq!(node.created.unwrap().to_string(), "2026-01-02T03:04:05Z");
    assert_eq!(node.labels.len(), 2);
    let annotations: Vec<_> = node.annotations.keys().map(|key| &**key).collect();
    assert_eq!(annotations, [node_keys::PROVIDED_NODE_IP, "quartet.dev/hold"]);
    assert_eq!(node.provider_id.as_deref(), Some("sim://i-1"));
    assert_eq!(node.pod_cidrs.len(), 2);
    assert!(node.unschedulable && !node.deleting);
    assert_eq!(node.addresses.len(), 3);
    assert_eq!(node.conditions.len(), 2);
    assert_eq!(node.condition("Ready"), Some("True"));
    assert_eq!(node.condition("NetworkUnavailable"), Some("Unknown"));
    assert_eq!((node.system_uuid.as_deref(), node.kubelet_port), (Some("su-1"), Some(10250)));
}

/// The messages of nodes without trouble are not kept.
#[test]
fn the_message_is_kept_of_a_node_without_network() {
    for (status, kept) in [("True", Some("why")), ("False", None), ("Unknown", None)] {
        let mut object = sound();
        object["status"]["conditions"][2]["status"] = json!(status);
        object["status"]["conditions"][2]["message"] = json!("why");
        let conditions = read(&object).unwrap().conditions;
        let messages: Vec<_> = conditions.iter().map(|one| one.message.as_deref()).collect();
        assert_eq!(messages, [None, kept], "{status}");
    }
}

#[test]
fn what_is_written_back_whole_is_kept_whole() {
    let node = read(&sound()).unwrap();
    assert_eq!(json!(node.taints), sound()["spec"]["taints"]);
    assert_eq!(json!(node.addresses), sound()["status"]["addresses"]);
}

#[test]
fn a_node_needs_a_name_and_nothing_else() {
    let bare = read(&json!({"metadata": {"name": "n"}})).unwrap();
    assert_eq!(bare, Node { name: "n".into(), ..Node::default() });
    let nulls = json!({
        "metadata": {"name": "n", "labels": null, "deletionTimestamp": null, "creationTimestamp": null},
        "spec": {"taints": null, "providerID": "", "unschedulable": null}, "status": null,
    });
    assert_eq!(read(&nulls).unwrap(), bare);
    for broken in [
        json!({}),
        json!(5),
        json!(null),
        json!([]),
        json!({"metadata": "x"}),
        json!({"metadata": {"name": ""}}),
        json!({"metadata": {"name": 5}}),
    ] {
        assert_eq!(read(&broken), Err("it has no valid name".to_owned()), "{broken}");
    }
}

#[test]
fn a_field_of_the_wrong_type_counts_as_absent() {
    let sound = read(&sound()).unwrap();
    let check = |pointer: &str, value: Value, change: fn(&mut Node)| {
        let mut expect = sound.clone();
        change(&mut expect);
        assert_eq!(with(pointer, value), expect, "{pointer}");
    };
    check("/metadata/uid", json!(5), |node| node.uid = "".into());
    check("/metadata/creationTimestamp", json!("yesterday"), |node| node.created = None);
    check("/metadata/labels", json!([]), |node| node.labels.clear());
    check("/metadata/labels/zone", json!(1), |node| drop(node.labels.remove("zone")));
    check("/metadata/managedFields", json!(1), |_| {});
    check("/spec/providerID", json!({}), |node| node.provider_id = None);
    check("/spec/unschedulable", json!("true"), |node| node.unschedulable = false);
    check("/spec/podCIDRs/0", json!(1), |node| drop(node.pod_cidrs.remove(0)));
    check("/spec/taints/0/value", json!(1), |node| node.taints[0].value = None);
    check("/spec/taints/1/timeAdded", json!(1), |node| node.taints[1].time_added = None);
    check("/spec/taints/2/effect", json!(1), |node| node.taints[2].effect = "".into());
    check("/status/addresses/0/type", json!(1), |node| node.addresses[0].kind = "".into());
    check("/status/conditions/1/reason", json!(1), |node| node.conditions[0].reason = None);
    check("/status/conditions/1", json!("Ready"), |node| drop(node.conditions.remove(0)));
    check("/status/nodeInfo", json!(1), |node| node.system_uuid = None);
    check("/spec", json!("x"), |node| {
        let emptied = Node::default();
        node.provider_id = emptied.provider_id;
        node.taints = emptied.taints;
        node.pod_cidrs = emptied.pod_cidrs;
        node.unschedulable = false;
    });
}

#[test]
fn any_deletion_timestamp_means_that_it_is_being_deleted() {
    for value in [json!("2026-01-01T00:00:00Z"), json!("soon"), json!(5)] {
        let mut object = sound();
        object["metadata"]["deletionTimestamp"] = value;
        assert!(read(&object).unwrap().deleting);
    }
}

#[test]
fn an_age_is_never_below_zero() {
    let created: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
    let node = Node { created: Some(created), ..Node::default() };
    let age = |now: &str| node.age(now.parse().unwrap());
    assert_eq!(age("2026-01-02T03:05:05.5Z"), Some(Duration::from_millis(60_500)));
    assert_eq!(age("2026-01-02T02:04:05Z"), Some(Duration::ZERO));
    assert_eq!(Node::default().age(created), None);
}

#[test]
fn only_the_key_of_the_taint_makes_a_node_uninitialised() {
    for (key, expect) in [
        ("node.cloudprovider.kubernetes.io/uninitialized", true),
        ("node.cloudprovider.kubernetes.io/shutdown", false),
    ] {
        for effect in ["NoSchedule", "EffectOfTheFuture"] {
            let taint = Taint { key: key.into(), effect: effect.into(), ..Taint::default() };
            let node = Node { taints: vec![taint], ..Node::default() };
            assert_eq!(node.is_uninitialised(), expect, "{key} {effect}");
        }
    }
}

#[test]
fn text_that_only_javascript_understands_spoils_one_field() {
    let text = r#"{"metadata":{"name":"n","uid":"\ud800","labels":{"a":"\udc00","b":"x"}},"spec":{"podCIDR":1e999}}"#;
    let received = serde_json::from_str::<Received<Node>>(text).unwrap();
    let node = received.into_object(&Rule::default()).unwrap();
    let labels = [("b".into(), "x".into())].into();
    assert_eq!(node, Node { name: "n".into(), labels, ..Node::default() });
}

#[test]
fn an_event_is_read_whichever_of_its_fields_comes_first() {
    let (object, check) = (sound(), |text: String| {
        let event: WatchEvent<Received<Node>> = serde_json::from_str(&text).unwrap();
        let WatchEvent::Modified(received) = event else { panic!("{event:?}") };
        assert_eq!(received.into_object(&Rule::default()), read(&sound()));
    });
    check(format!(r#"{{"type":"MODIFIED","object":{object}}}"#));
    check(format!(r#"{{"object":{object},"type":"MODIFIED"}}"#));
    assert_eq!(
        serde_json::from_value::<Received<Node>>(object).unwrap().into_object(&Rule::default()),
        read(&sound())
    );
}

#[test]
fn the_version_makes_no_difference_and_everything_else_does() {
    let sound = read(&sound()).unwrap();
    let check = |equal: bool, change: fn(&mut Node)| {
        let mut other = sound.clone();
        change(&mut other);
        assert_eq!(sound == other, equal, "{other:?}");
    };
    check(true, |node| node.resource_version = "43".into());
    check(false, |node| node.name = "x".into());
    check(false, |node| node.uid = "x".into());
    check(false, |node| node.created = None);
    check(false, |node| node.deleting = true);
    check(false, |node| node.labels.clear());
    check(false, |node| node.annotations.clear());
    check(false, |node| node.provider_id = None);
    check(false, |node| node.taints[1].time_added = None);
    check(false, |node| node.pod_cidrs.clear());
    check(false, |node| node.unschedulable = false);
    check(false, |node| node.addresses.reverse());
    check(false, |node| node.conditions.clear());
    check(false, |node| node.system_uuid = None);
}

/// Collects all JSON pointers into this value.
fn places(value: &Value, at: &str, into: &mut Vec<String>) {
    into.push(at.to_owned());
    let mut inner = |key: &str, value| {
        let key = key.replace('~', "~0").replace('/', "~1");
        places(value, &format!("{at}/{key}"), into);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| inner(key, value)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(at, value)| inner(&at.to_string(), value));
        }
        _ => {}
    }
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{0,4}", inner, 0..4)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_object_spoils_a_list(place in any::<prop::sample::Index>(), value in anything()) {
        let mut all = Vec::new();
        places(&sound(), "", &mut all);
        let place = place.get(&all);
        let mut broken = sound();
        *broken.pointer_mut(place).unwrap() = value;
        let list = json!({
            "kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"},
            "items": [sound(), broken, sound()],
        });
        let list: ObjectList<Received<Node>> = serde_json::from_str(&list.to_string()).unwrap();
        let nodes: Vec<_> = list.items.into_iter().map(|one| one.into_object(&Rule::default())).collect();
        let sound = read(&sound());
        prop_assert_eq!(&nodes[0], &sound);
        prop_assert_eq!(&nodes[2], &sound);
        // Only an unreadable name makes an object unreadable.
        let nameless = ["", "/metadata", "/metadata/name"].contains(&place.as_str());
        prop_assert!(nodes[1].is_ok() || nameless, "{}: {:?}", place, nodes[1]);
    }
}

/// Unchanged parts are in memory once, however many versions of the node there have been.
#[test]
fn a_new_version_shares_what_the_last_one_has() {
    let read = |value: Value| {
        let wire: Received<Node> = serde_json::from_value(value).expect("JSON");
        Node::read(wire, &Rule::default()).expect("a node")
    };
    let (old, mut newer) = (read(sound()), sound());
    newer["metadata"]["resourceVersion"] = json!("43");
    newer["spec"]["providerID"] = json!("sim://i-2");
    let (mut new, expect) = (read(newer.clone()), read(newer));
    Stored::share(&mut new, &old);
    assert_eq!(new, expect);
    assert_eq!(&*new.resource_version, "43");
    assert!(std::ptr::eq::<BTreeMap<_, _>>(&raw const *old.labels, &raw const *new.labels));
    let uuid = |node: &Node| node.system_uuid.clone().expect("it has one");
    assert!(std::sync::Arc::ptr_eq(&uuid(&old), &uuid(&new)));
    new.labels.insert("a".into(), "b".into());
    assert!(!old.labels.contains_key("a"), "a change does not reach the version before");
}

/// The list is written as a whole, so without this, unknown fields would be removed from the node.
#[test]
fn a_taint_keeps_the_fields_of_a_later_kubernetes() {
    let taints = json!([
        {"key": "a", "effect": "NoExecute", "value": "x", "timeAdded": "2026-01-01T00:00:00Z",
         "tolerableUntil": "2026-02-01T00:00:00Z", "scope": {"zones": ["one"]}},
        {"key": "b", "effect": "NoSchedule"},
    ]);
    let object = json!({"metadata": {"name": "n"}, "spec": {"taints": taints}});
    let node = read(&object).unwrap();
    assert_eq!(serde_json::to_value(&node.taints).unwrap(), taints);
    let with_another = Taint::set(&node.taints, "c", "NoSchedule", true);
    let written = serde_json::to_value(with_another).unwrap();
    assert_eq!(written[0], taints[0]);
    assert_eq!(written[2], json!({"key": "c", "effect": "NoSchedule"}));
}
