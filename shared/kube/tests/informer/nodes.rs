//! Writing nodes: what is sent, and what comes of the answers.

use std::{sync::Arc, time::Duration};

use ccm_kube::{
    ApiError,
    nodes::NodeApi,
    patch::{AddressPatch, NodePatch, PatchKind},
};
use ccm_objects::{Address, Taint};
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

/// A server that answers everything like this, and what it was sent.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<(String, String, Value)>>>);

impl Sent {
    fn api<F>(&self, answer: impl Fn() -> F + Clone + Send + 'static) -> NodeApi
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
        NodeApi::new(kube::Client::new(service, "default"), TIMEOUT)
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

fn node_patch() -> NodePatch {
    NodePatch {
        resource_version: Some("7".to_owned()),
        taints: Some(vec![taint()]),
        ..NodePatch::default()
    }
}

fn addresses() -> AddressPatch {
    let address = Address { kind: "InternalIP".into(), address: "10.0.0.1".into() };
    AddressPatch { addresses: vec![address], resource_version: Some("7".to_owned()) }
}

#[tokio::test(start_paused = true)]
async fn patches_go_where_they_belong_and_answer_the_node() {
    let check = async |kind: PatchKind, content: &str, list: Value| {
        let sent = Sent::default();
        let api =
            sent.api(|| future::ready(whole(200, node("a", "x").to_string()))).with_kind(kind);
        let written = api.patch("a", &node_patch()).await.unwrap();
        assert_eq!((&*written.name, &*written.uid), ("a", "uid-a"));
        let body = json!({
            "metadata": {"resourceVersion": "7"},
            "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        });
        assert_eq!(sent.one(), ("PATCH /api/v1/nodes/a".to_owned(), content.to_owned(), body));
        api.patch_addresses("a", &addresses()).await.unwrap();
        let body = json!({"metadata": {"resourceVersion": "7"}, "status": {"addresses": list}});
        let line = "PATCH /api/v1/nodes/a/status".to_owned();
        assert_eq!(sent.one(), (line, content.to_owned(), body));
    };
    let address = json!({"type": "InternalIP", "address": "10.0.0.1"});
    let replaced = json!([{"$patch": "replace"}, address]);
    check(PatchKind::Strategic, "application/strategic-merge-patch+json", replaced).await;
    check(PatchKind::Merge, "application/merge-patch+json", json!([address])).await;
}

#[tokio::test(start_paused = true)]
async fn what_changes_nothing_is_not_sent() {
    let sent = Sent::default();
    let api = sent.api(|| future::ready(whole(200, node("a", "x").to_string())));
    let empty = NodePatch { resource_version: Some("7".to_owned()), ..NodePatch::default() };
    let Err(ApiError::Invalid(message)) = api.patch("a", &empty).await else { panic!("sent") };
    assert_eq!(message, "the patch of node a changes nothing");
    let none = AddressPatch { addresses: Vec::new(), ..addresses() };
    let Err(ApiError::Invalid(message)) = api.patch_addresses("a", &none).await else {
        panic!("sent")
    };
    assert_eq!(message, "no addresses to write to node a");
    assert!(sent.0.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_in_time_wherever_the_server_stops() {
    let check = async |api: NodeApi| {
        let start = Instant::now();
        assert_eq!(api.patch("a", &node_patch()).await, Err(ApiError::Timeout));
        assert_eq!(api.patch_addresses("a", &addresses()).await, Err(ApiError::Timeout));
        assert_eq!(start.elapsed(), 2 * TIMEOUT);
    };
    check(Sent::default().api(future::pending)).await;
    let begun = || streamed(stream::iter(["{\"metadata\":".to_owned()]).chain(stream::pending()));
    check(Sent::default().api(move || future::ready(begun()))).await;
}

#[tokio::test(start_paused = true)]
async fn refusals_are_told_apart() {
    let check = async |code: u16, expect: &str| {
        let status = json!({"kind": "Status", "status": "Failure", "message": "m", "reason": "", "code": code});
        let sent = Sent::default();
        let api = sent.api(move || future::ready(whole(code, status.to_string())));
        assert_eq!(api.patch("a", &node_patch()).await.unwrap_err().reason(), expect);
    };
    check(404, "not_found").await;
    check(409, "conflict").await;
    check(422, "invalid").await;
    check(403, "forbidden").await;
    check(500, "unavailable").await;
    let sent = Sent::default();
    let api = sent.api(|| future::ready(whole(200, "{\"metadata\":{}}")));
    assert_eq!(api.patch("a", &node_patch()).await.unwrap_err().reason(), "decode");
}
