use serde_json::json;

use super::*;

fn causes(plural: &str, value: &Value) -> Vec<String> {
    let resource = resources::by_plural(plural).unwrap();
    created(resource, value)
        .iter()
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect()
}

fn changes(plural: &str, old: &Value, new: &Value) -> Vec<String> {
    let resource = resources::by_plural(plural).unwrap();
    updated(resource, old, new).iter().map(|cause| cause.field.clone()).collect()
}

#[test]
fn labels_and_names() {
    let node = json!({ "metadata": { "name": "N_1", "labels": { "a b": "x", "c": "not ok!" } } });
    let found = causes("nodes", &node);
    assert_eq!(found.len(), 3);
    assert!(
        found[0]
            .starts_with("metadata.name: Invalid value: \"N_1\": a lowercase RFC 1123 subdomain")
    );
    assert!(
        found[1].starts_with("metadata.labels: Invalid value: \"a b\": name part must consist")
    );
    assert!(
        found[2].starts_with("metadata.labels: Invalid value: \"not ok!\": a valid label must be")
    );
    assert_eq!(
        causes("nodes", &json!({ "metadata": {} })),
        ["metadata.name: Required value: name or generateName is required"]
    );
}

#[test]
fn taints() {
    let node = |taints: Value| json!({ "metadata": { "name": "n" }, "spec": { "taints": taints } });
    assert_eq!(
        causes("nodes", &node(json!([{ "key": "a", "effect": "Bad" }]))),
        ["metadata.taints[0].effect: Unsupported value: \"Bad\": supported values: \
          \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\""]
    );
    let twice = json!([{ "key": "a", "effect": "NoSchedule" }, { "key": "a", "effect": "NoSchedule", "value": "b" }]);
    assert!(causes("nodes", &node(twice))[0].starts_with("metadata.taints[1]: Duplicate value"));
    let both =
        json!([{ "key": "a", "effect": "NoSchedule" }, { "key": "a", "effect": "NoExecute" }]);
    assert_eq!(causes("nodes", &node(both)), Vec::<String>::new());
}

#[test]
fn immutable_fields() {
    let node = |spec: Value| json!({ "metadata": { "name": "n" }, "spec": spec });
    let check = |old: Value, new: Value, expect: &[&str]| {
        assert_eq!(changes("nodes", &node(old), &node(new)), expect);
    };
    check(json!({}), json!({ "providerID": "a", "podCIDRs": ["10.0.0.0/24"] }), &[]);
    check(json!({ "providerID": "a" }), json!({ "providerID": "b" }), &["spec.providerID"]);
    check(json!({ "providerID": "a" }), json!({}), &["spec.providerID"]);
    check(json!({ "podCIDRs": ["10.0.0.0/24"] }), json!({}), &["spec.podCIDRs"]);
    check(json!({}), json!({ "podCIDRs": ["10.0.0.0"] }), &["spec.podCIDRs[0]"]);
}

#[test]
fn leases_events_services() {
    let lease = json!({ "metadata": { "name": "l" }, "spec": { "leaseDurationSeconds": 0, "leaseTransitions": -1 } });
    assert_eq!(
        causes("leases", &lease),
        [
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
        ]
    );
    let event = |namespace: &str| json!({ "metadata": { "name": "e", "namespace": namespace } });
    assert_eq!(causes("events", &event("default")), Vec::<String>::new());
    assert_eq!(causes("events", &event("other")).len(), 1);
    let service = json!({
        "metadata": { "name": "s" },
        "spec": { "type": "X", "ports": [{ "port": 0, "targetPort": 0, "protocol": "TCP" }] },
    });
    assert_eq!(
        causes("services", &service),
        [
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
            "spec.type: Unsupported value: \"X\": supported values: \"ClusterIP\", \"ExternalName\", \
             \"LoadBalancer\", \"NodePort\"",
        ]
    );
}

#[test]
fn no_new_finalizers_on_deleting_objects() {
    let object = |finalizers: Value| json!({ "metadata": { "name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers } });
    assert_eq!(
        changes("nodes", &object(json!(["x.y/a"])), &object(json!(["x.y/a", "x.y/b"]))),
        ["metadata.finalizers"]
    );
    assert_eq!(
        changes("nodes", &object(json!(["x.y/a", "x.y/b"])), &object(json!(["x.y/b"]))),
        Vec::<String>::new()
    );
}
