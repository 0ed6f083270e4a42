//! Makes each attempt wait for the rate limiter and reports its result to it.

use std::{sync::Arc, time::Duration};

use http::Request;
use kube::client::Body;
use tokio::time::Instant;

use super::{
    RequestClass, RequestLimiter,
    class::classify,
    middleware::{Answer, Middleware, Next, send},
    retry_after::retry_after,
};
use crate::metrics::Recorder;

/// Waits for the limiter before sending.
pub(super) struct Throttle {
    pub(super) limiter: Arc<dyn RequestLimiter>,
    pub(super) recorder: Recorder,
}

impl Middleware for Throttle {
    async fn handle(&self, request: Request<Body>, next: Next) -> Answer {
        let Some(class) = classify(&request) else {
            return send(&next, request).await;
        };
        let asked = Instant::now();
        self.limiter.admit(class).await;
        self.recorder.limiter_wait(request.method(), asked.elapsed());
        let mut report = Report { limiter: &*self.limiter, class, status: None, retry_after: None };
        let answer = send(&next, request).await;
        if let Ok(response) = &answer {
            report.status = Some(response.status().as_u16());
            report.retry_after = retry_after(response.headers(), ccm_base::clock::wall());
        }
        answer
    }
}

/// Reports an admitted attempt when it ends, also when it is cancelled.
struct Report<'a> {
    limiter: &'a dyn RequestLimiter,
    class: RequestClass,
    status: Option<u16>,
    retry_after: Option<Duration>,
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        self.limiter.answered(self.class, self.status, self.retry_after);
    }
}
