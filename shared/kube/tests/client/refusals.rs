//! Refused requests: the reason arrives, and no body is logged.

use std::convert::Infallible;

use bytes::Bytes;
use ccm_kube::ApiError;
use ccm_testing::Log;
use futures::StreamExt as _;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use kube::api::WatchParams;
use tracing_subscriber::{filter::Targets, layer::SubscriberExt as _};

use crate::support::{Served, answer, config, nodes, refusal, refusal_body, served_by};

/// Returns the error of a watch that gets this response.
async fn refused_watch(status: u16, body: impl Into<Bytes>) -> ApiError {
    let body = body.into();
    let clients = served_by(&config(), move |_request| {
        let body = body.clone();
        async move { Ok(answer(status, body)) }
    });
    let watch = nodes(&clients.watch).watch(&WatchParams::default(), "1").await;
    ApiError::from(watch.err().unwrap())
}

#[tokio::test]
async fn a_refused_watch_is_an_error_and_not_a_stream() {
    let gone = refusal_body(410, "Expired", "too old resource version: 1 (9)");
    let expect = ApiError::Expired("too old resource version: 1 (9)".to_owned());
    assert_eq!(refused_watch(410, gone.to_string()).await, expect);
    let pretty = serde_json::to_string_pretty(&gone).unwrap();
    assert!(pretty.lines().count() > 5);
    assert_eq!(refused_watch(410, pretty).await, expect);
    // The HTTP status counts, whatever the body claims.
    assert_eq!(
        refused_watch(410, refusal_body(0, "", "x").to_string()).await,
        ApiError::Expired("x".to_owned())
    );
    assert_eq!(
        refused_watch(403, refusal_body(403, "Forbidden", "no").to_string()).await,
        ApiError::Forbidden("no".to_owned())
    );
}

#[tokio::test]
async fn a_refused_watch_without_a_status_is_an_error_too() {
    let html = "<html>\n<h1>502 Bad Gateway</h1>\n</html>";
    let expect = "502 Bad Gateway without a Status of the API server".to_owned();
    assert_eq!(refused_watch(502, html).await, ApiError::Unavailable(expect.clone()));
    assert_eq!(refused_watch(502, &b"\xff\xfe"[..]).await, ApiError::Unavailable(expect.clone()));
    assert_eq!(refused_watch(502, r#"{"kind":"Node"}"#).await, ApiError::Unavailable(expect));
    assert!(matches!(refused_watch(410, "").await, ApiError::Expired(_)));
}

/// An endless body is not read to its end.
#[tokio::test(start_paused = true)]
async fn an_endless_refusal_is_cut_off() {
    let clients = served_by(&config(), |_request| async {
        let flood = futures::stream::repeat_with(|| {
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; 4096])))
        });
        let body = StreamBody::new(flood).map_err(|never| match never {}).boxed_unsync();
        Ok(Response::builder().status(500).body(body).unwrap())
    });
    assert!(matches!(
        ApiError::from(nodes(&clients.main).get("a").await.unwrap_err()),
        ApiError::Unavailable(_)
    ));
}

/// An error event in a watch that has started.
#[tokio::test]
async fn an_error_event_is_the_same_error() {
    let clients = served_by(&config(), |_request| async {
        let event =
            serde_json::json!({"type": "ERROR", "object": refusal_body(410, "Expired", "too old")});
        Ok(answer(200, event.to_string() + "\n"))
    });
    let events = nodes(&clients.watch).watch(&WatchParams::default(), "1").await.unwrap();
    match events.boxed().next().await.unwrap().unwrap() {
        kube::core::WatchEvent::Error(status) => {
            assert_eq!(ApiError::from_status(&status), ApiError::Expired("too old".to_owned()));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_reaches_the_caller_of_a_write() {
    let check = async |value: &'static str, expect: Option<u64>| {
        let clients = served_by(&config(), move |_request| async move {
            let mut response = refusal(429, "TooManyRequests", "slow down");
            response.headers_mut().insert("retry-after", value.parse().unwrap());
            Ok(response)
        });
        let patch = kube::api::Patch::Merge(serde_json::json!({}));
        let patched =
            nodes(&clients.main).patch("a", &kube::api::PatchParams::default(), &patch).await;
        let retry_after = expect.map(std::time::Duration::from_secs);
        assert_eq!(
            ApiError::from(patched.unwrap_err()),
            ApiError::Throttled { retry_after },
            "{value}"
        );
    };
    check("7", Some(7)).await;
    check("0", Some(1)).await;
    check("99999999999999999999", Some(60)).await;
    check("tomorrow", None).await;
}

/// Returns the log and the error of a GET with this response.
async fn logged(filter: &str, served: fn() -> Served) -> (String, String) {
    let log = Log::new();
    let subscriber = tracing_subscriber::registry()
        .with(filter.parse::<Targets>().unwrap())
        .with(tracing_subscriber::fmt::layer().with_writer(log.clone()));
    let guard = tracing::subscriber::set_default(subscriber);
    let clients = served_by(&config(), move |_request| async move { served() });
    let error = nodes(&clients.main).get("a").await.unwrap_err();
    drop(guard);
    (log.text(), ApiError::from(error).to_string())
}

#[tokio::test]
async fn bodies_are_in_no_log_and_no_error() {
    // Without the layer, kube would log a refusal that is not a Status.
    let (log, error) = logged("trace", || Ok(answer(403, "token=hunter2"))).await;
    assert!(!log.contains("hunter2"), "{log}");
    assert!(!error.contains("hunter2"), "{error}");
    // kube logs a malformed response at WARN; the programs' default filter hides that. This
    // shows that the filter is needed and sufficient.
    let secret = || Ok(answer(200, r#"{"metadata": {"name": "a"}, "spec": "hunter2"}"#));
    let (log, error) = logged("info", secret).await;
    assert!(log.contains("hunter2"), "kube logs no bodies any more, drop the filter");
    assert!(!error.contains("hunter2"), "{error}");
    assert!(error.starts_with("cannot parse the response: data error at line 1 column"), "{error}");
    let (log, _error) = logged("info,kube_client=error", secret).await;
    assert!(!log.contains("hunter2"), "{log}");
}
