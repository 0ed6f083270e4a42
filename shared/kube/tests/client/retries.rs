//! The requests that are retried, how often and how soon.

use std::{io, time::Duration};

use ccm_kube::{
    ApiError,
    client::{ClientConfig, ResponseBody},
};
use http::{Method, Request, Response};
use kube::{
    api::{Patch, PatchParams, WatchParams},
    client::Body,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
    time::Instant,
};

use crate::support::{
    Count, Kubeconfig, Served, TIMEOUT, answer, config, exposed, node_body, nodes, refusal,
    served_by,
};

/// A server that fails the first requests like this, then succeeds.
#[derive(Clone)]
struct Failing {
    count: Count,
    times: usize,
    how: fn() -> Served,
}

impl Failing {
    fn new(times: usize, how: fn() -> Served) -> Self {
        Self { count: Count::default(), times, how }
    }

    fn serve(&self) -> Served {
        if self.count.next() <= self.times { (self.how)() } else { Ok(answer(200, node_body("a"))) }
    }
}

fn with_retry_after(code: u16, value: &str) -> Response<ResponseBody> {
    let mut response = refusal(code, "", "later");
    response.headers_mut().insert("retry-after", value.parse().unwrap());
    response
}

fn broken(kind: io::ErrorKind) -> Served {
    Err(io::Error::from(kind).into())
}

/// Sends one request to a server that fails once. Returns how many requests it saw.
async fn attempts(method: &Method, how: fn() -> Served) -> usize {
    let failing = Failing::new(1, how);
    let clients = served_by(&config(), {
        let failing = failing.clone();
        move |_request| std::future::ready(failing.serve())
    });
    let api = nodes(&clients.main);
    let result = match *method {
        Method::GET => api.get("a").await,
        _ => {
            api.patch("a", &PatchParams::default(), &Patch::Merge(serde_json::json!({"x": 1})))
                .await
        }
    };
    assert_eq!(result.is_ok(), failing.count.get() == 2, "{method}: {result:?}");
    failing.count.get()
}

#[tokio::test(start_paused = true)]
async fn reads_are_repeated_and_writes_only_if_they_cannot_have_happened() {
    let check = async |what: &str, how: fn() -> Served, get: usize, patch: usize| {
        assert_eq!(attempts(&Method::GET, how).await, get, "GET after {what}");
        assert_eq!(attempts(&Method::PATCH, how).await, patch, "PATCH after {what}");
    };
    check("429", || Ok(refusal(429, "TooManyRequests", "")), 2, 1).await;
    check("429 with Retry-After", || Ok(with_retry_after(429, "1")), 2, 2).await;
    check("503", || Ok(refusal(503, "ServiceUnavailable", "")), 2, 1).await;
    check("503 with Retry-After", || Ok(with_retry_after(503, "1")), 2, 1).await;
    check("504", || Ok(refusal(504, "Timeout", "")), 2, 1).await;
    check("500", || Ok(refusal(500, "InternalError", "")), 1, 1).await;
    check("500 with Retry-After", || Ok(with_retry_after(500, "1")), 2, 1).await;
    check("403", || Ok(refusal(403, "Forbidden", "")), 1, 1).await;
    check("404 with Retry-After", || Ok(with_retry_after(404, "1")), 1, 1).await;
    check("connection refused", || broken(io::ErrorKind::ConnectionRefused), 2, 2).await;
    check("connection reset", || broken(io::ErrorKind::ConnectionReset), 2, 1).await;
    check("early end", || broken(io::ErrorKind::UnexpectedEof), 2, 1).await;
    check("no credentials", || broken(io::ErrorKind::NotFound), 1, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_constant_failure_surfaces_after_four_attempts_within_a_second() {
    let config = config();
    let failing = Failing::new(usize::MAX, || Ok(refusal(503, "ServiceUnavailable", "starting")));
    let clients = served_by(&config, {
        let failing = failing.clone();
        move |_request| std::future::ready(failing.serve())
    });
    let started = Instant::now();
    let error = ApiError::from(nodes(&clients.main).get("a").await.unwrap_err());
    assert_eq!(error, ApiError::Unavailable("starting".to_owned()));
    assert_eq!(failing.count.get(), 4);
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    let text = exposed(&config);
    let retries =
        r#"rest_client_request_retries_total{code="503",verb="GET",host="127.0.0.1:80"} 3"#;
    assert!(text.contains(retries), "{text}");
    let requests = r#"rest_client_requests_total{code="503",method="GET",host="127.0.0.1:80"} 4"#;
    assert!(text.contains(requests), "{text}");
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_waited_for_but_never_beyond_the_deadline() {
    let check = async |value: &'static str, timeout: u64, waits: u64, attempts: usize| {
        let count = Count::default();
        let seen = count.clone();
        let config = ClientConfig { request_timeout: Duration::from_secs(timeout), ..config() };
        let clients = served_by(&config, move |_request| {
            let first = seen.next() == 1;
            async move {
                if first {
                    Ok(with_retry_after(429, value))
                } else {
                    Ok(answer(200, node_body("a")))
                }
            }
        });
        let started = Instant::now();
        let result = nodes(&clients.main).get("a").await;
        assert_eq!((result.is_ok(), count.get()), (attempts == 2, attempts), "{value}: {result:?}");
        assert_eq!(started.elapsed().as_secs(), waits, "{value}");
    };
    check("3", 30, 3, 2).await;
    // The deadline is too close: the error is returned at once.
    check("31", 30, 0, 1).await;
    check("18446744073709551615", 30, 0, 1).await;
    // Clamped, it fits.
    check("18446744073709551615", 100, 60, 2).await;
    check("Tue, 31 Dec 2999 23:59:59 GMT", 100, 60, 2).await;
    // Beyond the range of the clock.
    check("Fri, 31 Dec 9999 23:59:59 GMT", 30, 0, 2).await;
    check("nonsense", 30, 0, 2).await;
}

#[tokio::test(start_paused = true)]
async fn watches_and_leases_are_never_repeated() {
    let failing = Failing::new(usize::MAX, || Ok(refusal(503, "ServiceUnavailable", "starting")));
    let clients = served_by(&config(), {
        let failing = failing.clone();
        move |_request| std::future::ready(failing.serve())
    });
    assert!(nodes(&clients.watch).watch(&WatchParams::default(), "1").await.is_err());
    assert_eq!(failing.count.get(), 1);
    let lease = clients.lease_client(tower::layer::util::Identity::new());
    assert!(nodes(&lease).get("a").await.is_err());
    assert_eq!(failing.count.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_body_is_the_same_in_each_attempt() {
    let count = Count::default();
    let seen = count.clone();
    let clients = served_by(&config(), move |request: Request<Body>| {
        let first = seen.next() == 1;
        async move {
            let body = request.into_body().collect_bytes().await?;
            assert_eq!(&body[..], br#"{"metadata":{"labels":{"a":"b"}}}"#);
            if first { Ok(with_retry_after(429, "1")) } else { Ok(answer(200, node_body("a"))) }
        }
    });
    let patch = Patch::Merge(serde_json::json!({"metadata": {"labels": {"a": "b"}}}));
    nodes(&clients.main).patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(count.get(), 2);
}

/// Real connections that are closed after the request was read, without a response.
#[tokio::test]
async fn a_connection_closed_before_the_answer_is_repeated_for_reads_only() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let kubeconfig = Kubeconfig::new(&format!("http://{}", listener.local_addr().unwrap()), "{}");
    let count = Count::default();
    let seen = count.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            // Every other connection is closed without a response.
            if seen.next() % 2 == 0 {
                let body = node_body("a");
                let head = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                stream.write_all((head + &body).as_bytes()).await.unwrap();
            }
        }
    });
    let config = ClientConfig { kubeconfig: Some(kubeconfig.path()), ..config() };
    let clients = ccm_kube::client::Clients::connect(config).await.unwrap();
    assert!(nodes(&clients.main).get("a").await.is_ok());
    assert_eq!(count.get(), 2);
    let patch = Patch::Merge(serde_json::json!({}));
    let error = nodes(&clients.main).patch("a", &PatchParams::default(), &patch).await.unwrap_err();
    let ApiError::Unavailable(message) = ApiError::from(error) else { panic!("not unavailable") };
    assert!(message.contains("connection closed before message completed"), "{message}");
    assert_eq!(count.get(), 3);
}

#[tokio::test]
async fn an_unreachable_server_is_an_error_soon_and_repeated_for_writes_too() {
    // Bound and dropped: the port refuses connections.
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let kubeconfig = Kubeconfig::new(&format!("http://{address}"), "{}");
    let config = ClientConfig { kubeconfig: Some(kubeconfig.path()), ..config() };
    let clients = ccm_kube::client::Clients::connect(config.clone())
        .await
        .expect("connecting does not need the server");
    let started = Instant::now();
    let patch = Patch::Merge(serde_json::json!({}));
    let error = nodes(&clients.main).patch("a", &PatchParams::default(), &patch).await.unwrap_err();
    let ApiError::Unavailable(message) = ApiError::from(error) else { panic!("not unavailable") };
    assert!(message.contains("refused"), "{message}");
    assert!(started.elapsed() < TIMEOUT / 2);
    let text = exposed(&config);
    let retries = format!(
        r#"rest_client_request_retries_total{{code="<error>",verb="PATCH",host="{address}"}} 3"#
    );
    assert!(text.contains(&retries), "{text}");
}
