//! Events that can be written.

use ccm_kube::events::EventKind;
use ccm_objects::ObjectRef;
use serde_json::{Value, json};

use crate::bench::{Bench, about};

const EVENTS: &str = "/api/v1/namespaces/default/events";

#[tokio::test(start_paused = true)]
async fn a_first_event_is_created_and_the_same_one_counted() {
    let bench = Bench::start();
    bench.record("node-1", "Node synced successfully");
    bench.a_moment().await;
    let (line, event) = bench.server.requests().remove(0);
    assert_eq!(line, format!("POST {EVENTS}"));
    let name = event["metadata"]["name"].as_str().unwrap();
    let time = name.strip_prefix("node-1.").unwrap();
    let nanos = i128::from_str_radix(time, 16).unwrap();
    assert!(nanos > 1_700_000_000_000_000_000, "Unix time in nanoseconds: {name}");
    let stamp = event["firstTimestamp"].as_str().unwrap();
    assert!(stamp.len() == 20 && stamp.ends_with('Z'), "whole seconds, as metav1.Time: {stamp}");
    let about = json!({
        "apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-node-1", "resourceVersion": "7",
    });
    let expect = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
        "involvedObject": about, "type": "Normal", "reason": "Synced",
        "message": "Node synced successfully", "count": 1,
        "firstTimestamp": stamp, "lastTimestamp": stamp,
        "source": {"component": "the-component"},
        "reportingComponent": "the-component", "reportingInstance": "",
    });
    assert_eq!(event, expect);
    bench.record("node-1", "Node synced successfully");
    bench.a_moment().await;
    let (line, patch) = bench.server.requests().remove(0);
    assert_eq!(line, format!("PATCH {EVENTS}/{name}"));
    let fields: Vec<_> = patch.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["count", "lastTimestamp", "message"]);
    assert_eq!(patch["count"], 2);
    assert_eq!((bench.sent(), bench.server.events().len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_program_may_be_a_component_of_its_own() {
    let bench = Bench::start();
    let part = bench.recorder.for_component("another-component");
    for recorder in [&part, &bench.recorder, &part] {
        recorder.record(&about("node-1"), EventKind::Warning, "Full", "no room");
    }
    bench.a_moment().await;
    let requests = bench.server.requests();
    let [first, second, third] = requests.try_into().unwrap();
    let component = |(_, event): &(String, serde_json::Value)| {
        (event["source"]["component"].clone(), event["reportingComponent"].clone())
    };
    assert_eq!(component(&first), ("another-component".into(), "another-component".into()));
    assert_eq!(component(&second), ("the-component".into(), "the-component".into()));
    assert_eq!((third.0.starts_with("PATCH"), &third.1["count"]), (true, &2.into()));
}

#[tokio::test(start_paused = true)]
async fn an_event_lives_beside_its_object() {
    let bench = Bench::start();
    let lease = ObjectRef {
        api_version: "coordination.k8s.io/v1",
        kind: "Lease",
        namespace: Some("kube-system".to_owned()),
        ..about("node-ccm")
    };
    bench.recorder.record(&lease, EventKind::Warning, "LeaderElection", "lost");
    bench.a_moment().await;
    let (line, event) = bench.server.requests().remove(0);
    assert_eq!(line, "POST /api/v1/namespaces/kube-system/events");
    assert_eq!(event["involvedObject"]["namespace"], "kube-system");
    assert_eq!(event["type"], "Warning");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_has_expired_is_created_anew_with_its_count() {
    let bench = Bench::start();
    for _ in 0..3 {
        bench.record("node-1", "same");
    }
    bench.a_moment().await;
    let before = bench.server.events().remove(0);
    bench.server.expire();
    bench.server.requests();
    bench.record("node-1", "same");
    bench.a_moment().await;
    let lines: Vec<_> = bench.server.requests().into_iter().map(|(line, _)| line).collect();
    let name = before["metadata"]["name"].as_str().unwrap();
    assert_eq!(lines, [format!("PATCH {EVENTS}/{name}"), format!("POST {EVENTS}")]);
    let after = bench.server.events().remove(0);
    assert_eq!(after["count"], 4);
    assert_eq!(after["metadata"].get("resourceVersion"), None::<&Value>);
    assert_eq!(after["firstTimestamp"], before["firstTimestamp"]);
}

#[tokio::test(start_paused = true)]
async fn similar_events_become_one() {
    let bench = Bench::start();
    for number in 1..=12 {
        bench.record("node-1", &format!("message {number}"));
    }
    bench.a_moment().await;
    let events = bench.server.events();
    assert_eq!(events.len(), 10);
    let combined: Vec<_> =
        events.iter().filter(|event| event["message"].as_str().unwrap().starts_with('(')).collect();
    assert_eq!(combined.len(), 1);
    assert_eq!(combined[0]["message"], "(combined from similar events): message 12");
    assert_eq!(combined[0]["count"], 3);
}

#[tokio::test(start_paused = true)]
async fn spam_is_counted_and_not_written() {
    let bench = Bench::start();
    for _ in 0..27 {
        bench.record("node-1", "same");
    }
    bench.record("node-2", "same");
    bench.a_moment().await;
    assert_eq!(bench.server.requests().len(), 26);
    assert_eq!((bench.sent(), bench.dropped("spam")), (26, 2));
}

#[tokio::test(start_paused = true)]
async fn a_long_message_is_cut_between_characters() {
    let bench = Bench::start();
    bench.record("node-1", &"ä".repeat(3000));
    bench.record("node-2", &format!("x{}", "ä".repeat(3000)));
    bench.a_moment().await;
    let length = |(_, event): &(String, Value)| event["message"].as_str().unwrap().len();
    let lengths: Vec<_> = bench.server.requests().iter().map(length).collect();
    assert_eq!(lengths, [1024, 1023]);
}
