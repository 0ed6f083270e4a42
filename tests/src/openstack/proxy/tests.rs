use std::{net::SocketAddr, time::Duration};

use http::Method;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet, time::timeout};

use super::{Effect, Fault, FaultProxy, tally};
use crate::openstack::{
    Service,
    http::{Answer, Http},
};

/// A proxy before services that answer everything with one document.
struct Bed {
    proxy: FaultProxy,
    upstream: SocketAddr,
    http: Http,
    _service: JoinSet<()>,
}

impl Bed {
    /// Starts a service with this document. The document may hold `UPSTREAM`, which becomes the
    /// services' own address.
    async fn new(document: Value) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let upstream = listener.local_addr().unwrap();
        let text = document.to_string().replace("UPSTREAM", &upstream.to_string());
        let mut service = JoinSet::new();
        service.spawn(serve(listener, text));
        let places = [Service::Identity, Service::Compute].map(|service| (service, upstream));
        let proxy = FaultProxy::before(places.into()).await.unwrap();
        Self { proxy, upstream, http: Http::new(), _service: service }
    }

    async fn get(&self, service: Service, path: &str) -> anyhow::Result<Answer> {
        let url = format!("{}{path}", self.proxy.url(service).unwrap());
        self.http.send(Method::GET, &url, &[], None).await
    }

    async fn servers(&self) -> anyhow::Result<Answer> {
        self.get(Service::Compute, "/v2.1/servers").await
    }

    fn break_with(&self, effect: Effect) {
        self.proxy.faults().add(Fault::new(effect));
    }
}

/// Answers with the text, and with the request's `Host` in a header.
async fn serve(listener: TcpListener, text: String) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let text = text.clone();
        let answer = service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let host = request.headers().get("host").cloned();
            let status = if request.method() == Method::POST { 201 } else { 200 };
            let answer = http::Response::builder()
                .status(status)
                .header("x-subject-token", "secret")
                .header("x-asked-host", host.unwrap())
                .body(text.clone())
                .unwrap();
            async move { anyhow::Ok(answer) }
        });
        connections.spawn(async move {
            // A client that disconnects does not fail the test.
            http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await.ok();
        });
    }
}

fn two_servers() -> Value {
    json!({"servers": [{"id": 1}, {"id": 2}], "next": "kept"})
}

#[tokio::test]
async fn an_answer_passes_as_it_is() {
    let bed = Bed::new(two_servers()).await;
    let answer = bed.servers().await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.json().unwrap()), (200, two_servers()));
    let own = bed.proxy.url(Service::Compute).unwrap();
    assert_eq!(format!("http://{}", answer.headers["x-asked-host"].to_str().unwrap()), own);
}

#[tokio::test]
async fn keystones_answers_lead_through_the_proxy() {
    let catalog = json!({"catalog": [{"url": "http://UPSTREAM"}, {"url": "http://UPSTREAM/v2.1"}, {"url": "http://UPSTREAM1"}]});
    let bed = Bed::new(catalog).await;
    let text = bed.get(Service::Identity, "/v3").await.unwrap().text;
    // Two services have one address, and the first proxy's address replaces both.
    assert_eq!(text.matches(&bed.upstream.to_string()).count(), 1, "only the longer port: {text}");
    assert!(text.contains(&bed.proxy.url(Service::Identity).unwrap()), "{text}");
    let text = bed.get(Service::Compute, "/").await.unwrap().text;
    assert_eq!(text.matches(&bed.upstream.to_string()).count(), 3, "others say what they like");
}

#[tokio::test]
async fn requests_are_counted_by_pattern() {
    let bed = Bed::new(two_servers()).await;
    for path in [
        "/v2.1/servers/6f70656e-7374-6163-6b2d-736572766572",
        "/v2.1/servers/8f9c0b2ad3f74d0f8f9c0b2ad3f74d0f?x=1",
        "/v2.1/flavors/42",
        "/v2.1/servers/detail",
    ] {
        bed.get(Service::Compute, path).await.unwrap();
    }
    let requests = bed.proxy.log().of_all_since(0);
    let counts = tally(&requests);
    let wanted = [
        ("compute GET /v2.1/flavors/{id}", 1),
        ("compute GET /v2.1/servers/detail", 1),
        ("compute GET /v2.1/servers/{id}", 2),
    ];
    assert_eq!(counts.iter().map(|(k, v)| (k.as_str(), *v)).collect::<Vec<_>>(), wanted);
    assert_eq!((requests[1].query.as_str(), requests[1].status), ("x=1", Some(200)));
    assert!(bed.proxy.log().since(0).is_empty(), "the tests' own requests are left out");
}

#[tokio::test]
async fn a_token_that_is_given_out_is_known() {
    let bed = Bed::new(json!({})).await;
    let url = format!("{}/v3/auth/tokens", bed.proxy.url(Service::Identity).unwrap());
    let ask = async |method, user_agent| {
        let answer = bed.http.send(method, &url, &[("user-agent", user_agent)], None).await;
        assert!(answer.unwrap().status.is_success());
    };
    ask(Method::GET, "node-ccm/1").await;
    ask(Method::POST, "scenario").await;
    assert_eq!(bed.proxy.log().last_token(), None, "looked at, and the tests' own");
    ask(Method::POST, "node-ccm/1").await;
    assert_eq!(bed.proxy.log().last_token().as_deref(), Some("secret"));
}

#[tokio::test]
async fn answers_of_the_proxys_own() {
    let bed = Bed::new(two_servers()).await;
    for (effect, status, header) in [
        (Effect::throttle(Some(Duration::from_secs(7))), 429, Some(("retry-after", "7"))),
        (Effect::throttle(None), 429, None),
        (Effect::unauthorized(), 401, Some(("content-type", "application/json"))),
        (Effect::internal_error(), 500, Some(("content-type", "application/json"))),
        (Effect::html_not_found(), 404, Some(("content-type", "text/html"))),
    ] {
        bed.proxy.faults().clear();
        bed.break_with(effect);
        let answer = bed.servers().await.unwrap();
        assert_eq!(answer.status.as_u16(), status, "{answer:?}");
        match header {
            Some((name, value)) => assert_eq!(answer.headers[name], value, "{answer:?}"),
            None => assert!(!answer.headers.contains_key("retry-after"), "{answer:?}"),
        }
    }
    bed.proxy.faults().clear();
    assert_eq!(bed.servers().await.unwrap().json().unwrap(), two_servers());
}

#[tokio::test]
async fn spoiled_answers() {
    let bed = Bed::new(two_servers()).await;
    bed.break_with(Effect::EmptyList);
    let empty = json!({"servers": [], "next": "kept"});
    assert_eq!(bed.servers().await.unwrap().json().unwrap(), empty);

    bed.proxy.faults().clear();
    bed.break_with(Effect::HalfJson);
    let answer = bed.servers().await.unwrap();
    assert!(two_servers().to_string().starts_with(&answer.text) && answer.json().is_err());
    assert!(!answer.text.is_empty(), "half of it came");

    for (effect, in_the_body) in [(Effect::Truncated, true), (Effect::Cut, false)] {
        bed.proxy.faults().clear();
        bed.break_with(effect);
        let error = format!("{:#}", bed.servers().await.unwrap_err());
        assert_eq!(error.contains("body"), in_the_body, "{error}");
    }
}

#[tokio::test]
async fn a_fault_holds_for_its_place_and_times() {
    let bed = Bed::new(two_servers()).await;
    let fault = Fault::new(Effect::internal_error()).on(Service::Compute).path("/v2.1/serv");
    let twice = bed.proxy.faults().add(fault.times(2));
    let status = async |service, path: &str| bed.get(service, path).await.unwrap().status.as_u16();
    assert_eq!(status(Service::Identity, "/v2.1/servers").await, 200);
    assert_eq!(status(Service::Compute, "/v2.1/flavors").await, 200);
    for wanted in [500, 500, 200] {
        assert_eq!(status(Service::Compute, "/v2.1/servers").await, wanted);
    }
    assert_eq!(bed.proxy.faults().hits(twice), 2, "what it did not apply to is not counted");
    let id = bed.proxy.faults().add(Fault::new(Effect::unauthorized()));
    assert_eq!(status(Service::Compute, "/").await, 401);
    assert_eq!(bed.proxy.faults().hits(id), 1);
    bed.proxy.faults().remove(id);
    assert_eq!(status(Service::Compute, "/").await, 200);
    assert_eq!(bed.proxy.faults().hits(id), 0, "it is no longer in force");
}

#[tokio::test]
async fn hanging_and_slow_answers() {
    let bed = Bed::new(two_servers()).await;
    let moment = Duration::from_millis(200);
    bed.break_with(Effect::Hang);
    {
        let mut asked = std::pin::pin!(bed.servers());
        while bed.proxy.log().of_all_since(0).is_empty() {
            timeout(moment, &mut asked).await.unwrap_err();
        }
        timeout(moment, asked).await.unwrap_err();
    }
    assert_eq!(bed.proxy.log().of_all_since(0)[0].status, None, "it was asked, not answered");
    bed.proxy.faults().clear();
    bed.break_with(Effect::Slow(moment));
    timeout(moment, bed.servers()).await.unwrap_err();
    assert!(bed.servers().await.unwrap().status.is_success());
}

#[tokio::test]
async fn a_paused_service_is_gone_until_it_comes_back() {
    let bed = Bed::new(two_servers()).await;
    bed.proxy.pause(Service::Compute).await;
    bed.servers().await.unwrap_err();
    assert!(bed.get(Service::Identity, "/").await.is_ok(), "the others stay");
    bed.break_with(Effect::Cut);
    bed.proxy.restore().await.unwrap();
    assert!(bed.servers().await.unwrap().status.is_success());
}
