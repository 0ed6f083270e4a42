//! Rate limits for requests to the API server.

use std::time::Duration;

use ccm_cloud::Priority;
use ccm_kube::client::{RequestClass, RequestLimiter};
use futures::future::BoxFuture;

use super::{LimitMetrics, Rate, TokenBucket, Tuning, metrics::ClassLabel};

/// The rates per request class. Reads, writes and events have separate buckets; watches and
/// Lease requests have no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ApiRates {
    /// Lists and single reads.
    pub read: Rate,
    /// Patches and all other changes of objects.
    pub write: Rate,
    /// Events.
    pub event: Rate,
}

impl ApiRates {
    /// The same rate for each class.
    pub const fn each(rate: Rate) -> Self {
        Self { read: rate, write: rate, event: rate }
    }
}

/// One bucket per class of API server request. Clones share the buckets.
#[derive(Clone, Debug)]
pub struct ApiLimits {
    read: TokenBucket,
    write: TokenBucket,
    event: TokenBucket,
}

impl ApiLimits {
    /// Full buckets with these rates.
    pub fn new(rates: ApiRates, metrics: &LimitMetrics) -> Self {
        let bucket = |class, rate| metrics.bucket(("apiserver", class), rate, Tuning::default());
        Self {
            read: bucket(ClassLabel::Read, rates.read),
            write: bucket(ClassLabel::Write, rates.write),
            event: bucket(ClassLabel::Event, rates.event),
        }
    }

    /// Changes the rates, also for waiting requests.
    pub fn configure(&self, rates: ApiRates) {
        self.read.configure(rates.read);
        self.write.configure(rates.write);
        self.event.configure(rates.event);
    }

    fn bucket(&self, class: RequestClass) -> &TokenBucket {
        match class {
            RequestClass::Read => &self.read,
            RequestClass::Write => &self.write,
            RequestClass::Event => &self.event,
        }
    }
}

impl RequestLimiter for ApiLimits {
    fn admit(&self, class: RequestClass) -> BoxFuture<'static, ()> {
        let bucket = self.bucket(class).clone();
        Box::pin(async move {
            bucket.admit(Priority::Waiting).await;
        })
    }

    fn answered(&self, class: RequestClass, status: Option<u16>, retry_after: Option<Duration>) {
        let bucket = self.bucket(class);
        match status {
            Some(429) => bucket.refused(),
            Some(..500) => bucket.succeeded(),
            Some(_) | None => {}
        }
        if let Some(time) = retry_after.filter(|_| matches!(status, Some(429 | 500..))) {
            let was_open = bucket.close_for(time);
            if was_open {
                tracing::warn!(
                    ?class,
                    status,
                    seconds = time.as_secs_f64(),
                    "the API server asks for a pause"
                );
            }
        }
    }
}
