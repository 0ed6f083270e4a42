//! gzip for lists, and never for watches.

use bytes::Bytes;
use ccm_kube::client::ResponseBody;
use futures::StreamExt as _;
use http::{Request, Response, header::ACCEPT_ENCODING};
use kube::{
    api::{ListParams, WatchParams},
    client::Body,
};
use tower::{Layer as _, ServiceExt as _};

use crate::support::{Kubeconfig, Server, answer, config, node_body, nodes, served_by};

fn accepts_gzip(request: &Request<Body>) -> bool {
    request
        .headers()
        .get(ACCEPT_ENCODING)
        .is_some_and(|value| value.to_str().unwrap().contains("gzip"))
}

/// Returns this text as one gzip member.
async fn member(text: String) -> Bytes {
    use http_body_util::{BodyExt as _, Full};
    let service = tower::service_fn(move |_request: Request<Full<Bytes>>| {
        let body = Full::new(Bytes::from(text.clone()));
        async move { Ok::<_, std::convert::Infallible>(Response::new(body)) }
    });
    let service = tower_http::compression::CompressionLayer::new().layer(service);
    let request = Request::builder().header(ACCEPT_ENCODING, "gzip").body(Full::default()).unwrap();
    service.oneshot(request).await.unwrap().into_body().collect().await.unwrap().to_bytes()
}

fn gzipped(body: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut response = answer(200, body);
    response.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
    response
}

fn event(name: &str) -> String {
    format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", node_body(name))
}

/// Kubernetes 1.37 sends one gzip member per event to clients that accept gzip.
#[tokio::test]
async fn a_watch_is_never_compressed() {
    let clients = served_by(&config(), |request| async move {
        let events = [event("a") + &" ".repeat(2000), event("b") + &" ".repeat(2000)];
        if accepts_gzip(&request) {
            let [a, b] = events;
            return Ok(gzipped([member(a).await, member(b).await].concat()));
        }
        assert_eq!(request.headers()[ACCEPT_ENCODING], "identity");
        Ok(answer(200, events.concat()))
    });
    for client in [&clients.watch, &clients.main] {
        let events = nodes(client).watch(&WatchParams::default(), "1").await.unwrap();
        let events: Vec<_> = events.collect().await;
        assert_eq!(events.iter().filter(|event| event.is_ok()).count(), 2, "{events:?}");
    }
}

#[tokio::test]
async fn a_list_is_compressed() {
    let clients = served_by(&config(), |request| async move {
        assert!(accepts_gzip(&request));
        let item = node_body(&"n".repeat(3000));
        let list = format!(
            "{{\"kind\":\"NodeList\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"items\":[{item}]}}"
        );
        Ok(gzipped(member(list).await))
    });
    assert_eq!(nodes(&clients.main).list(&ListParams::default()).await.unwrap().items.len(), 1);
}

/// `disable-compression` in a kubeconfig is honoured.
#[tokio::test]
async fn compression_can_be_switched_off() {
    let server = Server::start(std::sync::Arc::new(|_connection, request| {
        let gzip = request
            .headers()
            .get(ACCEPT_ENCODING)
            .is_some_and(|value| value.to_str().unwrap().contains("gzip"));
        Box::pin(async move { Response::new(node_body(&format!("gzip-{gzip}")).into()) })
    }))
    .await;
    let check = async |cluster: &str, expect: &str| {
        let cluster = format!("{{server: \"http://{}\"{cluster}}}", server.address);
        let kubeconfig = Kubeconfig::with_cluster(&cluster, "{}");
        let config =
            ccm_kube::client::ClientConfig { kubeconfig: Some(kubeconfig.path()), ..config() };
        let clients = ccm_kube::client::Clients::connect(config).await.unwrap();
        assert_eq!(
            nodes(&clients.main).get("a").await.unwrap().metadata.name.as_deref(),
            Some(expect)
        );
    };
    check("", "gzip-true").await;
    check(", disable-compression: true", "gzip-false").await;
}
