//! Makes one attempt to send a request: waits for the rate limiter, which learns the result, and
//! counts and measures the attempt. Its answer shows the clock of the API server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use ccm_base::clock;
use http::{Method, Request, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::{
    RequestClass, RequestLimiter,
    class::{classify, is_watch},
    middleware::{InnerService, RequestResult},
    retry_after::retry_after,
    server_clock::ServerClock,
};
use crate::metrics::Recorder;

/// Admits writes of a client before they are sent. A write that waits for the limiter has not been
/// sent: its time limit, and the term of leadership that covers it, count from its admission.
#[derive(Clone)]
pub struct Admission(pub(super) Attempts);

impl Admission {
    /// Waits until the limiter admits a write with this method.
    pub(crate) async fn admit(&self, method: &Method) -> Admitted {
        self.0.admit(RequestClass::Write, method).await;
        Admitted(Arc::new(AtomicBool::new(true)))
    }
}

/// A request extension: the first attempt is admitted already.
#[derive(Clone, Debug)]
pub(crate) struct Admitted(Arc<AtomicBool>);

impl Admitted {
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// Makes the attempts of a client.
#[derive(Clone)]
pub(super) struct Attempts {
    pub(super) limiter: Arc<dyn RequestLimiter>,
    pub(super) recorder: Recorder,
    pub(super) clock: ServerClock,
}

impl Attempts {
    async fn admit(&self, class: RequestClass, method: &Method) {
        let asked = Instant::now();
        self.limiter.admit(class).await;
        self.recorder.limiter_wait(method, asked.elapsed());
    }

    pub(super) async fn send(self, request: Request<Body>, next: InnerService) -> RequestResult {
        let (method, endless) = (request.method().clone(), is_watch(request.uri()));
        let class = classify(&request);
        let is_admitted = request.extensions().get().is_some_and(Admitted::take);
        if let Some(class) = class.filter(|_| !is_admitted) {
            self.admit(class, &method).await;
        }
        if let Some(bytes) = request.body().size_hint().exact() {
            self.recorder.request_size(&method, bytes);
        }
        let mut attempt = Attempt {
            by: &self,
            method: &method,
            class,
            sent: Instant::now(),
            status: None,
            retry_after: None,
        };
        let sent = clock::wall();
        let response = next.oneshot(request).await?;
        self.clock.read_answer(response.headers(), sent);
        attempt.status = Some(response.status());
        attempt.retry_after = retry_after(response.headers(), clock::wall());
        drop(attempt);
        if endless {
            return Ok(response);
        }
        let mut size = Size { recorder: self.recorder, method, bytes: 0 };
        Ok(response.map(|body| body.map_frame(move |frame| size.with(frame)).boxed_unsync()))
    }
}

/// Reports an attempt when it ends, also when it is cancelled.
struct Attempt<'a> {
    by: &'a Attempts,
    method: &'a Method,
    class: Option<RequestClass>,
    sent: Instant,
    status: Option<StatusCode>,
    retry_after: Option<Duration>,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.by.recorder.attempt(self.method, self.status, self.sent.elapsed());
        if let Some(class) = self.class {
            let status = self.status.map(|status| status.as_u16());
            self.by.limiter.report_answer(class, status, self.retry_after);
        }
    }
}

/// The size of a response's body, recorded when the body ends or is dropped.
struct Size {
    recorder: Recorder,
    method: Method,
    bytes: u64,
}

impl Size {
    fn with(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        self.bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
        frame
    }
}

impl Drop for Size {
    fn drop(&mut self) {
        self.recorder.response_size(&self.method, self.bytes);
    }
}
