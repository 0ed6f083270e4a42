//! Sends one request: waits for the gate, sends the request within its time, counts it and reports
//! it, however it ends.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use ccm_base::{clock, message::one_line};
use ccm_cloud::{Call, CallClass, CallGate, CallReport, CloudError, ErrorKind};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{ACCEPT, CONTENT_TYPE, IF_MATCH, USER_AGENT},
};
use http_body_util::Full;
use tokio::time::{Instant, timeout_at};

use super::{
    Answer, Failure, Request, Service, fault,
    hidden::Hidden,
    retry::Repeat,
    transport::{Broken, Raw, Transport},
};
use crate::{
    config::Secret,
    metrics::OpenStackMetrics,
    text::{MAX_MESSAGE, MAX_VALUE},
};

/// The header that holds the token.
pub const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// The way to the cloud with one configuration.
pub struct Wire {
    pub gate: Arc<dyn CallGate>,
    pub metrics: OpenStackMetrics,
    pub transport: Transport,
    pub user_agent: HeaderValue,
    /// The longest time for one request.
    pub longest: Option<Duration>,
}

/// A request to be sent.
pub struct Outgoing {
    service: Service,
    class: CallClass,
    method: Method,
    url: String,
    pub headers: HeaderMap,
    body: Bytes,
    /// The secret in the body, to be redacted. The token is in the headers.
    secret: Option<Secret>,
}

impl Outgoing {
    /// Creates the request to this URL.
    pub fn new(request: &Request<'_>, url: String) -> Self {
        let mut headers = HeaderMap::new();
        if let Some(revision) = request.revision {
            let revision = HeaderValue::try_from(format!("revision_number={revision}"));
            headers.extend(revision.map(|revision| (IF_MATCH, revision)));
        }
        let body = request.body.as_ref().map(|body| Bytes::from(body.to_string()));
        let (method, body) = (request.method.clone(), body.unwrap_or_default());
        let class = request.class();
        Self { service: request.service, class, method, url, headers, body, secret: None }
    }

    /// Returns the request of a login: it changes nothing in the cloud, and its body holds this
    /// secret.
    pub fn login(operation: &'static str, url: String, body: Bytes, secret: Secret) -> Self {
        let request = Request::get(Service::Identity, operation, "");
        Self { method: Method::POST, body, secret: Some(secret), ..Self::new(&request, url) }
    }

    /// Returns the secrets that must not appear in messages.
    fn hidden(&self) -> Hidden {
        let token = self.headers.get(TOKEN).and_then(|token| token.to_str().ok());
        Hidden::new(token.into_iter().chain(self.secret.as_ref().map(Secret::expose)))
    }

    fn into_request(
        self,
        user_agent: &HeaderValue,
    ) -> Result<http::Request<Full<Bytes>>, CloudError> {
        let json = HeaderValue::from_static("application/json");
        let Self { class, method, url, mut headers, body, .. } = self;
        headers.insert(ACCEPT, json.clone());
        headers.insert(USER_AGENT, user_agent.clone());
        if !body.is_empty() {
            headers.insert(CONTENT_TYPE, json);
        }
        let request = http::Request::builder().method(method).uri(&url).body(Full::new(body));
        let mut request = request.map_err(|error| {
            about(
                class,
                CloudError::new(ErrorKind::Invalid, format!("{url:?} is not a URL: {error}")),
            )
        })?;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

impl Wire {
    /// Sends the request, once. A failed answer is an error, except for a 404 by which the service
    /// itself says that the object does not exist.
    pub async fn send(&self, outgoing: Outgoing, call: Call) -> Result<Answer, Failure> {
        let (service, class) = (outgoing.service, outgoing.class);
        let hidden = outgoing.hidden();
        let request = outgoing.into_request(&self.user_agent)?;
        let permit = match timeout_at(call.end, self.gate.admit(class, call)).await {
            Ok(admitted) => admitted?,
            Err(_elapsed) => {
                let why =
                    format!("not sent within the {} s of the call", call.timeout.as_secs_f64());
                let error = CloudError::new(ErrorKind::Timeout, why).that_was_not_sent();
                return Err(about(class, error).into());
            }
        };
        let sent = Sent { wire: self, class, at: Instant::now(), reported: false };
        let end = self.longest.map_or(call.end, |longest| call.end.min(sent.at + longest));
        let outcome = match timeout_at(end, self.transport.exchange(request)).await {
            Ok(Ok(raw)) => read(service, class, hidden.answer(raw)),
            Ok(Err(broken)) => Err(unanswered(broken)),
            Err(_elapsed) => {
                let why = format!("no answer within {:.3} s", (end - sent.at).as_secs_f64());
                Err(CloudError::new(ErrorKind::Timeout, why).that_may_be_done().into())
            }
        };
        let (error, outcome) = match outcome {
            Ok((answer, denial)) => (denial, Ok(answer)),
            Err(Failure { mut error, repeat, holds, status }) => {
                error.maybe_done &= class.write;
                let message = hidden.text(&error.message);
                let failed = about(class, CloudError { message, ..error.clone() });
                (Some(error), Err(Failure { error: failed, repeat, holds, status }))
            }
        };
        // The process waits for a write whose outcome is unknown until the end of its call.
        if !error.as_ref().is_some_and(|error| error.maybe_done) {
            permit.finish();
        }
        sent.report(error.as_ref());
        outcome
    }
}

/// Returns the answer; with it the error `NotFound`, if the service itself says that the object does
/// not exist.
fn read(
    service: Service,
    class: CallClass,
    raw: Raw,
) -> Result<(Answer, Option<CloudError>), Failure> {
    if class.write && raw.status.is_success() && !is_document(&raw.body) {
        let what = format!(
            "the answer (HTTP {}) is not JSON, so it is not the service's: {:?}",
            raw.status.as_u16(),
            one_line(&String::from_utf8_lossy(&raw.body), MAX_VALUE)
        );
        let error = CloudError::new(ErrorKind::Malformed, what).that_may_be_done();
        return Err(Failure { status: Some(raw.status.as_u16()), ..error.into() });
    }
    let fault = fault::cloud_error(service, raw.status, &raw.headers, &raw.body, clock::wall());
    match fault {
        Some(mut error) if error.kind != ErrorKind::NotFound => {
            let repeat = match raw.status.as_u16() {
                // The service did not begin the work.
                _ if error.kind == ErrorKind::Throttled => Repeat::Any,
                // The caller looks again before it repeats it.
                _ if error.kind == ErrorKind::Busy => Repeat::No,
                // The answer may come from something between us and the service.
                502..=504 => Repeat::Harmless,
                _ => Repeat::No,
            };
            // Errors of other kinds are the service's own words about a request that it has
            // refused.
            error.maybe_done = raw.status.is_server_error() && error.kind == ErrorKind::Unavailable;
            Err(Failure { repeat, status: Some(raw.status.as_u16()), ..error.into() })
        }
        denial => {
            let request_id = fault::request_id(&raw.headers);
            let (status, headers, body) = (raw.status.as_u16(), raw.headers, raw.body);
            let operation = class.operation;
            Ok((Answer { operation, status, headers, body, request_id }, denial))
        }
    }
}

/// Returns true if a body can be OpenStack's: JSON, or empty.
fn is_document(body: &[u8]) -> bool {
    let body = body.trim_ascii();
    body.is_empty() || serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok()
}

/// A client's reading of an answer, for services that tests script.
#[cfg(any(test, feature = "fuzz"))]
pub fn scripted_answer(
    request: &Request<'_>,
    status: http::StatusCode,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Answer, CloudError> {
    let (class, raw) = (request.class(), Raw { status, headers, body });
    match read(request.service, class, raw) {
        Ok((answer, _)) => Ok(answer),
        Err(Failure { mut error, .. }) => {
            error.maybe_done &= class.write;
            Err(about(class, error))
        }
    }
}

fn unanswered(broken: Broken) -> Failure {
    let why = one_line(&broken.to_string(), MAX_MESSAGE);
    let (kind, repeat) = match broken {
        Broken::NotConnected(_) => (ErrorKind::Unavailable, Repeat::Any),
        Broken::Connection(_) => (ErrorKind::Unavailable, Repeat::Harmless),
        Broken::Certificate(_) | Broken::Proxy(_) => (ErrorKind::Unavailable, Repeat::No),
        Broken::TooLong(_) => (ErrorKind::Malformed, Repeat::No),
    };
    let mut error = CloudError::new(kind, why);
    error.maybe_done = matches!(broken, Broken::Connection(_) | Broken::TooLong(_));
    Failure { repeat, ..error.into() }
}

/// Returns the error, beginning with what was asked.
fn about(class: CallClass, error: CloudError) -> CloudError {
    let message = format!("{} {}: {}", class.service, class.operation, error.message);
    CloudError { message, ..error }
}

/// A request that is under way. If the caller drops it because it no longer waits, it counts as not
/// answered.
struct Sent<'a> {
    wire: &'a Wire,
    class: CallClass,
    at: Instant,
    reported: bool,
}

impl Sent<'_> {
    fn report(mut self, error: Option<&CloudError>) {
        self.reported = true;
        self.tell(error.map(|error| error.kind), error.and_then(|error| error.retry_after));
    }

    fn tell(&self, error: Option<ErrorKind>, retry_after: Option<Duration>) {
        let took = self.at.elapsed();
        // A service that says that an object does not exist has answered well.
        let failed = error.is_some_and(|kind| kind != ErrorKind::NotFound);
        self.wire.metrics.request(self.class.operation, took, failed);
        self.wire.gate.report(self.class, CallReport { error, retry_after, took });
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if !self.reported {
            self.tell(Some(ErrorKind::Timeout), None);
        }
    }
}
