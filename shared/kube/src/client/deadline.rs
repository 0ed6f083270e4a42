//! Bounds every call in time, whatever the other side does.
//!
//! Without this layer a request on a silent connection never returns: kube has no read
//! timeout, and TCP detects a dead peer late. The deadline covers the whole call: limiter,
//! retries, headers and body of the response. A watch is bounded only until it starts; its
//! body has no end, and the informer detects when it falls silent.

use std::time::Duration;

use futures::stream;
use http::Request;
use http_body_util::{BodyExt as _, StreamBody};
use kube::client::Body;
use tokio::time::{Instant, timeout_at};
use tower::{BoxError, ServiceExt as _};

use super::{
    ResponseBody,
    class::is_watch,
    middleware::{InnerService, RequestResult},
};
use crate::error::DeadlineExceeded;

/// The longest timeout; adding more could overflow the clock.
const LONGEST: Duration = Duration::from_hours(24);

/// The deadline of a call: a request extension for the layers below.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(pub(super) Instant);

/// Bounds a call by a deadline.
pub(super) async fn bounded(
    timeout: Duration,
    mut request: Request<Body>,
    next: InnerService,
) -> RequestResult {
    let timeout = timeout.min(LONGEST);
    let (deadline, late) = (Instant::now() + timeout, DeadlineExceeded(timeout));
    let endless = is_watch(request.uri());
    request.extensions_mut().insert(Deadline(deadline));
    let response = timeout_at(deadline, next.oneshot(request)).await.map_err(|_elapsed| late)??;
    if endless {
        return Ok(response);
    }
    Ok(response.map(|body| bounded_body(body, deadline, late)))
}

/// Returns a body that fails at the deadline.
fn bounded_body(body: ResponseBody, deadline: Instant, late: DeadlineExceeded) -> ResponseBody {
    let frames = stream::try_unfold(body, move |mut body| async move {
        // The clock is checked first, because a body that is always ready must end as well, and
        // timers do not fire while a task never waits.
        if Instant::now() >= deadline {
            return Err(BoxError::from(late));
        }
        let frame = timeout_at(deadline, body.frame()).await.map_err(|_elapsed| late)?;
        Ok(frame.transpose()?.map(|frame| (frame, body)))
    });
    StreamBody::new(frames).boxed_unsync()
}
