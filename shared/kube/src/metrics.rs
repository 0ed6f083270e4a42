//! `rest_client_*`: metrics of the requests to the API server. Names, labels and bounds are
//! client-go's, so that existing dashboards work.
//!
//! Three things are counted more precisely. Durations cover one attempt, from sending to the
//! headers of the response: waiting for the limiter is `rest_client_rate_limiter_duration_seconds`,
//! and retries have their own counter. Sizes are those on the wire, after compression. Watches
//! count only as requests, because their duration and size are meaningless.

use std::{sync::Arc, time::Duration};

use ccm_metrics::{Counter, Family, FloatGauge, Histogram, LabelValue, Text, label, metrics};
use http::{Method, StatusCode};
use strum::{IntoStaticStr, VariantNames};

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

/// An HTTP method as label value. Unknown ones share a value, so that the number of series
/// is bounded.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "UPPERCASE")]
enum Verb {
    Get,
    Post,
    Put,
    Patch,
    Delete,
    Other,
}

label!(Verb);

impl Verb {
    fn from_method(method: &Method) -> Self {
        match *method {
            Method::GET => Self::Get,
            Method::POST => Self::Post,
            Method::PUT => Self::Put,
            Method::PATCH => Self::Patch,
            Method::DELETE => Self::Delete,
            _ => Self::Other,
        }
    }
}

/// A status as label value, `<error>` without a response.
#[derive(Clone, Copy, Debug)]
struct Code(Option<StatusCode>);

impl LabelValue for Code {
    fn text(self) -> Text {
        match self.0.map(|status| status.as_u16()) {
            Some(code @ 100..=599) => code.to_string().into(),
            Some(_) => "<other>".into(),
            None => "<error>".into(),
        }
    }

    fn every() -> Vec<Text> {
        vec!["200".into()]
    }
}

type Calls = (Verb, Arc<str>);

metrics! {
    /// The metrics of all clients of a process. Cheap to create; nothing is visible until they
    /// are registered.
    pub struct RestMetrics {
        /// Number of HTTP requests to the API server, by status code, method and host
        [ALPHA] rest_client_requests { code, method, host } => requests: Family<Counter, (Code, Verb, Arc<str>)>;
        /// Number of retried requests to the API server, by the status code that caused the retry, verb and host
        [ALPHA] rest_client_request_retries { code, verb, host } => retries: Family<Counter, (Code, Verb, Arc<str>)>;
        /// Time from sending a request to the response headers in seconds, by verb and host
        [ALPHA] rest_client_request_duration_seconds { verb, host } => durations: Family<Histogram, Calls>, bounds SECONDS;
        /// Time a request waited for the client's rate limiter in seconds, by verb and host
        [ALPHA] rest_client_rate_limiter_duration_seconds { verb, host } => limiter_waits: Family<Histogram, Calls>, bounds SECONDS;
        /// Size of request bodies in bytes, by verb and host
        [ALPHA] rest_client_request_size_bytes { verb, host } => request_sizes: Family<Histogram, Calls>, bounds BYTES;
        /// Size of response bodies on the wire in bytes, by verb and host
        [ALPHA] rest_client_response_size_bytes { verb, host } => response_sizes: Family<Histogram, Calls>, bounds BYTES;
        /// By how many seconds the clock of this machine is at least ahead of the API server's (negative: behind), from the Date of its last answer
        [ALPHA] ccm_apiserver_clock_difference_seconds => clock_difference: FloatGauge;
    }
}

impl RestMetrics {
    /// Records that an answer has shown by how many seconds this machine's clock is ahead.
    pub(crate) fn clock_differs(&self, seconds: f64) {
        self.clock_difference.set(seconds);
    }
}

/// The metrics of the clients of one API server.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    metrics: Arc<RestMetrics>,
    host: Arc<str>,
}

impl Recorder {
    pub(crate) fn new(metrics: Arc<RestMetrics>, host: Arc<str>) -> Self {
        Self { metrics, host }
    }

    /// Records an attempt that ended, with or without a response.
    pub(crate) fn attempt(&self, method: &Method, status: Option<StatusCode>, took: Duration) {
        let (verb, host) = self.call(method);
        self.metrics.requests.series((Code(status), verb, host)).inc();
        self.metrics.durations.series(self.call(method)).observe(took.as_secs_f64());
    }

    /// Records that a request will be retried because of this response.
    pub(crate) fn retry(&self, method: &Method, status: Option<StatusCode>) {
        let (verb, host) = self.call(method);
        self.metrics.retries.series((Code(status), verb, host)).inc();
    }

    /// Records that a request waited for the limiter.
    pub(crate) fn limiter_wait(&self, method: &Method, waited: Duration) {
        self.metrics.limiter_waits.series(self.call(method)).observe(waited.as_secs_f64());
    }

    /// Records the size of a request body that is sent.
    pub(crate) fn request_size(&self, method: &Method, bytes: u64) {
        self.metrics.request_sizes.series(self.call(method)).observe(bytes as f64);
    }

    /// Records the size of a response body that was read.
    pub(crate) fn response_size(&self, method: &Method, bytes: u64) {
        self.metrics.response_sizes.series(self.call(method)).observe(bytes as f64);
    }

    fn call(&self, method: &Method) -> Calls {
        (Verb::from_method(method), Arc::clone(&self.host))
    }
}
