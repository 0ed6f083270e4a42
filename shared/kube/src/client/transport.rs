//! The bottom of the stack: sends a request over a pooled connection.

use ccm_net::{Connector, pool};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::connect::capture_connection;
use kube::client::Body;
use tower::{BoxError, service_fn};

use super::middleware::InnerService;

/// The server gave no response.
#[derive(Debug, thiserror::Error)]
#[error("{server}")]
struct Unanswered {
    server: String,
    source: hyper_util::client::legacy::Error,
}

/// Sends requests over its own connections, of which at most `idle` are kept while unused.
///
/// A connection on which the credentials were refused is not reused: a client certificate
/// belongs to its connection, so a renewed certificate needs a new one.
pub(super) fn transport(connector: Connector, idle: usize) -> InnerService {
    let client = pool::<_, Body>(connector, idle);
    InnerService::new(service_fn(move |mut request: Request<Body>| {
        let client = client.clone();
        async move {
            let connection = capture_connection(&mut request);
            let server = request.uri().authority().map(ToString::to_string);
            let unanswered = |source| Unanswered { server: server.unwrap_or_default(), source };
            let response = client.request(request).await.map_err(unanswered)?;
            if response.status() == StatusCode::UNAUTHORIZED
                && let Some(connection) = connection.connection_metadata().as_ref()
            {
                connection.poison();
            }
            Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()))
        }
    }))
}
