//! A server that stores events, and a recorder that writes to it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use ccm_kube::events::{EventKind, EventMetrics, EventRecorder};
use ccm_objects::ObjectRef;
use futures::future;
use http::{Method, Request, Response};
use http_body_util::Full;
use kube::client::Body;
use parking_lot::Mutex;
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, service_fn};

type Answer = Response<Full<Bytes>>;

/// The fate of a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// A refusal.
    Status(u16),
    /// No connection.
    Unreachable,
    /// The request is applied, but the response is lost.
    AnswerLost,
    /// A response that is not an event.
    Nonsense,
    /// No response.
    Stuck,
}

/// The requests to a server, and the events it stores.
#[derive(Clone, Default)]
pub struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    events: BTreeMap<String, Value>,
    requests: Vec<(Instant, String, Value)>,
    faults: VecDeque<Option<Fault>>,
    always: Option<Fault>,
}

impl Server {
    /// Sets the fate of the next requests, in order; `None` succeeds.
    pub fn fail(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.0.lock().faults.extend(faults);
    }

    /// Sets the fate of all requests from now on.
    pub fn fail_always(&self, fault: Option<Fault>) {
        self.0.lock().always = fault;
    }

    /// Drops all events, as after their one-hour lifetime.
    pub fn expire(&self) {
        self.0.lock().events.clear();
    }

    /// Returns the stored events.
    pub fn events(&self) -> Vec<Value> {
        self.0.lock().events.values().cloned().collect()
    }

    /// Returns the requests since the last call, with their bodies.
    pub fn requests(&self) -> Vec<(String, Value)> {
        let requests = std::mem::take(&mut self.0.lock().requests);
        requests.into_iter().map(|(_, line, body)| (line, body)).collect()
    }

    /// Returns the arrival times of the requests since the last call.
    pub fn times(&self) -> Vec<Instant> {
        let requests = std::mem::take(&mut self.0.lock().requests);
        requests.into_iter().map(|(time, ..)| time).collect()
    }

    pub fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                server.answer(&head, serde_json::from_slice(&body)?).await
            }
        });
        kube::Client::new(service, "default")
    }

    async fn answer(&self, head: &http::request::Parts, body: Value) -> Result<Answer, BoxError> {
        let path = head.uri.path().to_owned();
        let line = format!("{} {path}", head.method);
        let fault = {
            let mut state = self.0.lock();
            state.requests.push((Instant::now(), line, body.clone()));
            state.faults.pop_front().unwrap_or_else(|| state.always.clone())
        };
        match fault {
            Some(Fault::Status(code)) => Ok(refusal(code, "")),
            Some(Fault::Unreachable) => Err("connection refused".into()),
            Some(Fault::AnswerLost) => {
                self.write(&head.method, path, body);
                Err("connection reset".into())
            }
            Some(Fault::Nonsense) => Ok(answer(200, &json!([1]))),
            Some(Fault::Stuck) => future::pending().await,
            None => Ok(self.write(&head.method, path, body)),
        }
    }

    fn write(&self, method: &Method, path: String, body: Value) -> Answer {
        let events = &mut self.0.lock().events;
        if method == Method::POST {
            let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
            if events.contains_key(&path) {
                return refusal(409, "AlreadyExists");
            }
            events.insert(path, body.clone());
            return answer(201, &body);
        }
        let Some(event) = events.get_mut(&path) else { return refusal(404, "NotFound") };
        for (key, value) in body.as_object().unwrap() {
            event[key] = value.clone();
        }
        answer(200, event)
    }
}

fn answer(code: u16, body: &Value) -> Answer {
    Response::builder().status(code).body(Full::new(body.to_string().into())).unwrap()
}

fn refusal(code: u16, reason: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {},
        "message": "as asked for", "reason": reason, "code": code,
    });
    answer(code, &status)
}

/// A recorder with its running writer, and the server.
pub struct Bench {
    pub server: Server,
    pub recorder: EventRecorder,
    pub stop: CancellationToken,
    registry: Registry,
    tasks: JoinSet<()>,
}

impl Bench {
    pub fn start() -> Self {
        let (server, stop) = (Server::default(), CancellationToken::new());
        let (metrics, mut registry) = (EventMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        let (recorder, writer) = EventRecorder::new(server.client(), "the-component", metrics);
        let mut tasks = JoinSet::new();
        tasks.spawn(writer.run(stop.clone()));
        Self { server, recorder, stop, registry, tasks }
    }

    pub fn record(&self, name: &str, message: &str) {
        self.recorder.record(&about(name), EventKind::Normal, "Synced", message);
    }

    /// Runs everything that needs no waiting.
    pub async fn a_moment(&self) {
        sleep(Duration::from_millis(10)).await;
    }

    /// Stops the writer; returns how long it took to end.
    pub async fn stopped(&mut self) -> Duration {
        let start = Instant::now();
        self.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap();
        start.elapsed()
    }

    pub fn sent(&self) -> u64 {
        self.metric("ccm_events_sent_total ")
    }

    pub fn dropped(&self, reason: &str) -> u64 {
        self.metric(&format!(r#"ccm_events_dropped_total{{reason="{reason}"}} "#))
    }

    fn metric(&self, line: &str) -> u64 {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text.lines().find_map(|each| each.strip_prefix(line)).unwrap().parse().unwrap()
    }
}

pub fn about(name: &str) -> ObjectRef {
    ObjectRef {
        api_version: "v1",
        kind: "Node",
        namespace: None,
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        resource_version: "7".to_owned(),
    }
}
