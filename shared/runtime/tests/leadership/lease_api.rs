//! The part of the Kubernetes API that elections use, in memory: one Lease, with
//! versions, preconditions, validation and watches.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use ccm_base::clock;
use futures::{Stream, stream};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use jiff::SignedDuration;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};
use tower::BoxError;

/// The Lease's namespace.
pub const NAMESPACE: &str = "kube-system";
/// The Lease's name.
pub const NAME: &str = "node-ccm";

/// The body of an answer.
pub type Answer = UnsyncBoxBody<Bytes, BoxError>;

/// The API server. Clones are the same one.
#[derive(Clone)]
pub struct LeaseApi {
    state: Arc<Mutex<State>>,
    start: Instant,
    /// The version of the latest change.
    latest: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    version: u64,
    lease: Option<Value>,
    /// Each change as a watch shows it, with its version.
    changes: Vec<(u64, Value)>,
    /// The methods of the requests.
    requests: Vec<Method>,
    /// The events that were written.
    events: Vec<Value>,
    /// The reads that another client's write follows at once, before the reader's.
    disturbed: usize,
    /// Such reads in a row, so far.
    in_a_row: usize,
}

impl Default for LeaseApi {
    fn default() -> Self {
        Self { state: Arc::default(), start: Instant::now(), latest: watch::Sender::new(0) }
    }
}

impl LeaseApi {
    /// Returns the difference between the test's time and the wall clock. Tests can pause the
    /// timers' clock, but not the wall clock, so the test's time is the wall clock plus the time of
    /// the timers.
    pub fn passed(&self) -> SignedDuration {
        SignedDuration::try_from(self.start.elapsed()).expect("a test is short")
    }

    /// Puts a record that `holder` has renewed this number of seconds ago.
    pub fn put_held(&self, holder: &str, ago: i64) {
        let renewed = clock::wall() + self.passed() - SignedDuration::from_secs(ago);
        let time = format!("{renewed:.6}");
        self.put(&json!({
            "holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "acquireTime": time, "renewTime": time,
        }));
    }

    /// Returns the Lease, as it is now.
    pub fn lease(&self) -> Option<Value> {
        self.state.lock().lease.clone()
    }

    /// Returns the record, as it is now.
    pub fn record(&self) -> Option<Value> {
        self.lease().map(|lease| lease["spec"].clone())
    }

    /// Returns the holder of the Lease; empty without one.
    pub fn holder(&self) -> String {
        let record = self.record().unwrap_or_default();
        record["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the requests for the Lease so far, watches and lists not counted.
    pub fn requests(&self) -> Vec<Method> {
        self.state.lock().requests.clone()
    }

    /// Returns the events so far.
    pub fn events(&self) -> Vec<Value> {
        self.state.lock().events.clone()
    }

    /// Writes a record from outside, as `kubectl` can.
    pub fn put(&self, record: &Value) {
        let mut state = self.state.lock();
        let uid =
            state.lease.as_ref().map_or(Value::Null, |lease| lease["metadata"]["uid"].clone());
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": NAME, "namespace": NAMESPACE, "uid": uid}, "spec": record,
        });
        let kind = if state.lease.is_some() { "MODIFIED" } else { "ADDED" };
        self.commit(&mut state, kind, lease);
    }

    /// Changes the Lease, but not its record.
    pub fn touch(&self) {
        let mut state = self.state.lock();
        let mut lease = state.lease.clone().expect("a Lease to touch");
        lease["metadata"]["annotations"] = json!({"touched": state.version.to_string()});
        self.commit(&mut state, "MODIFIED", lease);
    }

    /// Lets another client change the Lease after each read, but after one of `reads`. 0 ends it.
    pub fn disturb(&self, reads: usize) {
        self.state.lock().disturbed = reads;
    }

    /// Deletes the Lease.
    pub fn delete(&self) {
        let mut state = self.state.lock();
        let lease = state.lease.clone().expect("a Lease to delete");
        self.commit(&mut state, "DELETED", lease);
        state.lease = None;
    }

    fn commit(&self, state: &mut State, kind: &str, mut lease: Value) -> Value {
        state.version += 1;
        lease["metadata"]["resourceVersion"] = json!(state.version.to_string());
        if lease["metadata"]["uid"].is_null() {
            lease["metadata"]["uid"] = json!(format!("uid-{}", state.version));
        }
        state.changes.push((state.version, json!({"type": kind, "object": lease})));
        state.lease = Some(lease.clone());
        self.latest.send_replace(state.version);
        lease
    }

    /// Answers a request.
    pub fn serve(&self, request: &Request<Bytes>) -> Response<Answer> {
        let query = request.uri().query().unwrap_or_default();
        let one = request.uri().path().ends_with(&format!("/namespaces/{NAMESPACE}/leases/{NAME}"));
        let method = request.method();
        if request.uri().path().ends_with("/events") {
            let event: Value = serde_json::from_slice(request.body()).expect("an event");
            self.state.lock().events.push(event.clone());
            return answer(StatusCode::CREATED, &event);
        }
        if one || method != Method::GET {
            self.state.lock().requests.push(method.clone());
        }
        match method.as_str() {
            "GET" if query.contains("watch=true") => self.watch(query),
            "GET" if !one => self.list(),
            "GET" => self.get(),
            "POST" => self.create(request.body()),
            "PATCH" if one => self.patch(request.body()),
            "PUT" if one => self.update(request.body()),
            _ => refusal(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "not served here"),
        }
    }

    fn get(&self) -> Response<Answer> {
        let mut state = self.state.lock();
        let Some(lease) = state.lease.clone() else {
            return refusal(StatusCode::NOT_FOUND, "NotFound", "no such lease");
        };
        state.in_a_row += 1;
        if state.in_a_row < state.disturbed {
            self.commit(&mut state, "MODIFIED", lease.clone());
        } else {
            state.in_a_row = 0;
        }
        answer(StatusCode::OK, &lease)
    }

    fn list(&self) -> Response<Answer> {
        let state = self.state.lock();
        let items: Vec<_> = state.lease.iter().collect();
        let metadata = json!({"resourceVersion": state.version.to_string()});
        answer(
            StatusCode::OK,
            &json!({"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": metadata, "items": items}),
        )
    }

    fn create(&self, body: &[u8]) -> Response<Answer> {
        let mut state = self.state.lock();
        if state.lease.is_some() {
            return refusal(StatusCode::CONFLICT, "AlreadyExists", "the lease exists already");
        }
        let lease: Value = serde_json::from_slice(body).expect("a Lease");
        match validate(&lease) {
            Some(refused) => refused,
            None => answer(StatusCode::CREATED, &self.commit(&mut state, "ADDED", lease)),
        }
    }

    fn patch(&self, body: &[u8]) -> Response<Answer> {
        let mut state = self.state.lock();
        let Some(mut lease) = state.lease.clone() else {
            return refusal(StatusCode::NOT_FOUND, "NotFound", "no such lease");
        };
        let patch: Value = serde_json::from_slice(body).expect("a patch");
        let wanted = &patch["metadata"]["resourceVersion"];
        if !wanted.is_null() && *wanted != lease["metadata"]["resourceVersion"] {
            return refusal(StatusCode::CONFLICT, "Conflict", "the lease has been modified");
        }
        merge(&mut lease, &patch);
        match validate(&lease) {
            Some(refused) => refused,
            None => answer(StatusCode::OK, &self.commit(&mut state, "MODIFIED", lease)),
        }
    }

    /// Updates a Lease. An update of a Lease that does not exist creates it, unless it has a UID.
    fn update(&self, body: &[u8]) -> Response<Answer> {
        let mut state = self.state.lock();
        let update: Value = serde_json::from_slice(body).expect("a Lease");
        let stored = state.lease.as_ref().map_or(&Value::Null, |lease| &lease["metadata"]);
        let wanted = &update["metadata"];
        let is_same = |field: &str| wanted[field].is_null() || wanted[field] == stored[field];
        if !is_same("uid") || !stored.is_null() && !is_same("resourceVersion") {
            return refusal(StatusCode::CONFLICT, "Conflict", "the lease has been modified");
        }
        let kind = if stored.is_null() { "ADDED" } else { "MODIFIED" };
        match validate(&update) {
            Some(refused) => refused,
            None => answer(StatusCode::OK, &self.commit(&mut state, kind, update)),
        }
    }

    fn watch(&self, query: &str) -> Response<Answer> {
        let number = |name: &str| {
            let value =
                query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            value.and_then(|value| value.parse::<u64>().ok()).expect("a number")
        };
        let end = Instant::now() + Duration::from_secs(number("timeoutSeconds"));
        let frames = self.changes(number("resourceVersion"), end);
        Response::new(
            StreamBody::new(frames).map_err(|never: Infallible| match never {}).boxed_unsync(),
        )
    }

    /// Returns the changes after a version, as they happen.
    fn changes(
        &self,
        after: u64,
        end: Instant,
    ) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + use<> {
        let (state, latest) = (self.state.clone(), self.latest.subscribe());
        stream::unfold((state, latest, after), move |(state, mut latest, after)| async move {
            timeout_at(end, latest.wait_for(|version| *version > after)).await.ok()?.ok()?;
            let (version, event) = {
                let state = state.lock();
                state.changes.iter().find(|(version, _)| *version > after).cloned()?
            };
            let line = Bytes::from(format!("{event}\n"));
            Some((Ok(Frame::data(line)), (state, latest, version)))
        })
    }
}

pub fn answer(status: StatusCode, object: &Value) -> Response<Answer> {
    let body = Full::new(Bytes::from(object.to_string()));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// Returns a `Status` with a failure.
pub fn refusal(status: StatusCode, reason: &str, message: &str) -> Response<Answer> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": message, "reason": reason, "code": status.as_u16(),
    });
    answer(status, &body)
}

/// Checks a validation rule of the real API server.
fn validate(lease: &Value) -> Option<Response<Answer>> {
    let seconds = &lease["spec"]["leaseDurationSeconds"];
    (seconds.as_i64().is_some_and(|seconds| seconds <= 0)).then(|| {
        refusal(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            "leaseDurationSeconds must be greater than 0",
        )
    })
}

/// Applies a JSON merge patch (RFC 7386).
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            into.as_object_mut().expect("just made one").remove(name);
        } else {
            merge(&mut into[name], value);
        }
    }
}
