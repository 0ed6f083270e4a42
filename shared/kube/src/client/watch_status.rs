//! An answer other than 2xx becomes an error with the server's message.
//!
//! kube does not look at the status of a watch's answer: an error body is parsed as
//! if it were events, line by line. A refused watch looks like a stream of garbage,
//! and a watch answered 410 is restarted from the same version without end. For
//! other requests kube reads error bodies of any size and logs those it does not
//! understand. This layer handles all of them: it reads a bounded number of bytes, accepts only a
//! Kubernetes `Status`, and logs nothing of a body.

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::{
    client::Body,
    core::{Status, response::StatusDetails},
};

use super::{
    ResponseBody,
    class::is_watch,
    middleware::{Answer, Middleware, Next, send},
    retry_after::retry_after,
};

/// Longest error body that is read, in bytes. A `Status` has a few hundred.
const BODY_LIMIT: usize = 64 * 1024;

/// Turns refusals into errors.
pub(super) struct Refusals {
    /// Only those of watches. For leases: a layer around that client has to see a 404
    /// as the answer that it is.
    pub(super) watches_only: bool,
}

impl Middleware for Refusals {
    async fn handle(&self, request: Request<Body>, next: Next) -> Answer {
        let passed_on = self.watches_only && !is_watch(request.uri());
        let response = send(&next, request).await?;
        if passed_on || response.status().is_success() {
            return Ok(response);
        }
        Err(Box::new(kube::Error::Api(Box::new(refusal(response).await))))
    }
}

/// What the server says about a refused request.
async fn refusal(response: Response<ResponseBody>) -> Status {
    let (head, body) = response.into_parts();
    let mut status = parse(&beginning(body).await).unwrap_or_else(|| unexplained(head.status));
    status.code = head.status.as_u16();
    if let Some(wait) = retry_after(&head.headers, ccm_base::clock::wall()) {
        let seconds = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX).max(1);
        let details = status.details.get_or_insert_with(no_details);
        details.retry_after_seconds = details.retry_after_seconds.max(seconds);
    }
    status
}

/// As much of the body as is worth reading. One that breaks off still came with a
/// status code, and that is what counts.
async fn beginning(mut body: ResponseBody) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        if bytes.len() > BODY_LIMIT {
            break;
        }
    }
    bytes
}

/// The body, if it is a Kubernetes `Status`, on one line or many.
fn parse(body: &[u8]) -> Option<Status> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    (value.get("kind")?.as_str()? == "Status").then(|| serde_json::from_value(value).ok())?
}

/// For answers of something that is no API server: a proxy, a load balancer.
fn unexplained(code: StatusCode) -> Status {
    Status::failure(&format!("{code} without an explanation by an API server"), "")
}

fn no_details() -> StatusDetails {
    StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}
