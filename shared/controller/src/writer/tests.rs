use std::time::Duration;

use bytes::Bytes;
use ccm_kube::{
    client::{ClientConfig, Clients, RequestClass, RequestLimiter},
    metrics::RestMetrics,
    write::ConditionChange,
};
use ccm_objects::{Address, Node};
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use super::*;

const TIMEOUT: Duration = Duration::from_secs(4);

/// The requests to an API server: method, path and body.
type Sent = Arc<Mutex<Vec<(String, String, Value)>>>;

/// Returns a writer for an API server that gives this answer to every request.
fn writer(leadership: Leadership, code: u16, answer: &Value) -> (Writer<Node>, Sent) {
    let (sent, answer) = (Sent::default(), Bytes::from(answer.to_string()));
    let log = Arc::clone(&sent);
    let service = service_fn(move |request: Request<Body>| {
        let (log, answer) = (Arc::clone(&log), answer.clone());
        async move {
            let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
            let body = request.into_body().collect_bytes().await?;
            log.lock().push((method, path, serde_json::from_slice(&body)?));
            let answer = Response::builder().status(code).body(Full::new(answer))?;
            Ok::<_, BoxError>(answer)
        }
    });
    let store = Store::new();
    let api = ObjectApi::new(kube::Client::new(service, "default"), TIMEOUT, &store);
    (Writer { api, leadership, store }, sent)
}

fn node() -> Node {
    Node {
        name: "node-1".into(),
        uid: "uid".into(),
        resource_version: "7".into(),
        ..Node::default()
    }
}

fn wire() -> Value {
    json!({"metadata": {"name": "node-1", "uid": "uid", "resourceVersion": "8"}})
}

fn status(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code})
}

fn addresses() -> StatusPatch {
    let address = Address { kind: "InternalIP".into(), address: "10.0.0.1".into() };
    StatusPatch::default().with_addresses(&[address])
}

fn named() -> Patch {
    Patch::default().with_spec("providerID", &"sim://i-1")
}

fn finalizer() -> Patch {
    Patch { finalizers: [("a.dev/f".to_owned(), true)].into(), ..Patch::default() }
}

fn condition() -> StatusPatch {
    StatusPatch::default().with_condition(&ConditionChange {
        kind: "NetworkUnavailable",
        status: "False",
        reason: "RouteCreated".to_owned(),
        message: String::new(),
        last_transition_time: ccm_base::clock::wall(),
    })
}

#[tokio::test(start_paused = true)]
async fn every_write_has_the_resource_version_of_the_decision() {
    let (writer, sent) = writer(Leadership::unconditional(), 200, &wire());
    let node = node();
    let written = writer.patch(&node, &named()).await.unwrap();
    assert_eq!(&*written.resource_version, "8");
    writer.patch_status(&written, &addresses()).await.unwrap();
    writer.patch(&node, &finalizer()).await.unwrap();
    writer.patch_status(&node, &condition()).await.unwrap();
    writer.delete(&node).await.unwrap();
    let sent: Vec<_> = sent
        .lock()
        .iter()
        .map(|(method, path, body)| {
            let part = if method == "DELETE" { "preconditions" } else { "metadata" };
            assert_eq!(body[part]["uid"], "uid");
            let version = body[part]["resourceVersion"].as_str().unwrap();
            format!("{method} {path} {version}")
        })
        .collect();
    assert_eq!(
        sent,
        [
            "PATCH /api/v1/nodes/node-1 7",
            "PATCH /api/v1/nodes/node-1/status 8",
            "PATCH /api/v1/nodes/node-1 7",
            "PATCH /api/v1/nodes/node-1/status 7",
            "DELETE /api/v1/nodes/node-1 7",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn no_write_is_sent_unless_the_term_covers_its_timeout() {
    for (term, covers) in [
        (Leadership::for_a_term(TIMEOUT + Duration::from_mins(1)), true),
        (Leadership::for_a_term(TIMEOUT.saturating_sub(Duration::from_millis(1))), false),
        (Leadership::for_a_term(Duration::ZERO), false),
        (Leadership::observer(), false),
    ] {
        let (writer, sent) = writer(term, 200, &wire());
        let node = node();
        let answers = [
            writer.patch(&node, &named()).await.map(|_| ()),
            writer.patch_status(&node, &addresses()).await.map(|_| ()),
            writer.patch(&node, &finalizer()).await.map(|_| ()),
            writer.patch_status(&node, &condition()).await.map(|_| ()),
            writer.delete(&node).await,
        ];
        for answer in answers {
            assert!(matches!((&answer, covers), (Ok(()), true) | (Err(Stopped::Lost(_)), false)));
        }
        assert_eq!(sent.lock().len(), if covers { 5 } else { 0 });
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_is_deleted_and_cannot_be_patched() {
    let (writer, _) = writer(Leadership::unconditional(), 404, &status(404));
    let node = node();
    writer.delete(&node).await.unwrap();
    let patched = writer.patch(&node, &named()).await;
    assert!(matches!(patched, Err(Stopped::Refused(ApiError::NotFound))), "{patched:?}");
    assert!(writer.store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_deletion_of_a_replaced_node_is_rejected() {
    let (writer, _) = writer(Leadership::unconditional(), 409, &status(409));
    let deleted = writer.delete(&node()).await;
    assert!(matches!(deleted, Err(Stopped::Refused(ApiError::Conflict))), "{deleted:?}");
}

#[test]
fn rights_follow_from_the_kind() {
    let rights = [patch::<Node>(), patch_status::<Node>(), delete::<Node>()];
    assert_eq!(
        rights.map(|right| right.to_string()),
        ["patch nodes", "patch nodes/status", "delete nodes"]
    );
}

/// Admits one request after another, each after this time.
struct Slow {
    each: Duration,
    admitted: Arc<Mutex<u32>>,
}

impl RequestLimiter for Slow {
    fn admit(&self, _: RequestClass) -> BoxFuture<'static, ()> {
        let (each, admitted) = (self.each, Arc::clone(&self.admitted));
        Box::pin(async move {
            tokio::time::sleep(each).await;
            *admitted.lock() += 1;
        })
    }

    fn report_answer(&self, _: RequestClass, _: Option<u16>, _: Option<Duration>) {}
}

/// Returns a writer behind this limiter, for an API server that answers after this time. Also
/// returns how many requests were admitted, and sent.
fn limited(
    leadership: Leadership,
    each: Duration,
    takes: Duration,
) -> (Writer<Node>, Arc<Mutex<u32>>, Arc<Mutex<u32>>) {
    let (admitted, sent) = (Arc::default(), Arc::new(Mutex::new(0)));
    let count = Arc::clone(&sent);
    let service = service_fn(move |_: Request<Body>| {
        *count.lock() += 1;
        async move {
            tokio::time::sleep(takes).await;
            Ok::<_, BoxError>(Response::new(Full::new(Bytes::from(wire().to_string()))))
        }
    });
    let config = ClientConfig {
        kubeconfig: None,
        master: None,
        user_agent: "test".to_owned(),
        request_timeout: TIMEOUT,
        limiter: Arc::new(Slow { each, admitted: Arc::clone(&admitted) }),
        credentials_over_http: false,
        metrics: Arc::new(RestMetrics::default()),
    };
    let (clients, store) = (Clients::in_process(service, &config).unwrap(), Store::new());
    let api = ObjectApi::new(clients.main.clone(), TIMEOUT, &store);
    let api = api.with_admission(&clients.admission);
    (Writer { api, leadership, store }, admitted, sent)
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_the_limiter_is_no_part_of_the_timeout() {
    let slow = TIMEOUT * 3;
    let takes = TIMEOUT / 2;
    let (writer, admitted, sent) = limited(Leadership::unconditional(), slow, takes);
    writer.patch(&node(), &named()).await.unwrap();
    writer.patch_status(&node(), &addresses()).await.unwrap();
    assert_eq!((*admitted.lock(), *sent.lock()), (2, 2), "each is admitted once");
    let (writer, ..) = limited(Leadership::unconditional(), slow, TIMEOUT * 2);
    let late = writer.patch(&node(), &named()).await;
    assert!(matches!(late, Err(Stopped::Refused(ApiError::Timeout))), "{late:?}");
}

/// This test runs in real time, because paused time does not move the term of leadership.
#[tokio::test]
async fn a_write_whose_term_ends_while_it_waits_for_the_limiter_is_not_sent() {
    let term = Leadership::for_a_term(TIMEOUT + Duration::from_millis(200));
    let slow = Duration::from_millis(300);
    let (writer, _, sent) = limited(term, slow, Duration::ZERO);
    let late = writer.patch(&node(), &named()).await;
    assert!(matches!(late, Err(Stopped::Lost(_))), "{late:?}");
    assert_eq!(*sent.lock(), 0);
}
