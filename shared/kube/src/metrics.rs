//! `rest_client_*`: what the requests to the API server cost. Names, labels and
//! bounds are client-go's, so that dashboards made for it work.
//!
//! Three things are counted more exactly than there. Durations are those of one
//! attempt, from sending to the head of the answer: waiting for the limiter is
//! `rest_client_rate_limiter_duration_seconds`, and retries are counted by themselves.
//! Sizes are those on the wire, compressed if the answer was. Watches count as
//! requests; how long they last and how much they carry says nothing and is left out.

use std::{fmt, sync::Arc, time::Duration};

use http::{Method, StatusCode};
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

/// Bounds of the duration histograms, in seconds.
const SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// Bounds of the size histograms, in bytes.
const BYTES: [f64; 11] = [
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];

/// An HTTP method as label value. Unknown ones share a value, so that the number of
/// series is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Verb(&'static str);

impl Verb {
    fn of(method: &Method) -> Self {
        Self(match *method {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "OTHER",
        })
    }
}

impl EncodeLabelValue for Verb {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), fmt::Error> {
        self.0.encode(encoder)
    }
}

/// A status as label value, `<error>` if there was no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Code(Option<u16>);

impl EncodeLabelValue for Code {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), fmt::Error> {
        match self.0 {
            Some(code @ 100..=599) => code.encode(encoder),
            Some(_) => "<other>".encode(encoder),
            None => "<error>".encode(encoder),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: Code,
    method: Verb,
    host: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RetryLabels {
    code: Code,
    verb: Verb,
    host: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    verb: Verb,
    host: Arc<str>,
}

type Histograms = Family<CallLabels, Histogram, fn() -> Histogram>;

/// The metrics of all clients of a process. Cheap to create; counts nothing visible
/// until registered.
#[derive(Clone, Debug)]
pub struct RestMetrics {
    requests: Family<RequestLabels, Counter>,
    retries: Family<RetryLabels, Counter>,
    durations: Histograms,
    limiter_waits: Histograms,
    request_sizes: Histograms,
    response_sizes: Histograms,
}

impl Default for RestMetrics {
    fn default() -> Self {
        let seconds = || Histograms::new_with_constructor(|| Histogram::new(SECONDS));
        let bytes = || Histograms::new_with_constructor(|| Histogram::new(BYTES));
        Self {
            requests: Family::default(),
            retries: Family::default(),
            durations: seconds(),
            limiter_waits: seconds(),
            request_sizes: bytes(),
            response_sizes: bytes(),
        }
    }
}

impl RestMetrics {
    /// Makes the metrics visible. Call it once per registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "rest_client_requests",
            "[ALPHA] Number of HTTP requests to the API server, by status code, method and host",
            self.requests.clone(),
        );
        registry.register(
            "rest_client_request_retries",
            "[ALPHA] Number of requests to the API server sent again, by the status code that led to it, verb and host",
            self.retries.clone(),
        );
        registry.register(
            "rest_client_request_duration_seconds",
            "[ALPHA] Time from sending a request to the head of its answer in seconds, by verb and host",
            self.durations.clone(),
        );
        registry.register(
            "rest_client_rate_limiter_duration_seconds",
            "[ALPHA] Time a request waited for the client's rate limiter in seconds, by verb and host",
            self.limiter_waits.clone(),
        );
        registry.register(
            "rest_client_request_size_bytes",
            "[ALPHA] Size of request bodies in bytes, by verb and host",
            self.request_sizes.clone(),
        );
        registry.register(
            "rest_client_response_size_bytes",
            "[ALPHA] Size of response bodies on the wire in bytes, by verb and host",
            self.response_sizes.clone(),
        );
    }
}

impl RestMetrics {
    /// Makes one series of everything: what the reference of the metrics is printed from.
    pub fn specimens(&self) {
        let recorder = Recorder::new(Arc::new(self.clone()), "10.96.0.1:443".into());
        for method in
            [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD]
        {
            recorder.attempt(&method, Some(StatusCode::OK), Duration::ZERO);
            recorder.retry(&method, Some(StatusCode::TOO_MANY_REQUESTS));
            recorder.limiter_wait(&method, Duration::ZERO);
            recorder.request_size(&method, 0);
            recorder.response_size(&method, 0);
        }
    }
}

/// The metrics as seen by the clients of one API server.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    metrics: Arc<RestMetrics>,
    host: Arc<str>,
}

impl Recorder {
    pub(crate) fn new(metrics: Arc<RestMetrics>, host: Arc<str>) -> Self {
        Self { metrics, host }
    }

    /// An attempt ended: with an answer, or without.
    pub(crate) fn attempt(&self, method: &Method, status: Option<StatusCode>, took: Duration) {
        let labels = RequestLabels {
            code: code(status),
            method: Verb::of(method),
            host: Arc::clone(&self.host),
        };
        self.metrics.requests.get_or_create(&labels).inc();
        self.metrics.durations.get_or_create(&self.call(method)).observe(took.as_secs_f64());
    }

    /// A request is about to be sent again because of this answer.
    pub(crate) fn retry(&self, method: &Method, status: Option<StatusCode>) {
        let labels = RetryLabels {
            code: code(status),
            verb: Verb::of(method),
            host: Arc::clone(&self.host),
        };
        self.metrics.retries.get_or_create(&labels).inc();
    }

    /// A request waited for the limiter.
    pub(crate) fn limiter_wait(&self, method: &Method, waited: Duration) {
        self.metrics.limiter_waits.get_or_create(&self.call(method)).observe(waited.as_secs_f64());
    }

    /// A request body of this size is sent.
    pub(crate) fn request_size(&self, method: &Method, bytes: u64) {
        self.metrics.request_sizes.get_or_create(&self.call(method)).observe(bytes as f64);
    }

    /// A response body of this size was read.
    pub(crate) fn response_size(&self, method: &Method, bytes: u64) {
        self.metrics.response_sizes.get_or_create(&self.call(method)).observe(bytes as f64);
    }

    fn call(&self, method: &Method) -> CallLabels {
        CallLabels { verb: Verb::of(method), host: Arc::clone(&self.host) }
    }
}

fn code(status: Option<StatusCode>) -> Code {
    Code(status.map(|status| status.as_u16()))
}
