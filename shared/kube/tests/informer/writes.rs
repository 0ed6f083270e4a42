//! Writes of objects: requests and results.

use std::{sync::Arc, time::Duration};

use ccm_kube::{
    ApiError,
    store::{Rule, Store, Stored},
    write::{ObjectApi, Patch, StatusPatch},
};
use ccm_objects::{Address, Node, Shared, Taint};
use futures::{StreamExt as _, future, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{BoxError, service_fn};

use crate::server::{node, streamed, whole};

const TIMEOUT: Duration = Duration::from_secs(5);

type Answer = Response<UnsyncBoxBody<bytes::Bytes, BoxError>>;

/// The requests to a server that gives this answer to every request.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<(String, String, Value)>>>);

impl Sent {
    fn api<K: Stored, F>(&self, answer: impl Fn() -> F + Clone + Send + 'static) -> ObjectApi<K>
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let sent = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (sent, answer) = (sent.clone(), answer.clone());
            async move {
                let line = format!("{} {}", request.method(), request.uri().path());
                let kind = request.headers()["content-type"].to_str().unwrap().to_owned();
                let body = request.into_body().collect_bytes().await.unwrap();
                sent.0.lock().push((line, kind, serde_json::from_slice(&body).unwrap()));
                Ok::<_, BoxError>(answer().await)
            }
        });
        ObjectApi::new(kube::Client::new(service, "default"), TIMEOUT, &Store::new())
    }

    fn one(&self) -> (String, String, Value) {
        let mut sent = self.0.lock();
        assert_eq!(sent.len(), 1);
        sent.remove(0)
    }
}

fn taint() -> Taint {
    Taint { key: "k".into(), effect: "NoSchedule".into(), ..Taint::default() }
}

fn held() -> Node {
    Node { name: "a".into(), uid: "uid-a".into(), resource_version: "7".into(), ..Node::default() }
}

fn taints() -> Patch {
    Patch::default().with_spec("taints", &[taint()])
}

fn addresses() -> StatusPatch {
    let address = Address { kind: "InternalIP".into(), address: "10.0.0.1".into() };
    StatusPatch::default().with_addresses(&[address])
}

#[tokio::test(start_paused = true)]
async fn patches_go_where_they_belong_and_answer_the_node() {
    let content = "application/strategic-merge-patch+json";
    let sent = Sent::default();
    let api = sent.api(|| future::ready(whole(200, node("a", "x").to_string())));
    let written = api.patch(&held(), &taints()).await.unwrap();
    assert_eq!((&*written.name, &*written.uid), ("a", "uid-a"));
    let body = json!({
        "metadata": {"resourceVersion": "7", "uid": "uid-a"},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
    });
    assert_eq!(sent.one(), ("PATCH /api/v1/nodes/a".to_owned(), content.to_owned(), body));
    api.patch_status(&held(), &addresses()).await.unwrap();
    let list = json!([{"$patch": "replace"}, {"type": "InternalIP", "address": "10.0.0.1"}]);
    let metadata = json!({"resourceVersion": "7", "uid": "uid-a"});
    let body = json!({"metadata": metadata, "status": {"addresses": list}});
    let line = "PATCH /api/v1/nodes/a/status".to_owned();
    assert_eq!(sent.one(), (line, content.to_owned(), body));
}

/// A kind with a group and a namespace.
#[derive(Clone, Debug, PartialEq)]
struct Slice {
    key: Shared,
}

impl Stored for Slice {
    type Wire = k8s_openapi::api::discovery::v1::EndpointSlice;
    type Kept = ();

    fn key(&self) -> &Shared {
        &self.key
    }

    fn uid(&self) -> &'static str {
        "uid-s"
    }

    fn resource_version(&self) -> &'static str {
        "3"
    }

    fn read(wire: Self::Wire, _: &Rule<()>) -> Result<Self, String> {
        let meta = wire.metadata;
        let (Some(namespace), Some(name)) = (meta.namespace, meta.name) else {
            return Err("no name".to_owned());
        };
        Ok(Self { key: format!("{namespace}/{name}").into() })
    }
}

#[tokio::test(start_paused = true)]
async fn any_kind_is_written_in_its_group_and_namespace() {
    let sent = Sent::default();
    let whole_slice = json!({
        "metadata": {"namespace": "web", "name": "s"}, "addressType": "IPv4", "endpoints": [],
    });
    let api = sent.api(move || future::ready(whole(200, whole_slice.to_string())));
    let slice = Slice { key: "web/s".into() };
    let patch = Patch { finalizers: [("a.dev/f".to_owned(), true)].into(), ..Patch::default() };
    assert_eq!(api.patch(&slice, &patch).await, Ok(slice.clone()));
    let place = "/apis/discovery.k8s.io/v1/namespaces/web/endpointslices/s";
    let (line, _, body) = sent.one();
    assert_eq!(line, format!("PATCH {place}"));
    let metadata = json!({"resourceVersion": "3", "uid": "uid-s", "finalizers": ["a.dev/f"]});
    assert_eq!(body, json!({"metadata": metadata}));
    api.delete(&slice).await.unwrap();
    let (line, _, body) = sent.one();
    assert_eq!(line, format!("DELETE {place}"));
    assert_eq!(body["preconditions"], json!({"resourceVersion": "3", "uid": "uid-s"}));
}

#[tokio::test(start_paused = true)]
async fn what_changes_nothing_is_not_sent() {
    let sent = Sent::default();
    let api = sent.api(|| future::ready(whole(200, node("a", "x").to_string())));
    let none = StatusPatch::default().with_addresses(&[]);
    for answer in
        [api.patch(&held(), &Patch::default()).await, api.patch_status(&held(), &none).await]
    {
        let Err(ApiError::Invalid(message)) = answer else { panic!("sent") };
        assert_eq!(message, "the patch of Node a changes nothing");
    }
    assert!(sent.0.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_in_time_wherever_the_server_stops() {
    let check = async |api: ObjectApi<Node>| {
        let start = Instant::now();
        assert_eq!(api.patch(&held(), &taints()).await, Err(ApiError::Timeout));
        assert_eq!(api.patch_status(&held(), &addresses()).await, Err(ApiError::Timeout));
        assert_eq!(start.elapsed(), 2 * TIMEOUT);
    };
    check(Sent::default().api(future::pending)).await;
    let begun = || streamed(stream::iter(["{\"metadata\":".to_owned()]).chain(stream::pending()));
    check(Sent::default().api(move || future::ready(begun()))).await;
}

#[tokio::test(start_paused = true)]
async fn refusals_are_distinguished() {
    let check = async |code: u16, expect: &str| {
        let status = json!({"kind": "Status", "status": "Failure", "message": "m", "reason": "", "code": code});
        let sent = Sent::default();
        let api: ObjectApi<Node> = sent.api(move || future::ready(whole(code, status.to_string())));
        assert_eq!(api.patch(&held(), &taints()).await.unwrap_err().reason(), expect);
    };
    check(404, "not_found").await;
    check(409, "conflict").await;
    check(422, "invalid").await;
    check(403, "forbidden").await;
    check(500, "unavailable").await;
    let sent = Sent::default();
    let api: ObjectApi<Node> = sent.api(|| future::ready(whole(200, "{\"metadata\":{}}")));
    assert_eq!(api.patch(&held(), &taints()).await.unwrap_err().reason(), "decode");
}
