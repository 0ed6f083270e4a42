//! Requests and reported changes without faults.

use std::time::Duration;

use ccm_kube::write::{ObjectApi, Patch};
use ccm_objects::Node;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    running::Running,
    server::{Fault, Server, node},
};

#[tokio::test(start_paused = true)]
async fn everything_is_listed_in_pages_and_then_watched() {
    let server = Server::new();
    for number in 0..250 {
        server.put(node(&format!("node-{number:03}"), "x"));
    }
    let mut running = Running::start(&server);
    assert!(!running.store.is_synced());
    running.store.wait_synced().await;
    running.a_moment().await;
    assert_eq!((running.store.len(), running.reported().len()), (250, 250));
    let requests = server.requests();
    assert_eq!(requests.len(), 5, "{requests:?}");
    assert!(requests[4].starts_with("compare"), "{requests:?}");
    assert!(
        requests[..3]
            .iter()
            .zip([20, 100, 500])
            .all(|(request, limit)| request.starts_with("list")
                && request.contains(&format!("limit={limit}")))
    );
    assert!(requests.iter().all(|request| !request.contains("sendInitialEvents")));
    // Without a version the server returns the newest state, in pages.
    assert!(
        requests[..3].iter().all(|request| !request.contains("resourceVersion")),
        "{requests:?}"
    );
    assert!(requests[3].starts_with("watch") && requests[3].contains("resourceVersion=350"));
    assert_eq!(running.metric(r#"ccm_informer_objects{resource="nodes"}"#), Some(250.0));
    assert_eq!(running.metric(r#"ccm_informer_relists_total{resource="nodes"}"#), Some(0.0));
    assert!(
        running.metric(r#"ccm_informer_last_event_timestamp_seconds{resource="nodes"}"#).unwrap()
            > 1e9
    );
    running.stop.cancel();
    running.ended().await;
}

#[tokio::test(start_paused = true)]
async fn lists_are_streamed_where_the_server_offers_it() {
    for (offered, verbs) in [(true, ["stream", "watch"]), (false, ["stream", "list"])] {
        let server = Server::new();
        if offered {
            server.offer_streams();
        }
        for name in ["a", "b"] {
            server.put(node(name, "x"));
        }
        let running = Running::streaming(&server);
        running.store.wait_synced().await;
        running.a_moment().await;
        assert_eq!(running.reported(), ["+a:x", "+b:x"]);
        let requests = server.requests();
        let began: Vec<_> =
            requests.iter().map(|request| request.split(' ').next().unwrap()).collect();
        assert_eq!(began[..2], verbs, "{requests:?}");
        // The next list: what is gone is noticed, and a refused stream is not tried again.
        server.fail_watches([Fault::Event(410), Fault::Event(410)]);
        server.restore(300, vec![node("b", "y")]);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(running.reported(), ["b:x>y", "-a:x"]);
        let streams = server.requests().iter().filter(|it| it.starts_with("stream")).count();
        assert_eq!(streams > 0, offered);
    }
}

#[tokio::test(start_paused = true)]
async fn watches_end_in_time_but_not_together_and_go_on_where_they_ended() {
    let server = Server::new();
    server.put(node("a", "x"));
    let running = Running::synced(&server).await;
    let mut others = Vec::new();
    for _ in 0..10 {
        others.push(Running::start(&server));
    }
    for other in &others {
        other.works().await;
    }
    // The first watches are short.
    sleep(Duration::from_secs(4)).await;
    let requests = server.requests();
    let timeouts: Vec<u64> = requests
        .iter()
        .filter_map(|request| {
            request.split('&').find_map(|pair| pair.strip_prefix("timeoutSeconds="))
        })
        .map(|seconds| seconds.parse().unwrap())
        .filter(|seconds| *seconds != 3)
        .collect();
    assert_eq!(timeouts.len(), 11, "{requests:?}");
    assert!(timeouts.iter().all(|seconds| (20..=30).contains(seconds)), "{timeouts:?}");
    assert!(timeouts.iter().any(|seconds| *seconds != timeouts[0]), "{timeouts:?}");
    server.requests();
    let start = Instant::now();
    sleep(Duration::from_mins(10)).await;
    let times = server.times();
    // Eleven informers, each with a new watch every 20 to 30 s.
    assert!((200..=341).contains(&times.len()), "{} watches in {:?}", times.len(), start.elapsed());
    assert_eq!(running.reported(), [""; 0]);
    server.put(node("a", "y"));
    running.a_moment().await;
    assert_eq!(running.reported(), ["a:x>y"]);
}

#[tokio::test(start_paused = true)]
async fn changes_are_reported_and_updates_that_change_nothing_are_not() {
    let server = Server::new();
    server.put(node("a", "x"));
    let running = Running::synced(&server).await;
    let version = |running: &Running| running.store.get("a").unwrap().resource_version.to_string();
    let before = version(&running);
    let mut heartbeat = node("a", "x");
    heartbeat["status"] = json!({"conditions": [{"type": "MemoryPressure", "status": "False"}]});
    let written = server.put(heartbeat);
    running.a_moment().await;
    assert_eq!(running.reported(), [""; 0]);
    assert_ne!(before, version(&running));
    assert_eq!(written.to_string(), version(&running), "the version is taken over");
    server.put(node("a", "y"));
    server.put(node("b", "x"));
    server.delete("a");
    running.a_moment().await;
    assert_eq!(running.reported(), ["a:x>y", "+b:x", "-a:y"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_created_anew_is_deleted_and_added() {
    let server = Server::new();
    server.put(node("a", "x"));
    let running = Running::synced(&server).await;
    let mut recreated = node("a", "y");
    recreated["metadata"]["uid"] = json!("another");
    // As when the watch misses or compacts the deletion.
    server.put(recreated);
    running.a_moment().await;
    assert_eq!(running.reported(), ["-a:x", "+a:y"]);
    server.delete("a");
    server.put(node("a", "z"));
    running.a_moment().await;
    assert_eq!(running.reported(), ["-a:y", "+a:z"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_of_our_own_is_read_at_once_and_not_reported() {
    let server = Server::new();
    server.put(node("a", "x"));
    let running = Running::synced(&server).await;
    let api = ObjectApi::<Node>::new(server.client(), Duration::from_secs(5), &running.store);
    let held = running.store.get("a").unwrap();
    let patch = Patch {
        labels: [("label".to_owned(), Some("mine".to_owned()))].into(),
        ..Patch::default()
    };
    let written: Node = api.patch(&held, &patch).await.unwrap();
    running.store.apply_written(written.clone());
    assert_eq!(*running.store.get("a").unwrap(), written);
    running.a_moment().await;
    assert_eq!(running.reported(), [""; 0]);
    server.put(node("a", "theirs"));
    running.a_moment().await;
    assert_eq!(running.reported(), ["a:mine>theirs"]);
}

#[tokio::test(start_paused = true)]
async fn lists_are_paged_and_watches_end() {
    let server = Server::new();
    let running = Running::start(&server);
    running.store.wait_synced().await;
    running.a_moment().await;
    let requests = server.requests();
    assert!(requests[0].contains("limit=20"), "{requests:?}");
    let (_, rest) = requests[1].split_once("timeoutSeconds=").unwrap();
    let seconds: u32 = rest.split('&').next().unwrap().parse().unwrap();
    assert_eq!(seconds, 3, "the first shows soon that watches work: {requests:?}");
}

#[tokio::test(start_paused = true)]
async fn it_stops_at_once_whatever_it_is_doing() {
    let server = Server::new();
    let mut watching = Running::synced(&server).await;
    server.fail_lists([Some(Fault::Status(503))]);
    let mut waiting = Running::start(&server);
    waiting.a_moment().await;
    assert!(!waiting.store.is_synced());
    let start = Instant::now();
    for running in [&mut watching, &mut waiting] {
        running.stop.cancel();
        running.ended().await;
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// The writers of objects decide how large they are.
#[tokio::test(start_paused = true)]
async fn pages_are_bounded_by_bytes() {
    let server = Server::new();
    let large = json!({"example.com/large": "x".repeat(200_000)});
    for number in 0..250 {
        let mut node = node(&format!("node-{number:03}"), "x");
        if number >= 110 {
            node["metadata"]["annotations"] = large.clone();
        }
        server.put(node);
    }
    let running = Running::start(&server);
    running.store.wait_synced().await;
    assert_eq!(running.store.len(), 250);
    let limit = |request: &String| {
        let (_, limit) = request.split_once("limit=")?;
        limit.split('&').next()?.parse::<u32>().ok()
    };
    let lists = server.requests().into_iter().filter(|request| request.starts_with("list"));
    let limits: Vec<u32> = lists.filter_map(|request| limit(&request)).collect();
    // The second page has ten large objects. The third one is too large, and not read to its end.
    assert_eq!(limits, [20, 100, 208, 41, 20, 20, 20, 20, 20], "41 objects are too large as well");
}
