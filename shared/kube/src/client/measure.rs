//! Counts attempts and measures their durations and sizes.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Method, Request};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time::Instant;
use tower::BoxError;

use super::{
    ResponseBody,
    class::is_watch,
    middleware::{Answer, Middleware, Next, send},
};
use crate::metrics::Recorder;

/// Measures each attempt.
pub(super) struct Measure {
    pub(super) recorder: Recorder,
}

impl Middleware for Measure {
    async fn handle(&self, request: Request<Body>, next: Next) -> Answer {
        let (method, endless) = (request.method().clone(), is_watch(request.uri()));
        if let Some(bytes) = request.body().size_hint().exact() {
            self.recorder.request_size(&method, bytes);
        }
        let mut attempt = Attempt {
            recorder: &self.recorder,
            method: &method,
            sent: Instant::now(),
            status: None,
        };
        let response = send(&next, request).await?;
        attempt.status = Some(response.status());
        drop(attempt);
        if endless {
            return Ok(response);
        }
        let recorder = self.recorder.clone();
        Ok(response.map(|body| CountedBody { body, bytes: 0, recorder, method }.boxed_unsync()))
    }
}

/// Records an attempt when it ends, also when it is cancelled.
struct Attempt<'a> {
    recorder: &'a Recorder,
    method: &'a Method,
    sent: Instant,
    status: Option<http::StatusCode>,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.recorder.attempt(self.method, self.status, self.sent.elapsed());
    }
}

/// A body that records its size when it ends or is dropped.
struct CountedBody {
    body: ResponseBody,
    bytes: u64,
    recorder: Recorder,
    method: Method,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            self.bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        self.recorder.response_size(&self.method, self.bytes);
    }
}
