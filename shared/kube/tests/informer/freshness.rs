//! A store that is not older than a moment.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{
    running::Running,
    server::{Fault, Server, node},
};

/// Whatever a new leader must see was written before it asks.
#[tokio::test(start_paused = true)]
async fn a_watch_that_works_proves_it_without_a_list() {
    let server = Server::new();
    server.put(node("a", "1"));
    let running = Running::synced(&server).await;
    server.put(node("a", "2"));
    let began = Instant::now();
    running.freshness.current().await;
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    assert_eq!(&*running.store.get("a").unwrap().labels["label"], "2");
    let requests = server.requests();
    let asks = |request: &String| request.starts_with("compare");
    assert!(
        !requests.is_empty() && requests.iter().all(asks),
        "more than the version: {requests:?}"
    );
}

/// The version has grown by writes that this watch does not show.
#[tokio::test(start_paused = true)]
async fn a_watch_without_an_event_is_followed_by_a_list() {
    let server = Server::new();
    server.put(node("a", "1"));
    let running = Running::synced(&server).await;
    server.write_elsewhere();
    let began = Instant::now();
    running.freshness.current().await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert!(server.requests().iter().any(|request| request.starts_with("list")), "no list");
}

/// The watch is open and shows nothing: only the list has what was written.
#[tokio::test(start_paused = true)]
async fn a_deaf_watch_does_not_prove_it() {
    let server = Server::new();
    server.put(node("a", "1"));
    let running = Running::synced(&server).await;
    server.fail_watches(std::iter::repeat_n(Fault::Silence, 3));
    server.end_watches();
    sleep(Duration::from_secs(3)).await;
    server.put(node("a", "2"));
    running.freshness.current().await;
    assert_eq!(&*running.store.get("a").unwrap().labels["label"], "2");
}

/// While the API server cannot be reached nothing is proven.
#[tokio::test(start_paused = true)]
async fn it_waits_for_the_api_server() {
    let server = Server::new();
    server.put(node("a", "1"));
    let running = Running::synced(&server).await;
    server.be_unreachable(true);
    server.end_watches();
    let freshness = running.freshness.clone();
    let asks = freshness.current();
    let early = tokio::time::timeout(Duration::from_mins(1), asks).await;
    assert!(early.is_err(), "it was proven without an API server");
    server.be_unreachable(false);
    server.put(node("a", "2"));
    running.freshness.current().await;
    assert_eq!(&*running.store.get("a").unwrap().labels["label"], "2");
}
