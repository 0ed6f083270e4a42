//! Faults: their effects, the requests they apply to, and their number.

use std::time::Duration;

use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;

use crate::openstack::Service;

/// The effect of a fault on a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The proxy answers instead of the service.
    Answer {
        /// The status.
        status: StatusCode,
        /// Headers in addition to HTTP's mandatory ones.
        headers: Vec<(&'static str, String)>,
        /// The body.
        body: String,
    },
    /// The request is not answered. The caller's deadline ends it.
    Hang,
    /// The proxy cuts the connection without an answer. The service does not get the request.
    Cut,
    /// The service carries out the request. The proxy cuts the connection without its answer.
    LoseAnswer,
    /// The proxy cuts the connection. The service gets the request when the fault is removed.
    Late,
    /// Lists in the service's answer lack the objects with this `alias`, as in a Neutron without
    /// this extension.
    Without(&'static str),
    /// The proxy delays the service's answer by this much.
    Slow(Duration),
    /// The service's lists have pages of this many entries, as with its option `max_limit`, and
    /// the proxy delays each.
    SlowPages(usize, Duration),
    /// Every list in the service's answer is empty; its status and the rest are unchanged.
    EmptyList,
    /// The proxy sends half of the service's answer, then cuts the connection.
    Truncated,
    /// The proxy sends half of the service's answer as a complete one.
    HalfJson,
}

impl Effect {
    /// Answers 429 in Nova's words, with `Retry-After` in whole seconds if a wait is given.
    pub fn throttle(retry_after: Option<Duration>) -> Self {
        let mut headers = vec![json_type()];
        if let Some(wait) = retry_after {
            headers.push(("retry-after", wait.as_secs().to_string()));
        }
        let body = json!({"overLimit": {"code": 429, "message": "This request was rate-limited."}});
        Self::Answer { status: StatusCode::TOO_MANY_REQUESTS, headers, body: body.to_string() }
    }

    /// Answers 401, as every service does to an invalid token.
    pub fn unauthorized() -> Self {
        let error = json!({"code": 401, "title": "Unauthorized", "message": "The request you have made requires authentication."});
        Self::Answer {
            status: StatusCode::UNAUTHORIZED,
            headers: vec![
                json_type(),
                ("www-authenticate", "Keystone uri=\"http://127.0.0.1\"".into()),
            ],
            body: json!({ "error": error }).to_string(),
        }
    }

    /// Answers 500 in Nova's words.
    pub fn internal_error() -> Self {
        let body = json!({"computeFault": {"code": 500, "message": "Unexpected API Error."}});
        Self::Answer {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            headers: vec![json_type()],
            body: body.to_string(),
        }
    }

    /// Answers 409 in Octavia's words: it works on this load balancer.
    pub fn immutable() -> Self {
        let text = "Load Balancer 5f0b2f2c-6d1c-4f0e-8a0e-000000000000 is immutable and cannot be updated.";
        let body = json!({"faultcode": "Client", "faultstring": text, "debuginfo": null});
        Self::Answer {
            status: StatusCode::CONFLICT,
            headers: vec![json_type()],
            body: body.to_string(),
        }
    }

    /// Answers 404 like a web server in front of the services, and not like Nova itself.
    pub fn html_not_found() -> Self {
        Self::Answer {
            status: StatusCode::NOT_FOUND,
            headers: vec![("content-type", "text/html".to_owned())],
            body: "<html><head><title>404 Not Found</title></head><body><h1>404 Not Found</h1>\
                   </body></html>"
                .to_owned(),
        }
    }
}

/// Returns the header of a body in JSON.
fn json_type() -> (&'static str, String) {
    ("content-type", "application/json".to_owned())
}

/// One fault.
#[derive(Clone, Debug)]
pub struct Fault {
    effect: Effect,
    service: Option<Service>,
    method: Option<Method>,
    path: String,
    whole_path: bool,
    times: Option<u64>,
}

impl Fault {
    /// Creates a fault that hits every request until it is removed.
    pub fn new(effect: Effect) -> Self {
        Self {
            effect,
            service: None,
            method: None,
            path: String::new(),
            whole_path: false,
            times: None,
        }
    }

    /// Restricts it to requests to this service.
    #[must_use]
    pub fn on(mut self, service: Service) -> Self {
        self.service = Some(service);
        self
    }

    /// Restricts it to requests with this method.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = Some(method);
        self
    }

    /// Restricts it to requests whose path has this prefix, `/v2.1/servers` for example.
    #[must_use]
    pub fn path(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.path);
        self
    }

    /// Restricts it to requests with exactly this path. The query does not count.
    #[must_use]
    pub fn exactly(self, path: &str) -> Self {
        Self { whole_path: true, ..self.path(path) }
    }

    /// Restricts it to this number of the matching requests.
    #[must_use]
    pub fn times(mut self, requests: u64) -> Self {
        self.times = Some(requests);
        self
    }

    fn applies(&self, service: Service, method: &Method, path: &str) -> bool {
        self.times != Some(0)
            && self.service.is_none_or(|wanted| wanted == service)
            && self.method.as_ref().is_none_or(|wanted| wanted == method)
            && path.starts_with(&self.path)
            && (!self.whole_path || path == self.path)
    }
}

impl State {
    fn add(&mut self, fault: Fault) -> FaultId {
        self.added += 1;
        let id = FaultId(self.added);
        self.faults.push(InForce { id, fault, hits: 0 });
        id
    }
}

/// The name of a fault among [`Faults`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

/// The faults in force. The first one added that applies to a request decides.
#[derive(Debug, Default)]
pub struct Faults {
    state: Mutex<State>,
    /// A fault was removed.
    removed: Notify,
}

#[derive(Debug, Default)]
struct State {
    faults: Vec<InForce>,
    added: u64,
}

#[derive(Debug)]
struct InForce {
    id: FaultId,
    fault: Fault,
    /// The number of requests it has hit.
    hits: usize,
}

impl Faults {
    /// Puts a fault in force.
    pub fn add(&self, fault: Fault) -> FaultId {
        self.state.lock().add(fault)
    }

    /// Replaces all faults by this one atomically.
    pub fn replace(&self, fault: Fault) -> FaultId {
        let mut state = self.state.lock();
        state.faults.clear();
        self.removed.notify_waiters();
        state.add(fault)
    }

    /// Ends one fault.
    pub fn remove(&self, id: FaultId) {
        self.state.lock().faults.retain(|other| other.id != id);
        self.removed.notify_waiters();
    }

    /// Returns the number of requests that this fault has hit, or 0 if it is not in force any more.
    pub fn hits(&self, id: FaultId) -> usize {
        let state = self.state.lock();
        let mut all = state.faults.iter();
        all.find(|fault| fault.id == id).map_or(0, |fault| fault.hits)
    }

    /// Ends all faults. Hanging requests stay open until their callers give up.
    pub fn clear(&self) {
        self.state.lock().faults.clear();
        self.removed.notify_waiters();
    }

    /// Returns the effect on this request, which counts as one of the fault's times.
    pub(super) fn hit(
        &self,
        service: Service,
        method: &Method,
        path: &str,
    ) -> Option<(FaultId, Effect)> {
        let mut state = self.state.lock();
        let mut all = state.faults.iter_mut();
        let found = all.find(|known| known.fault.applies(service, method, path))?;
        found.hits += 1;
        if let Some(times) = &mut found.fault.times {
            *times -= 1;
        }
        Some((found.id, found.fault.effect.clone()))
    }

    /// Waits until this fault is no longer in force.
    pub(super) async fn is_removed(&self, id: FaultId) {
        loop {
            let removed = self.removed.notified();
            if !self.state.lock().faults.iter().any(|fault| fault.id == id) {
                return;
            }
            removed.await;
        }
    }
}
