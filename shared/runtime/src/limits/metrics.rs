//! `ccm_limiter_*`.

use std::collections::BTreeMap;

use ccm_metrics::{Family, Histogram, LabelSet as _, Row, computed, metrics};
use tokio::time::Instant;

use super::{Key, TokenBucket, bucket::Bucket};
use crate::metrics::REQUEST_SECONDS;

metrics! {
    pub(super) struct Waits {
        /// How long requests waited for the rate limit
        [ALPHA] ccm_limiter_wait_seconds { api, class } => seconds: Family<Histogram, Key>,
            bounds REQUEST_SECONDS;
    }
}

impl Waits {
    pub(super) fn histogram(&self, key: Key) -> Histogram {
        self.seconds.series(key)
    }
}

/// A bucket and the number of its waiting requests.
type Snapshot = (Bucket, usize);

computed! {
    pub(super) static BUCKETS: Snapshot { api, class } = {
        /// Current rate limit in requests per second, lower than configured after throttled requests; +Inf for no
        /// limit
        [ALPHA] Gauge ccm_limiter_rate = |(bucket, _)| bucket.in_force().unwrap_or(f64::INFINITY);
        /// Configured rate limit in requests per second; +Inf for no limit
        [ALPHA] Gauge ccm_limiter_configured_rate =
            |(bucket, _)| bucket.configured().map_or(f64::INFINITY, |(per_second, _)| per_second);
        /// Configured burst; +Inf for no limit
        [ALPHA] Gauge ccm_limiter_burst = |(bucket, _)| bucket.configured().map_or(f64::INFINITY, |(_, burst)| burst);
        /// Requests that could be sent now without waiting
        [ALPHA] Gauge ccm_limiter_tokens = |(bucket, _)| bucket.clone().tokens(Instant::now());
        /// Requests that are waiting for the rate limit now
        [ALPHA] Gauge ccm_limiter_waiting = |(_, waiting)| *waiting as f64;
        /// Remaining seconds of a Retry-After pause; 0 without one
        [ALPHA] Gauge ccm_limiter_closed_seconds =
            |(bucket, _)| bucket.closed_for(Instant::now()).unwrap_or_default().as_secs_f64();
        /// Requests that were throttled by the server
        [ALPHA] Counter ccm_limiter_throttled = |(bucket, _)| bucket.throttled;
    }
}

pub(super) fn rows(buckets: &BTreeMap<Key, TokenBucket>) -> Vec<Row<Snapshot>> {
    buckets.iter().map(|(key, bucket)| (key.texts(), bucket.snapshot())).collect()
}
