//! A few more attempts, where a request can be repeated safely and time is left.
//!
//! kube's own retry would repeat anything 15 times: six minutes until an error
//! surfaces, writes and watches included. Here at most four attempts are made, only
//! within the call's deadline, and each repetition is counted.
//!
//! | request | repeated after |
//! |---|---|
//! | GET | 429, 503, 504, any 5xx with `Retry-After`; no connection; a connection that broke |
//! | others | 429 with `Retry-After`; no connection, so that nothing was sent |
//! | watch | nothing: the informer decides how to go on |
//!
//! A write whose connection broke may have been done. Its caller plans anew.

use std::{error::Error, io, time::Duration};

use ccm_base::Backoff;
use http::{Method, Request, StatusCode};
use kube::client::Body;
use tokio::time::{Instant, sleep};

use super::{
    class::is_watch,
    deadline::Deadline,
    middleware::{Answer, Middleware, Next, send},
    retry_after::retry_after,
};
use crate::{error::causes, metrics::Recorder};

/// Attempts per call, the first included.
const ATTEMPTS: u32 = 4;
/// Between two attempts, unless the server asks for more.
const DELAY: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) };

/// Sends requests again that can be.
pub(super) struct Retry {
    pub(super) recorder: Recorder,
}

impl Middleware for Retry {
    async fn handle(&self, request: Request<Body>, next: Next) -> Answer {
        let (parts, body) = request.into_parts();
        let deadline = parts.extensions.get::<Deadline>().copied();
        // A body that streams cannot be sent twice.
        let mut spare = if is_watch(&parts.uri) { None } else { body.try_clone() };
        let mut answer = send(&next, Request::from_parts(parts.clone(), body)).await;
        for attempt in 1..ATTEMPTS {
            let (Some(body), Some(wait)) =
                (spare.take(), wait_before_retry(&parts.method, &answer, attempt))
            else {
                return answer;
            };
            if deadline
                .is_some_and(|Deadline(end)| end.saturating_duration_since(Instant::now()) <= wait)
            {
                return answer;
            }
            self.recorder.retry(&parts.method, answer.as_ref().ok().map(http::Response::status));
            drop(answer);
            sleep(wait).await;
            spare = body.try_clone();
            answer = send(&next, Request::from_parts(parts.clone(), body)).await;
        }
        answer
    }
}

/// How long to wait before sending again, or `None` if this answer stands.
fn wait_before_retry(method: &Method, answer: &Answer, attempt: u32) -> Option<Duration> {
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
        Err(error) => match fault(error.as_ref()) {
            Fault::NeverSent => None,
            Fault::Broken if read => None,
            Fault::Broken | Fault::Other => return None,
        },
    };
    Some(DELAY.after(attempt).mul_f64(rand::random_range(0.5..1.0)).max(asked.unwrap_or_default()))
}

/// How a request failed that got no answer.
enum Fault {
    /// There was no connection to send it on.
    NeverSent,
    /// The connection broke; the request may have been handled or not.
    Broken,
    /// Anything else, such as missing credentials.
    Other,
}

fn fault(error: &(dyn Error + 'static)) -> Fault {
    let mut broken = false;
    for cause in causes(error) {
        if let Some(client) = cause.downcast_ref::<hyper_util::client::legacy::Error>() {
            if client.is_connect() {
                return Fault::NeverSent;
            }
        } else if let Some(http) = cause.downcast_ref::<hyper::Error>() {
            broken |= http.is_incomplete_message() || http.is_closed() || http.is_canceled();
        } else if let Some(io) = cause.downcast_ref::<io::Error>() {
            match io.kind() {
                io::ErrorKind::ConnectionRefused => return Fault::NeverSent,
                io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::UnexpectedEof
                | io::ErrorKind::TimedOut => broken = true,
                _ => {}
            }
        }
    }
    if broken { Fault::Broken } else { Fault::Other }
}
