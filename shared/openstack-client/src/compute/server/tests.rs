use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::scripted;

fn whole(row: Row) -> Server {
    let Row::Whole(server) = row else { panic!("{row:?}") };
    *server
}

#[test]
fn reads_what_every_version_sends() {
    let old = json!({
        "id": scripted::uuid(1), "name": "n", "status": "BUILD", "addresses": {},
        "flavor": {"id": "7", "links": []}, "metadata": {},
    });
    let server = whole(Row::read(&old.to_string()));
    assert_eq!((server.name.as_str(), server.status()), ("n", "BUILD"));
    assert_eq!(server.fields.flavor.unwrap().id.as_deref(), Some("7"));

    let server = whole(Row::read(&scripted::server(1).to_string()));
    assert_eq!(server.id.as_str(), scripted::uuid(1));
    assert_eq!(server.fields.zone.as_deref(), Some("zone 1"));
    assert_eq!(server.fields.flavor.as_ref().unwrap().original_name.as_deref(), Some("m1.large"));
    assert_eq!(server.addresses().count(), 1);
    assert_eq!(server.metadata().count(), 1);
}

#[test]
fn a_server_of_a_silent_cell_is_partial() {
    let silent = [
        json!({"id": scripted::uuid(1), "status": "UNKNOWN", "links": [], "tenant_id": "t"}),
        json!({"id": scripted::uuid(1), "status": "UNKNOWN", "addresses": {}}),
        json!({"id": scripted::uuid(1), "status": "UNKNOWN", "name": null, "addresses": {}}),
        // The entry looks like the answer about one server.
        json!({"id": scripted::uuid(1), "status": "UNKNOWN", "created": "x", "image": "",
               "flavor": {"original_name": "f"}, "OS-EXT-STS:power_state": 0}),
    ];
    for json in silent {
        let row = Row::read(&json.to_string());
        assert!(matches!(row, Row::Partial { .. }), "{row:?}");
        assert_eq!((row.id().unwrap().as_str(), row.name()), (&*scripted::uuid(1), None));
        let trouble = row.trouble().unwrap();
        assert!(trouble.contains(&scripted::uuid(1)) && trouble.contains("UNKNOWN"), "{trouble}");
    }
    // A server without addresses must not be described either: its node would lose its addresses.
    let bare = json!({"id": scripted::uuid(1), "name": "n", "status": "ACTIVE"});
    assert!(matches!(Row::read(&bare.to_string()), Row::Partial { .. }));
}

#[test]
fn malformed_entries_name_id_and_name() {
    let id = scripted::uuid(1);
    for (json, shown) in [
        (json!({"id": id, "name": "n", "status": 5}), [id.as_str(), "\"n\"", "invalid type"]),
        (json!({"id": id, "name": "n", "addresses": {}}), [id.as_str(), "\"n\"", "status"]),
        (json!({"id": "17", "name": "n", "status": "ACTIVE"}), ["\"17\"", "\"n\"", "UUID"]),
        (json!({"name": "n", "status": "ACTIVE"}), ["without one", "\"n\"", "`id`"]),
        (
            json!({"id": id, "name": ["n"], "status": "ACTIVE"}),
            [id.as_str(), "without one", "invalid type"],
        ),
        (
            json!({"id": id, "name": "n", "status": "ACTIVE", "addresses": {"a": [{}]}}),
            [id.as_str(), "\"n\"", "addr"],
        ),
        (json!([1, 2]), ["without one", "without one", ""]),
        (json!(null), ["without one", "without one", ""]),
        (json!({"id": id, "name": "\u{1b}n\n".repeat(500)}), [id.as_str(), "…", ""]),
    ] {
        let row = Row::read(&json.to_string());
        assert!(matches!(row, Row::Malformed { .. }), "{row:?}");
        let line = row.trouble().unwrap();
        assert!(shown.iter().all(|part| line.contains(part)), "{line}");
        assert!(line.len() < 700 && !line.contains(['\n', '\u{1b}']), "{line}");
    }
}

#[test]
fn an_entry_that_is_too_long_is_malformed_and_named() {
    let mut server = scripted::server(1);
    server["unknown"] = json!("x".repeat(LONGEST));
    let row = Row::read(&server.to_string());
    assert!(matches!(row, Row::Malformed { .. }));
    assert_eq!((row.id().unwrap().as_str(), row.name()), (&*scripted::uuid(1), Some("node-00001")));
    assert!(row.trouble().unwrap().ends_with("its entry is longer than 1 MiB"), "{row:?}");
    // A list has room for tens of thousands of usual entries.
    let size = Row::read(&scripted::server(1).to_string()).size();
    assert!((700..1_600).contains(&size), "{size} bytes");
    // This is the most that Nova's quota allows, with each character escaped.
    let item = |number: u32| (format!("{number:\u{20ac}<255}"), "\u{20ac}".repeat(255));
    let mut server = scripted::server(1);
    server["metadata"] = (0..128).map(item).collect::<BTreeMap<_, _>>().into_iter().collect();
    let json = server.to_string().replace('\u{20ac}', "\\u20ac");
    assert!(json.len() > 300_000);
    assert!(matches!(Row::read(&json), Row::Whole(_)));
}

proptest! {
    #[test]
    fn no_json_is_too_much(json in scripted::any_json()) {
        let row = Row::read(&json.to_string());
        prop_assert_eq!(matches!(row, Row::Whole(_)), row.trouble().is_none());
    }

    #[test]
    fn one_wrong_field_never_passes_for_right(
        key in prop::sample::select(vec!["id", "status", "name", "addresses", "flavor", "metadata"]),
        json in scripted::any_json(),
    ) {
        let mut server = scripted::server(1);
        server[key] = json.clone();
        if let Row::Whole(read) = Row::read(&server.to_string()) {
            prop_assert!(key != "id" || Some(read.id.as_str()) == json.as_str().map(str::to_lowercase).as_deref());
            prop_assert!(key != "name" || Some(read.name.as_str()) == json.as_str());
        }
    }
}
