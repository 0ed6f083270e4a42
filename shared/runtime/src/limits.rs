//! Request rate limits: for the API server, and for each service of a cloud.
//!
//! A [`TokenBucket`] is one limit. Its rate and burst can change while requests wait. Waiters
//! are served in order of arrival, urgent ones before routine ones (which get a share all the
//! same). The server influences the rate: a `Retry-After` closes the bucket for that time, a
//! 429 halves its rate, and success restores the rate over a minute.
//!
//! [`Limits`] maps a request to its bucket. `bucket` is pure arithmetic without a clock;
//! `token_bucket` waits and wakes.

mod bucket;
mod metrics;
mod token_bucket;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_cloud::Priority;
use ccm_kube::client::{RequestClass, RequestLimiter};
use futures::future::BoxFuture;
use parking_lot::Mutex;

pub(crate) use self::bucket::MAX_CLOSED;
use self::metrics::{BUCKETS, Waits};
pub use self::{
    bucket::Rate,
    token_bucket::{Refused, TokenBucket},
};
use crate::metrics::Metrics;

/// The service name of the API server's buckets.
const API_SERVER: &str = "apiserver";

/// The rates of all buckets. Watches and Lease requests have no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Reads from the API server, and separately writes to it.
    pub requests: Rate,
    /// Events.
    pub events: Rate,
    /// Reads from each cloud service.
    pub cloud_reads: Rate,
    /// Writes to each cloud service.
    pub cloud_writes: Rate,
}

impl Rates {
    /// Returns the same rate for all buckets.
    pub const fn each(rate: Rate) -> Self {
        Self { requests: rate, events: rate, cloud_reads: rate, cloud_writes: rate }
    }

    fn rate(&self, (service, class): Key) -> Rate {
        match (service, class) {
            (API_SERVER, RequestClass::Event) => self.events,
            (API_SERVER, _) => self.requests,
            (_, RequestClass::Write) => self.cloud_writes,
            _ => self.cloud_reads,
        }
    }
}

/// A bucket: the service, which is the API server or one of a cloud, and the class.
type Key = (&'static str, RequestClass);

/// All limits of a process: a bucket for each service and class. Clones share them.
#[derive(Clone, Debug)]
pub struct Limits {
    state: Arc<Mutex<LimitsState>>,
    waits: Waits,
}

#[derive(Debug)]
struct LimitsState {
    rates: Rates,
    buckets: BTreeMap<Key, TokenBucket>,
}

impl Limits {
    /// Creates full buckets with these rates. Registers their metrics, so create it once per
    /// registry.
    pub fn new(rates: Rates, metrics: &Metrics) -> Self {
        let state = Arc::new(Mutex::new(LimitsState { rates, buckets: BTreeMap::new() }));
        let limits = Self { state, waits: Waits::new(metrics) };
        for class in [RequestClass::Read, RequestClass::Write, RequestClass::Event] {
            limits.bucket(API_SERVER, class);
        }
        let all = limits.clone();
        metrics.collect(BUCKETS.collector(move || metrics::rows(&all.state.lock().buckets)));
        limits
    }

    /// Changes all rates, also for waiting requests.
    pub fn configure(&self, rates: Rates) {
        let mut state = self.state.lock();
        state.rates = rates;
        for (key, bucket) in &state.buckets {
            bucket.configure(rates.rate(*key));
        }
    }

    /// Returns the bucket for this service and class, created at its first request.
    pub fn bucket(&self, service: &'static str, class: RequestClass) -> TokenBucket {
        let key = (service, class);
        let mut state = self.state.lock();
        let rate = state.rates.rate(key);
        let new = || TokenBucket::new(rate, self.waits.histogram(key));
        state.buckets.entry(key).or_insert_with(new).clone()
    }
}

impl RequestLimiter for Limits {
    fn admit(&self, class: RequestClass) -> BoxFuture<'static, ()> {
        let bucket = self.bucket(API_SERVER, class);
        Box::pin(async move {
            bucket.admit(Priority::Waiting).await;
        })
    }

    fn report_answer(
        &self,
        class: RequestClass,
        status: Option<u16>,
        retry_after: Option<Duration>,
    ) {
        let bucket = self.bucket(API_SERVER, class);
        match status {
            Some(429) => bucket.refused(),
            Some(..500) => bucket.succeeded(),
            Some(_) | None => {}
        }
        if let Some(time) = retry_after.filter(|_| matches!(status, Some(429 | 500..)))
            && bucket.close_for(time)
        {
            let seconds = time.as_secs_f64();
            tracing::warn!(?class, status, seconds, "Retry-After of the API server");
        }
    }
}

#[cfg(test)]
mod tests;
