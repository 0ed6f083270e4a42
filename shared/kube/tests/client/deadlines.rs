//! Every call ends within its deadline.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use ccm_kube::{
    ApiError,
    client::{ClientConfig, ResponseBody},
};
use futures::{
    StreamExt as _,
    future::{pending, ready},
    stream,
};
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchParams};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::support::{Kubeconfig, Served, TIMEOUT, config, node_body, nodes, served_by};

/// Sends one byte at a time, `pause` apart, until long after the deadline.
fn trickle(pause: Duration, until: Duration) -> Response<ResponseBody> {
    let end = Instant::now() + until;
    let bytes = stream::repeat(()).take_while(move |()| ready(Instant::now() < end)).then(
        move |()| async move {
            if !pause.is_zero() {
                sleep(pause).await;
            }
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b" ")))
        },
    );
    Response::new(StreamBody::new(bytes).map_err(|never| match never {}).boxed_unsync())
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_ends_every_kind_of_call_at_the_deadline() {
    let clients = served_by(&config(), |_request| pending::<Served>());
    let (api, none) = (nodes(&clients.main), PatchParams::default());
    let new = serde_json::from_str(&node_body("a")).unwrap();
    let started = Instant::now();
    let ends: Vec<Result<(), kube::Error>> = vec![
        api.get("a").await.map(drop),
        api.list(&ListParams::default()).await.map(drop),
        api.patch("a", &none, &Patch::Merge(serde_json::json!({}))).await.map(drop),
        api.create(&PostParams::default(), &new).await.map(drop),
        // A watch is bounded until it starts.
        api.watch(&WatchParams::default(), "1").await.map(drop),
        nodes(&clients.lease_client(tower::layer::util::Identity::new())).get("a").await.map(drop),
    ];
    for (nth, end) in (1..).zip(ends) {
        assert_eq!(ApiError::from(end.unwrap_err()), ApiError::Timeout, "call {nth}");
    }
    assert_eq!(started.elapsed().as_secs(), 6 * TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_trickles_ends_at_the_deadline() {
    for pause in [Duration::from_secs(1), Duration::from_millis(1)] {
        let clients =
            served_by(&config(), move |_request| async move { Ok(trickle(pause, TIMEOUT * 3)) });
        let started = Instant::now();
        let error = ApiError::from(nodes(&clients.main).get("a").await.unwrap_err());
        assert_eq!(error, ApiError::Timeout);
        assert_eq!(started.elapsed().as_secs(), TIMEOUT.as_secs());
    }
}

/// A body that is always ready and never waits. In real time: paused time does not advance
/// while there is work.
#[tokio::test]
async fn a_body_that_floods_ends_at_the_deadline() {
    let config = ClientConfig { request_timeout: Duration::from_millis(200), ..config() };
    let clients = served_by(&config, |_request| async {
        // Longer than a busy machine may suspend a process.
        Ok(trickle(Duration::ZERO, Duration::from_secs(10)))
    });
    let api = nodes(&clients.main);
    let call = timeout(Duration::from_secs(20), api.get("a")).await;
    assert_eq!(ApiError::from(call.unwrap().unwrap_err()), ApiError::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_whose_body_hangs_ends_at_the_deadline() {
    let clients = served_by(&config(), |_request| async {
        let body = stream::pending::<Result<Frame<Bytes>, Infallible>>();
        let body = StreamBody::new(body).map_err(|never| match never {}).boxed_unsync();
        Ok(Response::builder().status(500).body(body).unwrap())
    });
    let error = ApiError::from(nodes(&clients.main).get("a").await.unwrap_err());
    assert_eq!(error, ApiError::Timeout);
}

/// A watch outlives the deadline of a call.
#[tokio::test(start_paused = true)]
async fn a_watch_that_has_started_has_no_deadline() {
    let clients = served_by(&config(), |_request| async {
        let events = stream::iter(1..=20).then(|version| async move {
            sleep(TIMEOUT / 2).await;
            let node: serde_json::Value =
                serde_json::from_str(&node_body(&format!("n{version}"))).unwrap();
            let line = serde_json::json!({"type": "ADDED", "object": node}).to_string() + "\n";
            Ok::<_, Infallible>(Frame::data(Bytes::from(line)))
        });
        Ok(Response::new(StreamBody::new(events).map_err(|never| match never {}).boxed_unsync()))
    });
    let events = nodes(&clients.watch).watch(&WatchParams::default(), "1").await.unwrap();
    let events: Vec<_> = events.collect().await;
    assert_eq!(events.len(), 20);
    assert!(events.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn an_endless_timeout_is_no_overflow() {
    let config = ClientConfig { request_timeout: Duration::MAX, ..config() };
    let clients =
        served_by(&config, |_request| async { Ok(crate::support::answer(200, node_body("a"))) });
    assert!(nodes(&clients.main).get("a").await.is_ok());
}

/// A real connection that is accepted and read from, but never answered.
#[tokio::test]
async fn a_silent_connection_ends_the_call() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let kubeconfig = Kubeconfig::new(&format!("http://{}", listener.local_addr().unwrap()), "{}");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut held = Vec::new();
        loop {
            held.push(listener.accept().await.unwrap());
        }
    });
    let config = ClientConfig {
        request_timeout: Duration::from_millis(300),
        kubeconfig: Some(kubeconfig.path()),
        ..config()
    };
    let clients = ccm_kube::client::Clients::connect(config).await.unwrap();
    let api = nodes(&clients.main);
    let call = timeout(Duration::from_secs(20), api.get("a")).await;
    assert_eq!(ApiError::from(call.unwrap().unwrap_err()), ApiError::Timeout);
}
