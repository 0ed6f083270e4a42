//! The interface of the rate limiter.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};

use super::RequestClass;

/// Limits the rate of requests to the API server.
pub trait RequestLimiter: Send + Sync + 'static {
    /// Waits until one request of this class may be sent. Called once per attempt; a cancelled
    /// caller drops the future.
    fn admit(&self, class: RequestClass) -> BoxFuture<'static, ()>;

    /// Reports the result of an admitted attempt, once per attempt. `status` is `None` without a
    /// response; `retry_after` is the wait that the server asked for.
    fn report_answer(
        &self,
        class: RequestClass,
        status: Option<u16>,
        retry_after: Option<Duration>,
    );
}

/// Admits everything immediately.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl RequestLimiter for Unlimited {
    fn admit(&self, _class: RequestClass) -> BoxFuture<'static, ()> {
        futures::future::ready(()).boxed()
    }

    fn report_answer(
        &self,
        _class: RequestClass,
        _status: Option<u16>,
        _retry_after: Option<Duration>,
    ) {
    }
}
