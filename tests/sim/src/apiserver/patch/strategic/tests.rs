//! Cases and results recorded from a real kube-apiserver 1.36.

use serde_json::json;

use super::{super::super::shape::core, *};

fn check(mut target: Value, patch: Value, expect: Value) {
    apply(&mut target, &patch, &core::NODE).unwrap();
    assert_eq!(target, expect, "{patch}");
}

fn addresses(list: Value) -> Value {
    json!({ "status": { "addresses": list } })
}

#[test]
fn addresses_merge_by_type() {
    let before = addresses(json!([
        { "type": "InternalIP", "address": "1.2.3.4" },
        { "type": "Hostname", "address": "h" },
    ]));
    check(
        before.clone(),
        addresses(
            json!([{ "type": "ExternalIP", "address": "9" }, { "type": "Hostname", "address": "h2" }]),
        ),
        addresses(json!([
            { "type": "ExternalIP", "address": "9" },
            { "type": "InternalIP", "address": "1.2.3.4" },
            { "type": "Hostname", "address": "h2" },
        ])),
    );
    check(
        before.clone(),
        addresses(
            json!([{ "$patch": "delete", "type": "InternalIP" }, { "type": "X", "address": "3" }]),
        ),
        addresses(json!([{ "type": "X", "address": "3" }, { "type": "Hostname", "address": "h" }])),
    );
    check(before, addresses(json!(null)), json!({ "status": {} }));
}

#[test]
fn two_addresses_of_a_type_need_a_replacement() {
    let dual = json!([{ "type": "InternalIP", "address": "1.1.1.1" }, { "type": "InternalIP", "address": "fd00::1" }]);
    check(
        addresses(json!([{ "type": "InternalIP", "address": "9" }])),
        addresses(json!([
            { "$patch": "replace" },
            { "type": "InternalIP", "address": "1.1.1.1" },
            { "type": "InternalIP", "address": "fd00::1" },
        ])),
        addresses(dual.clone()),
    );
    check(
        addresses(dual),
        addresses(
            json!([{ "type": "InternalIP", "address": "3" }, { "type": "InternalIP", "address": "4" }]),
        ),
        addresses(
            json!([{ "type": "InternalIP", "address": "4" }, { "type": "InternalIP", "address": "fd00::1" }]),
        ),
    );
}

#[test]
fn an_entry_without_its_key_is_an_error() {
    let mut node = json!({ "status": {} });
    let error =
        apply(&mut node, &addresses(json!([{ "address": "3.3.3.3" }])), &core::NODE).unwrap_err();
    assert_eq!(
        error.to_string(),
        "map: map[address:3.3.3.3] does not contain declared merge key: type"
    );
}

#[test]
fn conditions_keep_fields_and_follow_the_order_given() {
    let before = json!({ "status": { "conditions": [
        { "type": "NetworkUnavailable", "status": "True", "reason": "r" },
        { "type": "Ready", "status": "Unknown" },
        { "type": "DiskPressure", "status": "False" },
    ] } });
    check(
        before,
        json!({ "status": {
            "$setElementOrder/conditions": [{ "type": "Ready" }, { "type": "NetworkUnavailable" }],
            "conditions": [{ "type": "NetworkUnavailable", "status": "False" }],
        } }),
        json!({ "status": { "conditions": [
            { "type": "Ready", "status": "Unknown" },
            { "type": "NetworkUnavailable", "status": "False", "reason": "r" },
            { "type": "DiskPressure", "status": "False" },
        ] } }),
    );
}

#[test]
fn taints_are_one_value() {
    check(
        json!({ "spec": { "taints": [{ "key": "a", "effect": "NoSchedule" }], "providerID": "p" } }),
        json!({ "spec": { "taints": [{ "key": "b", "effect": "NoExecute" }] } }),
        json!({ "spec": { "taints": [{ "key": "b", "effect": "NoExecute" }], "providerID": "p" } }),
    );
}

#[test]
fn finalizers_are_a_set() {
    let meta = |finalizers: Value| json!({ "metadata": { "finalizers": finalizers } });
    check(meta(json!(["a"])), meta(json!(["b", "a"])), meta(json!(["b", "a"])));
    check(meta(json!(["a"])), meta(json!(["b"])), meta(json!(["b", "a"])));
    check(
        meta(json!(["a", "b"])),
        json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["a"] } }),
        meta(json!(["b"])),
    );
    check(
        meta(json!(["a", "b"])),
        json!({ "metadata": { "$setElementOrder/finalizers": ["b", "a"] } }),
        meta(json!(["b", "a"])),
    );
}

#[test]
fn owners_merge_by_uid_and_maps_by_key() {
    check(
        json!({ "metadata": { "labels": { "a": "1", "b": "2" }, "ownerReferences": [{ "uid": "1", "name": "x" }] } }),
        json!({ "metadata": {
            "labels": { "a": null, "c": "3" },
            "ownerReferences": [{ "uid": "1", "kind": "K" }, { "uid": "2", "name": "y" }],
        } }),
        json!({ "metadata": {
            "labels": { "b": "2", "c": "3" },
            "ownerReferences": [{ "uid": "1", "name": "x", "kind": "K" }, { "uid": "2", "name": "y" }],
        } }),
    );
}

#[test]
fn directives_on_objects() {
    let before = json!({ "metadata": { "labels": { "a": "1", "b": "2" } } });
    check(
        before.clone(),
        json!({ "metadata": { "labels": { "$patch": "replace", "c": "3" } } }),
        json!({ "metadata": { "labels": { "c": "3" } } }),
    );
    check(
        before.clone(),
        json!({ "metadata": { "labels": { "$patch": "delete" } } }),
        json!({ "metadata": { "labels": {} } }),
    );
    check(
        before,
        json!({ "metadata": { "labels": { "$retainKeys": ["a"], "a": "5" } } }),
        json!({ "metadata": { "labels": { "a": "5" } } }),
    );
}
