//! Bounds every call in time, whatever the other side does.
//!
//! Without this layer a request on a silent connection never returns: kube has no read
//! timeout, and TCP detects a dead peer late. The deadline covers the whole call: limiter,
//! retries, headers and body of the response. A watch is bounded only until it starts; its
//! body has no end, and the informer detects when it falls silent.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tower::BoxError;

use super::{
    ResponseBody,
    class::is_watch,
    middleware::{Answer, Middleware, Next, send},
};
use crate::error::DeadlineExceeded;

/// The longest timeout; adding more could overflow the clock.
const LONGEST: Duration = Duration::from_hours(24);

/// The deadline of a call: a request extension for the layers below.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(pub(super) Instant);

/// Puts a deadline on each call.
pub(super) struct Deadlines {
    /// The longest duration of a call.
    pub(super) timeout: Duration,
}

impl Middleware for Deadlines {
    async fn handle(&self, mut request: Request<Body>, next: Next) -> Answer {
        let timeout = self.timeout.min(LONGEST);
        let deadline = Instant::now() + timeout;
        let endless = is_watch(request.uri());
        request.extensions_mut().insert(Deadline(deadline));
        let response = timeout_at(deadline, send(&next, request))
            .await
            .map_err(|_elapsed| DeadlineExceeded(timeout))??;
        if endless {
            return Ok(response);
        }
        Ok(response.map(|body| {
            BoundedBody { body, end: Box::pin(sleep_until(deadline)), timeout }.boxed_unsync()
        }))
    }
}

/// A body that fails at the deadline.
struct BoundedBody {
    body: ResponseBody,
    end: Pin<Box<Sleep>>,
    timeout: Duration,
}

impl HttpBody for BoundedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // Check the clock first: a body that is always ready must end as well, and timers do not
        // fire while a task never waits.
        if Instant::now() < self.end.deadline() {
            if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
                return Poll::Ready(frame);
            }
            if self.end.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(Some(Err(DeadlineExceeded(self.timeout).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
