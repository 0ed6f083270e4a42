//! One request on the wire: admitted at the gate, sent within its time, counted and
//! reported, however it ends.

mod hidden;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use ccm_base::{clock, message::one_line};
use ccm_cloud::{Call, CallClass, CallGate, CallReport, CloudError, ErrorKind};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::Full;
use tokio::time::{Instant, timeout_at};

pub(crate) use self::hidden::Hidden;
use super::{Answer, Failure, Service};
use crate::openstack::{
    config::Secret,
    fault,
    metrics::OpenStackMetrics,
    text::MAX_MESSAGE,
    transport::{Broken, Raw, Transport},
};

/// The header that holds the token.
pub(crate) const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// The way to the cloud with one configuration.
pub(crate) struct Wire {
    pub(crate) gate: Arc<dyn CallGate>,
    pub(crate) metrics: OpenStackMetrics,
    pub(crate) transport: Transport,
    pub(crate) user_agent: HeaderValue,
    /// The longest time for one request.
    pub(crate) longest: Option<Duration>,
}

/// A request to be sent.
pub(crate) struct Outgoing {
    pub(crate) service: Service,
    pub(crate) operation: &'static str,
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The secret in the body, to be redacted. The token is in the headers.
    pub(crate) secret: Option<Secret>,
}

impl Outgoing {
    /// A request that reads.
    pub(crate) fn get(service: Service, operation: &'static str, url: String) -> Self {
        let (headers, body) = (HeaderMap::new(), Bytes::new());
        Self { service, operation, method: Method::GET, url, headers, body, secret: None }
    }

    /// What the service must not repeat.
    fn hidden(&self) -> Hidden {
        let token = self.headers.get(TOKEN).and_then(|token| token.to_str().ok());
        Hidden::new(token.into_iter().chain(self.secret.as_ref().map(Secret::expose)))
    }

    fn class(&self) -> CallClass {
        let (service, operation) = (self.service.name(), self.operation);
        // A login changes nothing in the cloud.
        CallClass::read(service, operation)
    }

    fn into_request(self, user_agent: &HeaderValue) -> Result<Request<Full<Bytes>>, CloudError> {
        let url: Uri = self.url.parse().map_err(|error| {
            CloudError::new(
                ErrorKind::Invalid,
                format!(
                    "{} {}: {:?} is no URL: {error}",
                    self.service.name(),
                    self.operation,
                    self.url
                ),
            )
        })?;
        let sends_json = !self.body.is_empty();
        let mut request = Request::new(Full::new(self.body));
        *request.method_mut() = self.method;
        *request.uri_mut() = url;
        *request.headers_mut() = self.headers;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, user_agent.clone());
        if sends_json {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Ok(request)
    }
}

impl Wire {
    /// Sends the request, once. An answer that is no success is an error, but for a
    /// 404 by which the service itself says that the object does not exist.
    pub(crate) async fn send(&self, outgoing: Outgoing, call: Call) -> Result<Answer, Failure> {
        let (service, class) = (outgoing.service, outgoing.class());
        let hidden = outgoing.hidden();
        let request = outgoing.into_request(&self.user_agent)?;
        let _permit = match timeout_at(call.end, self.gate.admit(class, call)).await {
            Ok(admitted) => admitted?,
            Err(_elapsed) => {
                let why =
                    format!("not sent within the {} s of the call", call.timeout.as_secs_f64());
                return Err(about(class, CloudError::new(ErrorKind::Timeout, why)).into());
            }
        };
        let sent = Sent { wire: self, class, at: Instant::now(), reported: false };
        let end = self.longest.map_or(call.end, |longest| call.end.min(sent.at + longest));
        let outcome = match timeout_at(end, self.transport.exchange(request)).await {
            Ok(Ok(raw)) => read(service, hidden.answer(raw)),
            Ok(Err(broken)) => Err(unanswered(broken)),
            Err(_elapsed) => {
                let why = format!("no answer within {:.3} s", (end - sent.at).as_secs_f64());
                Err(CloudError::new(ErrorKind::Timeout, why).into())
            }
        };
        match outcome {
            Ok((answer, denial)) => {
                sent.report(denial.as_ref());
                Ok(answer)
            }
            Err(Failure { error, repeat, holds }) => {
                sent.report(Some(&error));
                let message = hidden.text(&error.message);
                Err(Failure { error: about(class, CloudError { message, ..error }), repeat, holds })
            }
        }
    }
}

/// The answer, with the service's word that the object does not exist if it is that.
fn read(service: Service, raw: Raw) -> Result<(Answer, Option<CloudError>), Failure> {
    let fault = fault::of(service, raw.status, &raw.headers, &raw.body, clock::wall());
    match fault {
        Some(error) if error.kind != ErrorKind::NotFound => {
            let status = raw.status.as_u16();
            let repeat = error.kind == ErrorKind::Throttled || matches!(status, 502..=504);
            Err(Failure { repeat, ..error.into() })
        }
        denial => {
            let request_id = fault::request_id(&raw.headers);
            let (status, headers, body) = (raw.status.as_u16(), raw.headers, raw.body);
            Ok((Answer { status, headers, body, request_id }, denial))
        }
    }
}

fn unanswered(broken: Broken) -> Failure {
    let why = one_line(&broken.to_string(), MAX_MESSAGE);
    match broken {
        Broken::Connection(_) => Failure::passing(CloudError::new(ErrorKind::Unavailable, why)),
        Broken::Certificate(_) | Broken::Proxy(_) => {
            CloudError::new(ErrorKind::Unavailable, why).into()
        }
        Broken::TooLong => CloudError::new(ErrorKind::Malformed, why).into(),
    }
}

/// The error, beginning with what was asked.
fn about(class: CallClass, error: CloudError) -> CloudError {
    let message = format!("{} {}: {}", class.service, class.operation, error.message);
    CloudError { message, ..error }
}

/// A request under way. Dropped by a caller who does not wait any longer, it counts
/// as not answered.
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
        // That something is not there is a good answer.
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
