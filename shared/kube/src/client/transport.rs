//! The bottom of the stack: sends a request over a pooled connection.

use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::{
    client::legacy::{Client, connect::capture_connection},
    rt::{TokioExecutor, TokioTimer},
};
use kube::client::Body;
use tower::{BoxError, service_fn};

use super::{connector::Connector, middleware::Next};

/// How long an idle connection is kept. Shorter than what load balancers and
/// firewalls on the way usually grant, so that we close it and not they.
const IDLE: Duration = Duration::from_mins(1);

/// Sends requests over connections of its own, at most `idle` of which are kept
/// while not in use.
///
/// A connection on which the credentials were refused is not used again: a client
/// certificate belongs to the connection, so that a renewed one needs a new one.
pub(super) fn transport(connector: Connector, idle: usize) -> Next {
    let client = Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(idle)
        .build::<_, Body>(connector);
    Next::new(service_fn(move |mut request: Request<Body>| {
        let client = client.clone();
        async move {
            let connection = capture_connection(&mut request);
            let response = client.request(request).await?;
            if response.status() == StatusCode::UNAUTHORIZED
                && let Some(connection) = connection.connection_metadata().as_ref()
            {
                connection.poison();
            }
            Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()))
        }
    }))
}
