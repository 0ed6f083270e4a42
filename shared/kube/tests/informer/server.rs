//! A small API server for nodes.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout_at},
};
use tower::{BoxError, service_fn};

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// A fault instead of a response.
#[derive(Clone, Debug)]
pub enum Fault {
    /// A refusal as HTTP status.
    Status(u16),
    /// A watch that starts, with an error as its first event.
    Event(u16),
    /// A watch that sends this and ends.
    Says(String),
    /// A watch that sends nothing and does not end.
    Silence,
    /// No connection.
    Unreachable,
}

/// An in-process server. Clones share it.
#[derive(Clone)]
pub struct Server {
    state: Arc<Mutex<State>>,
    version: watch::Sender<u64>,
    /// Changes when all watches end.
    ends: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<String, Value>,
    log: Vec<(u64, String)>,
    lost_before: u64,
    snapshots: Vec<(u64, Vec<Value>)>,
    list_faults: VecDeque<Option<Fault>>,
    watch_faults: VecDeque<Fault>,
    always: Option<Fault>,
    /// True if a watch sends a bookmark two seconds before its end.
    has_bookmarks: bool,
    /// The version at the last list.
    read_at: u64,
    is_unreachable: bool,
    /// True if lists can be streamed.
    can_stream: bool,
    /// How long a page of a list takes.
    page_takes: Duration,
    requests: Vec<(Instant, String)>,
}

impl Server {
    pub fn new() -> Self {
        Self {
            state: Arc::default(),
            version: watch::Sender::new(100),
            ends: watch::Sender::new(()),
        }
    }

    /// Sends bookmarks from now on.
    pub fn send_bookmarks(&self) {
        self.state.lock().has_bookmarks = true;
    }

    /// Takes this long for each page of a list from now on.
    pub fn take_for_pages(&self, time: Duration) {
        self.state.lock().page_takes = time;
    }

    /// Offers streamed lists from now on.
    pub fn offer_streams(&self) {
        self.state.lock().can_stream = true;
    }

    /// Refuses all connections from now on, or no longer.
    pub fn be_unreachable(&self, unreachable: bool) {
        self.state.lock().is_unreachable = unreachable;
    }

    /// Returns a bare client: responses reach kube's watcher unchanged.
    pub fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = service_fn(move |request| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        kube::Client::new(service, "default")
    }

    /// Writes an object of another kind, which no watch of nodes shows.
    pub fn write_elsewhere(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// Creates or updates a node, by name.
    pub fn put(&self, node: Value) -> u64 {
        let name = node["metadata"]["name"].to_string();
        let kind = if self.state.lock().nodes.contains_key(&name) { "MODIFIED" } else { "ADDED" };
        self.change(&name, kind, node)
    }

    pub fn delete(&self, name: &str) {
        let name = json!(name).to_string();
        let node = self.state.lock().nodes[&name].clone();
        self.change(&name, "DELETED", node);
    }

    /// Sends an event that concerns no node.
    pub fn emit(&self, kind: &str, object: Value) {
        self.change("", kind, object);
    }

    fn change(&self, name: &str, kind: &str, mut node: Value) -> u64 {
        let version = *self.version.borrow() + 1;
        if let Some(metadata) = node.pointer_mut("/metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), json!(version.to_string()));
        }
        {
            let mut state = self.state.lock();
            state.log.push((version, event(kind, &node)));
            if kind == "DELETED" {
                state.nodes.remove(name);
            } else if !name.is_empty() {
                state.nodes.insert(name.to_owned(), node);
            }
        }
        self.version.send_replace(version);
        version
    }

    /// Compacts the log: a client that watches from an older version must list.
    pub fn compact(&self) {
        self.state.lock().lost_before = *self.version.borrow();
    }

    /// Goes back to an earlier version with these nodes, as after a restore.
    pub fn restore(&self, version: u64, nodes: Vec<Value>) {
        {
            let mut state = self.state.lock();
            state.nodes.clear();
            state.log.clear();
        }
        self.version.send_replace(version - 1);
        for node in nodes {
            self.put(node);
        }
    }

    /// Ends the watches that are under way.
    pub fn end_watches(&self) {
        self.ends.send_replace(());
    }

    /// Returns a watch with these lines, until [`end_watches`](Self::end_watches).
    fn watched(&self, lines: impl futures::Stream<Item = String> + Send + 'static) -> Answer {
        let mut ends = self.ends.subscribe();
        streamed(lines.take_until(async move { ends.changed().await.is_ok() }))
    }

    /// Sets the faults of the next watches, in order.
    pub fn fail_watches(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.lock().watch_faults.extend(faults);
    }

    /// Sets the faults of the next list pages, in order; `None` succeeds.
    pub fn fail_lists(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.state.lock().list_faults.extend(faults);
    }

    /// Sets the fault of all watches from now on.
    pub fn fail_always(&self, fault: Option<Fault>) {
        self.state.lock().always = fault;
    }

    /// Returns the requests since the last call, as `list ...`, `watch ...` and `compare ...` with
    /// their queries.
    pub fn requests(&self) -> Vec<String> {
        let requests = std::mem::take(&mut self.state.lock().requests);
        requests.into_iter().map(|(_, request)| request).collect()
    }

    /// Returns the number of lists and of watches.
    pub fn counts(&self) -> (usize, usize) {
        let requests = self.requests();
        let count = |verb| requests.iter().filter(|request| request.starts_with(verb)).count();
        (count("list"), count("watch"))
    }

    /// Returns the arrival times of the watches since the last call.
    pub fn times(&self) -> Vec<Instant> {
        let mut requests = std::mem::take(&mut self.state.lock().requests);
        requests.retain(|(_, request)| request.starts_with("watch"));
        requests.into_iter().map(|(time, _)| time).collect()
    }

    async fn answer(&self, request: Request<Body>) -> Result<Answer, BoxError> {
        let query: HashMap<String, String> = request
            .uri()
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        if request.method() == Method::PATCH {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let body = request.into_body().collect_bytes().await?;
            return Ok(self.patch(&name, &serde_json::from_slice(&body)?));
        }
        let watches = query.contains_key("watch");
        let verb = match query.get("limit").map(String::as_str) {
            _ if query.contains_key("sendInitialEvents") => "stream",
            _ if watches => "watch",
            Some("1") => "compare",
            _ => "list",
        };
        let fault = {
            let mut state = self.state.lock();
            let uri = request.uri().query().unwrap_or_default();
            state.requests.push((Instant::now(), format!("{verb} {uri}")));
            match verb {
                _ if state.is_unreachable => Some(Fault::Unreachable),
                "watch" => state.watch_faults.pop_front().or_else(|| state.always.clone()),
                "list" => state.list_faults.pop_front().flatten(),
                _ => None,
            }
        };
        if verb == "list" {
            let time = self.state.lock().page_takes;
            sleep(time).await;
        }
        match fault {
            Some(fault) => fault.meet(self),
            None if verb == "stream" => Ok(self.stream()),
            None if watches => Ok(self.watch(&query)),
            None => Ok(self.list(&query)),
        }
    }

    /// Sets labels; enough of a patch for these tests.
    fn patch(&self, name: &str, body: &Value) -> Answer {
        let mut node = self.state.lock().nodes[&json!(name).to_string()].clone();
        node["metadata"]["labels"] = body["metadata"]["labels"].clone();
        self.put(node);
        whole(200, self.state.lock().nodes[&json!(name).to_string()].to_string())
    }

    fn list(&self, query: &HashMap<String, String>) -> Answer {
        let limit: usize = query.get("limit").map_or(usize::MAX, |limit| limit.parse().unwrap());
        let mut state = self.state.lock();
        state.read_at = *self.version.borrow();
        let (snapshot, from): (usize, usize) = match query.get("continue") {
            Some(token) => {
                let (snapshot, from) = token.split_once('-').unwrap();
                (snapshot.parse().unwrap(), from.parse().unwrap())
            }
            None => {
                let nodes = state.nodes.values().cloned().collect();
                state.snapshots.push((*self.version.borrow(), nodes));
                (state.snapshots.len() - 1, 0)
            }
        };
        let (version, nodes) = &state.snapshots[snapshot];
        let to = from.saturating_add(limit).min(nodes.len());
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if to < nodes.len() {
            metadata["continue"] = json!(format!("{snapshot}-{to}"));
        }
        let list = json!({
            "kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": nodes[from..to],
        });
        whole(200, list.to_string())
    }

    /// Returns all nodes as events, with a bookmark at the end.
    fn stream(&self) -> Answer {
        let state = self.state.lock();
        if !state.can_stream {
            return whole(422, status(422).to_string());
        }
        let mut lines: String = state.nodes.values().map(|node| event("ADDED", node)).collect();
        lines += &event(
            "BOOKMARK",
            &json!({"kind": "Node", "apiVersion": "v1", "metadata": {
                "resourceVersion": self.version.borrow().to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"},
            }}),
        );
        whole(200, lines)
    }

    fn watch(&self, query: &HashMap<String, String>) -> Answer {
        let from: u64 = query["resourceVersion"].parse().unwrap();
        if from < self.state.lock().lost_before {
            return whole(200, event("ERROR", &status(410)));
        }
        let end = Instant::now() + Duration::from_secs(query["timeoutSeconds"].parse().unwrap());
        let (server, versions) = (self.clone(), self.version.subscribe());
        let bookmark = server.state.lock().has_bookmarks.then(|| end - Duration::from_secs(2));
        let lines = stream::unfold(
            (server, versions, from, bookmark),
            move |(server, mut versions, seen, mut bookmark)| async move {
                loop {
                    let next = server.event_after(seen);
                    if let Some((version, event)) = next {
                        return Some((event, (server, versions, version, bookmark)));
                    }
                    match timeout_at(bookmark.unwrap_or(end), versions.changed()).await {
                        Ok(changed) => changed.ok()?,
                        Err(_) => {
                            bookmark.take()?;
                            let now = server.bookmark_version();
                            // Bookmarks, too, are only sent above the version asked for.
                            if now > from {
                                let mark = json!({"metadata": {"resourceVersion": now.to_string()},
                                    "kind": "Node", "apiVersion": "v1"});
                                let seen = seen.max(now);
                                let event = event("BOOKMARK", &mark);
                                return Some((event, (server, versions, seen, bookmark)));
                            }
                        }
                    }
                }
            },
        );
        self.watched(lines)
    }

    /// Returns the version of the cache: the version of the last consistent read.
    fn bookmark_version(&self) -> u64 {
        self.state.lock().read_at
    }

    /// Returns the first event after this version.
    fn event_after(&self, seen: u64) -> Option<(u64, String)> {
        self.state.lock().log.iter().find(|(version, _)| *version > seen).cloned()
    }
}

impl Fault {
    fn meet(self, server: &Server) -> Result<Answer, BoxError> {
        match self {
            Self::Status(code) => Ok(whole(code, status(code).to_string())),
            Self::Event(code) => Ok(whole(200, event("ERROR", &status(code)))),
            Self::Says(text) => Ok(whole(200, text)),
            Self::Silence => Ok(server.watched(stream::pending())),
            Self::Unreachable => Err("connection refused".into()),
        }
    }
}

/// Returns an event as a line, with fields in kube-apiserver's order.
pub fn event(kind: &str, object: &Value) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn status(code: u16) -> Value {
    let reason = match code {
        410 => "Expired",
        504 => "Timeout",
        _ => "",
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "as asked for", "reason": reason, "code": code,
    })
}

pub fn whole(code: u16, body: impl Into<Bytes>) -> Answer {
    let body = Full::new(body.into()).map_err(|never: Infallible| match never {}).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

pub fn streamed(lines: impl futures::Stream<Item = String> + Send + 'static) -> Answer {
    let frames = lines.map(|line| Ok::<_, BoxError>(Frame::data(Bytes::from(line))));
    Response::new(StreamBody::new(frames).boxed_unsync())
}

/// Returns a node with a label.
pub fn node(name: &str, label: &str) -> Value {
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {"label": label}},
    })
}
