//! A call ends in time, whatever the other side does.
//!
//! Without this, a request on a connection that has gone silent never returns: kube
//! has no read time-out, and TCP notices a dead peer late. The deadline covers the
//! whole call, so that a caller knows what it waits for: limiter, retries, the head
//! of the answer and its body. A watch is bounded until it starts; its body is
//! endless by nature, and the informer notices when it falls silent.

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

/// A time-out this long is none; adding more could overflow the clock.
const LONGEST: Duration = Duration::from_hours(24);

/// When the call must have ended; an extension of the request, for the layers below.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(pub(super) Instant);

/// Ends each call after a time.
pub(super) struct Deadlines {
    /// Longest time for a call.
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

/// A body that fails at the deadline instead of trickling on.
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
        // The clock first: a body that always has more to give must end as well, and
        // timers do not fire while a task never waits.
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
