//! The interface of the rate limiter.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};

use super::RequestClass;

/// Admits requests at the rate that the API server can take.
pub trait RequestLimiter: Send + Sync + 'static {
    /// Waits until one request of this class may be sent. Called once per attempt; a
    /// caller that gives up drops the future.
    fn admit(&self, class: RequestClass) -> BoxFuture<'static, ()>;

    /// Reports how an admitted attempt ended, once per attempt. `status` is `None` if no
    /// answer came; `retry_after` is what the server asked for.
    fn answered(&self, class: RequestClass, status: Option<u16>, retry_after: Option<Duration>);
}

/// Admits everything at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl RequestLimiter for Unlimited {
    fn admit(&self, _class: RequestClass) -> BoxFuture<'static, ()> {
        futures::future::ready(()).boxed()
    }

    fn answered(&self, _class: RequestClass, _status: Option<u16>, _retry_after: Option<Duration>) {
    }
}
