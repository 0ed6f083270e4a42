//! Retries requests that are safe to repeat while time is left.
//!
//! kube's own retry would repeat any request 15 times, also writes and watches: an error would
//! surface only after six minutes. This layer makes at most four attempts, only within the call's
//! deadline, and counts each retry.
//!
//! | request | repeated after |
//! |---|---|
//! | GET | 429, 503, 504, any 5xx with `Retry-After`; a failed connect; a broken connection |
//! | others | 429 with `Retry-After`; a failed connect, when nothing was sent |
//! | watch | nothing: the informer handles it |
//!
//! A write on a broken connection may have been applied, so its caller must plan again.

use std::{error::Error, io, time::Duration};

use ccm_base::Backoff;
use http::{Method, Request, StatusCode};
use kube::client::Body;
use tokio::time::{Instant, sleep};
use tower::ServiceExt as _;

use super::{
    class::is_watch,
    deadline::Deadline,
    middleware::{InnerService, RequestResult},
    retry_after::retry_after,
};
use crate::{error::causes, metrics::Recorder};

/// Attempts per call, including the first.
const ATTEMPTS: u32 = 4;
/// The back-off between attempts, unless the server asks for more.
const DELAY: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) };

/// Retries requests that are safe to repeat.
pub(super) async fn retry(
    recorder: Recorder,
    request: Request<Body>,
    next: InnerService,
) -> RequestResult {
    let (parts, body) = request.into_parts();
    let deadline = parts.extensions.get::<Deadline>().copied();
    // A streaming body cannot be sent twice.
    let mut spare = if is_watch(&parts.uri) { None } else { body.try_clone() };
    let mut answer = next.clone().oneshot(Request::from_parts(parts.clone(), body)).await;
    for attempt in 1..ATTEMPTS {
        let (Some(body), Some(wait)) =
            (spare.take(), wait_before_retry(&parts.method, &answer, attempt))
        else {
            return answer;
        };
        if deadline.is_some_and(|Deadline(end)| Instant::now() + wait >= end) {
            return answer;
        }
        recorder.retry(&parts.method, answer.as_ref().ok().map(http::Response::status));
        drop(answer);
        sleep(wait).await;
        spare = body.try_clone();
        answer = next.clone().oneshot(Request::from_parts(parts.clone(), body)).await;
    }
    answer
}

/// Returns the wait before the next attempt, or `None` if this result is final.
fn wait_before_retry(method: &Method, answer: &RequestResult, attempt: u32) -> Option<Duration> {
    let read = matches!(*method, Method::GET | Method::HEAD);
    let asked = match answer {
        Ok(response) => {
            let asked = retry_after(response.headers(), ccm_base::clock::wall());
            let repeat = match response.status() {
                StatusCode::TOO_MANY_REQUESTS => read || asked.is_some(),
                StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => read,
                other => read && other.is_server_error() && asked.is_some(),
            };
            repeat.then_some(asked)?
        }
        Err(error) => can_repeat(error.as_ref(), read).then_some(None)?,
    };
    Some(DELAY.after(attempt).mul_f64(rand::random_range(0.5..1.0)).max(asked.unwrap_or_default()))
}

/// Returns true if a request without a response can be repeated: it was not sent, because the
/// connection failed, or it is a read and its connection broke. Anything else, such as missing
/// credentials, stays as it is.
fn can_repeat(error: &(dyn Error + 'static), read: bool) -> bool {
    causes(error).any(|cause| {
        if let Some(client) = cause.downcast_ref::<hyper_util::client::legacy::Error>() {
            client.is_connect()
        } else if let Some(http) = cause.downcast_ref::<hyper::Error>() {
            read && (http.is_incomplete_message() || http.is_closed() || http.is_canceled())
        } else if let Some(io) = cause.downcast_ref::<io::Error>() {
            match io.kind() {
                io::ErrorKind::ConnectionRefused => true,
                io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::UnexpectedEof
                | io::ErrorKind::TimedOut => read,
                _ => false,
            }
        } else {
            false
        }
    })
}
