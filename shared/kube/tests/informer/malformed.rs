//! Malformed objects.

use std::time::Duration;

use ccm_testing::Log;
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::Level;

use crate::{
    running::Running,
    server::{Fault, Server, event, node},
};

const MALFORMED: &str = r#"ccm_informer_malformed_objects_total{resource="nodes"}"#;

#[tokio::test(start_paused = true)]
async fn malformed_objects_of_a_list_are_counted_logged_once_and_left_out() {
    let log = Log::new();
    let _listening = log.listen(Level::INFO);
    let server = Server::new();
    server.put(node("a", "x"));
    server.put(json!({"metadata": {"name": 5}}));
    server.put(json!({"metadata": {"name": ["secret-value"]}}));
    server.put(node("z", "x"));
    let running = Running::synced(&server).await;
    assert_eq!(running.store.len(), 2);
    assert_eq!(running.metric(MALFORMED), Some(2.0));
    server.compact();
    server.fail_watches([Fault::Event(410)]);
    sleep(Duration::from_secs(300)).await;
    assert_eq!(running.metric(MALFORMED), Some(4.0), "the list was read a second time");
    assert_eq!(running.reported(), [""; 0]);
    assert_eq!(log.lines_with("skipping an object that cannot be parsed"), 1);
    assert_eq!(log.lines_with("secret-value"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_event_does_not_stop_the_others() {
    let check = async |object: Value, lists: usize| {
        let server = Server::new();
        server.put(node("a", "x"));
        let running = Running::synced(&server).await;
        server.emit("MODIFIED", object.clone());
        server.put(node("a", "y"));
        sleep(Duration::from_secs(10)).await;
        server.put(node("b", "x"));
        sleep(Duration::from_secs(10)).await;
        assert_eq!(running.reported(), ["a:x>y", "+b:x"], "{object}");
        assert_eq!(server.counts().0, lists, "{object}");
    };
    check(json!({"metadata": {"name": 5}}), 0).await;
    check(json!({"metadata": {"labels": 5}}), 0).await;
    // Without a version kube's watcher cannot continue, and lists.
    check(json!({"metadata": "x"}), 1).await;
    check(json!(5), 1).await;
}

#[tokio::test(start_paused = true)]
async fn lines_that_are_no_events_do_not_stop_a_watch() {
    let server = Server::new();
    server.put(node("a", "x"));
    let running = Running::synced(&server).await;
    let mut later = node("b", "x");
    later["metadata"]["resourceVersion"] = json!("101");
    let lines = format!("no json\n{}", event("ADDED", &later));
    server.fail_watches([Fault::Says(lines)]);
    sleep(Duration::from_secs(130)).await;
    assert_eq!(running.reported(), ["+b:x"]);
    assert!(running.errors("decode") > 0.0);
}
