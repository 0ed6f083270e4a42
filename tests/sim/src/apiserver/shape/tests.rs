use serde_json::json;

use super::{core, *};

fn normalised(shape: &Shape, mut value: Value) -> (Value, Vec<String>) {
    let mut unknown = Vec::new();
    normalise(&mut value, shape, &mut unknown).unwrap();
    (value, unknown)
}

fn refused(shape: &Shape, mut value: Value) -> String {
    normalise(&mut value, shape, &mut Vec::new()).unwrap_err().to_string()
}

#[test]
fn a_bare_node_gets_what_go_structs_always_print() {
    let (node, _) = normalised(&core::NODE, json!({ "metadata": { "name": "a", "labels": {} } }));
    assert_eq!(node["metadata"], json!({ "name": "a" }));
    assert_eq!(node["spec"], json!({}));
    assert_eq!(node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"], 0);
    assert_eq!(node["status"]["nodeInfo"]["osImage"], "");
    assert!(node["status"].get("addresses").is_none());
}

#[test]
fn zero_values_vanish_but_those_behind_pointers_stay() {
    let (node, _) = normalised(
        &core::NODE,
        json!({ "spec": { "unschedulable": false, "taints": [], "providerID": "" } }),
    );
    assert_eq!(node["spec"], json!({}));
    let (lease, _) = normalised(
        &core::LEASE,
        json!({ "spec": { "holderIdentity": "", "leaseTransitions": 0, "leaseDurationSeconds": null } }),
    );
    assert_eq!(lease["spec"], json!({ "holderIdentity": "", "leaseTransitions": 0 }));
}

#[test]
fn unknown_fields_are_dropped_and_named() {
    let value = json!({ "spec": { "bogus": 1, "taints": [{ "key": "a", "effect": "NoSchedule", "x": 1 }] }, "y": 2 });
    let (node, unknown) = normalised(&core::NODE, value);
    assert_eq!(unknown, ["y", "spec.bogus", "spec.taints[0].x"]);
    assert_eq!(node["spec"], json!({ "taints": [{ "key": "a", "effect": "NoSchedule" }] }));
}

#[test]
fn wrong_types_are_refused_with_their_place() {
    let message = refused(&core::NODE, json!({ "metadata": { "labels": { "a": 1 } } }));
    assert_eq!(
        message,
        "json: cannot unmarshal number into Go struct field metadata.labels of type string"
    );
    assert!(refused(&core::NODE, json!({ "spec": "garbage" })).contains("cannot unmarshal string"));
    assert!(
        refused(&core::SERVICE, json!({ "spec": { "ports": [{ "port": "80" }] } }))
            .contains("spec.ports[0].port")
    );
}

#[test]
fn times_are_parsed_like_the_real_server() {
    let (node, _) = normalised(
        &core::NODE,
        json!({ "spec": { "taints": [{ "key": "a", "effect": "e", "timeAdded": "2026-01-02T03:04:05.9+01:00" }] } }),
    );
    assert_eq!(node["spec"]["taints"][0]["timeAdded"], "2026-01-02T02:04:05Z");
    let (lease, _) =
        normalised(&core::LEASE, json!({ "spec": { "renewTime": "2026-01-02T03:04:05.100000Z" } }));
    assert_eq!(lease["spec"]["renewTime"], "2026-01-02T03:04:05.100000Z");
    for (bad, why) in [
        ("2026-01-02T03:04:05Z", r#"cannot parse "Z" as ".000000""#),
        ("2026-01-02T03:04:05.123456789Z", r#"cannot parse "789Z" as "Z07:00""#),
        ("garbage", r#"cannot parse "garbage" as "2006""#),
    ] {
        let message = refused(&core::LEASE, json!({ "spec": { "renewTime": bad } }));
        let expect =
            format!(r#"parsing time "{bad}" as "2006-01-02T15:04:05.000000Z07:00": {why}"#);
        assert_eq!(message, expect);
    }
}
