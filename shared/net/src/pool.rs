//! Keeps connections for the next request.

use std::time::Duration;

use http_body::Body;
use hyper_util::{
    client::legacy::{Client, connect::Connect},
    rt::{TokioExecutor, TokioTimer},
};

/// How long an idle connection is kept. This is shorter than the usual timeout of load balancers
/// and firewalls on the path, so that this side closes it first.
const IDLE: Duration = Duration::from_mins(1);
/// A silent HTTP/2 connection is probed after this time.
const PING_AFTER: Duration = Duration::from_secs(30);
/// The time limit of the answer to a probe.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns a client that keeps at most `idle` connections to each host while they are unused.
/// Clones share their connections.
pub fn pool<C, B>(connector: C, idle: usize) -> Client<C, B>
where
    C: Connect + Clone,
    B: Body + Send,
    B::Data: Send,
{
    Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(idle)
        .http2_keep_alive_interval(PING_AFTER)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build(connector)
}
