//! Turns a response other than 2xx into an error with the server's message.
//!
//! kube ignores the status of a watch's response: it parses an error body as events, line
//! by line. A refused watch looks like a stream of garbage, and a watch answered with 410
//! is restarted from the same version without end. For other requests kube reads error
//! bodies of any size and logs those that it cannot parse. This layer handles all of them:
//! it reads a bounded number of bytes, accepts only a Kubernetes `Status`, and logs no
//! bodies.

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::{
    client::Body,
    core::{Status, response::StatusDetails},
};
use tower::ServiceExt as _;

use super::{
    ResponseBody,
    class::is_watch,
    denials::Denials,
    middleware::{InnerService, RequestResult},
    retry_after::retry_after,
};

/// The longest error body that is read, in bytes. A `Status` has a few hundred.
const BODY_LIMIT: usize = 64 * 1024;

/// Turns refusals into errors; with `watches_only`, only refusals of watches: a layer around the
/// client for leases must see a 404 as a response.
pub(super) async fn refuse(
    (watches_only, denials): (bool, Denials),
    request: Request<Body>,
    next: InnerService,
) -> RequestResult {
    let passed_on = watches_only && !is_watch(request.uri());
    let response = next.oneshot(request).await?;
    if passed_on || response.status().is_success() {
        return Ok(response);
    }
    let status = refusal(response).await;
    denials.refused(&status);
    Err(Box::new(kube::Error::Api(Box::new(status))))
}

/// Returns the server's explanation of a refused request.
async fn refusal(response: Response<ResponseBody>) -> Status {
    let (head, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    // If the body breaks off or is too long, the status code still counts.
    while let Some(Ok(frame)) = body.frame().await
        && bytes.len() <= BODY_LIMIT
    {
        bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
    }
    let mut status = parse(&bytes).unwrap_or_else(|| unexplained(head.status));
    status.code = head.status.as_u16();
    if let Some(wait) = retry_after(&head.headers, ccm_base::clock::wall()) {
        let seconds = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX).max(1);
        let details = status.details.get_or_insert_with(no_details);
        details.retry_after_seconds = details.retry_after_seconds.max(seconds);
    }
    status
}

/// Returns the body, if it is a Kubernetes `Status`, on one line or several.
fn parse(body: &[u8]) -> Option<Status> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    (value.get("kind")?.as_str()? == "Status").then(|| serde_json::from_value(value).ok())?
}

/// Returns the status for a response from a proxy or load balancer, which is not an API server.
fn unexplained(code: StatusCode) -> Status {
    Status::failure(&format!("{code} without a Status of the API server"), "")
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
