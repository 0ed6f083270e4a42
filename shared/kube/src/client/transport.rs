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

/// How long an idle connection is kept. Shorter than the usual timeout of load balancers
/// and firewalls on the path, so that this side closes it first.
const IDLE: Duration = Duration::from_mins(1);

/// Sends requests over its own connections, of which at most `idle` are kept while unused.
///
/// A connection on which the credentials were refused is not reused: a client certificate
/// belongs to its connection, so a renewed certificate needs a new one.
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
