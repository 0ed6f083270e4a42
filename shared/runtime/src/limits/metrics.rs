//! `ccm_limiter_*`.

use std::sync::Arc;

use ccm_metrics::{Family, Histogram, LabelSet as _, Row, computed, label, metrics};
use parking_lot::Mutex;
use strum::{IntoStaticStr, VariantNames};

use super::{Rate, TokenBucket, Tuning, token_bucket::Standing};
use crate::metrics::{Metrics, REQUEST_SECONDS};

/// The request class of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(super) enum ClassLabel {
    Read,
    Write,
    Event,
}

label!(ClassLabel);

/// Identifies a bucket: the service is `apiserver`, or the name of a cloud service.
pub(super) type LimiterLabels = (&'static str, ClassLabel);

metrics! {
    struct Waits {
        /// How long requests waited until the limit let them through
        [ALPHA] ccm_limiter_wait_seconds { service, class } => seconds: Family<Histogram, LimiterLabels>,
            bounds REQUEST_SECONDS;
    }
}

computed! {
    static BUCKETS: Standing { service, class } = {
        /// Requests per second that are let through now, lower than configured after refusals; +Inf for no limit
        [ALPHA] Gauge ccm_limiter_rate = |at| at.per_second.unwrap_or(f64::INFINITY);
        /// Requests per second that the settings in force allow; +Inf for no limit
        [ALPHA] Gauge ccm_limiter_configured_rate =
            |at| at.configured.map_or(f64::INFINITY, |rate| rate.per_second);
        /// Requests at once after a quiet time that the settings in force allow; +Inf for no limit
        [ALPHA] Gauge ccm_limiter_burst = |at| at.configured.map_or(f64::INFINITY, |rate| rate.burst);
        /// Requests that could start now without waiting
        [ALPHA] Gauge ccm_limiter_tokens = |at| at.tokens;
        /// Requests that wait for their turn now
        [ALPHA] Gauge ccm_limiter_waiting = |at| at.waiting as f64;
        /// For how much longer the other side asked to be left alone; 0 if it did not
        [ALPHA] Gauge ccm_limiter_closed_seconds = |at| at.closed_for.as_secs_f64();
        /// Requests that the other side refused as too many
        [ALPHA] Counter ccm_limiter_throttled = |at| at.throttled;
    }
}

/// The metrics of all limits of a process.
#[derive(Clone, Debug)]
pub struct LimitMetrics {
    waits: Waits,
    buckets: Arc<Mutex<Vec<(LimiterLabels, TokenBucket)>>>,
}

impl LimitMetrics {
    /// Registers the metrics; to be called once per registry.
    pub fn new(metrics: &Metrics) -> Self {
        let this = Self { waits: Waits::new(metrics), buckets: Arc::default() };
        let all = this.clone();
        metrics.collect(BUCKETS.collector(move || all.standings()));
        this
    }

    /// A bucket with these metrics. It is reported until the process ends.
    pub(super) fn bucket(&self, labels: LimiterLabels, rate: Rate, tuning: Tuning) -> TokenBucket {
        let bucket = TokenBucket::new(rate, tuning, self.waits.seconds.of(labels));
        self.buckets.lock().push((labels, bucket.clone()));
        bucket
    }

    fn standings(&self) -> Vec<Row<Standing>> {
        let buckets = self.buckets.lock();
        buckets.iter().map(|(labels, bucket)| (labels.texts(), bucket.standing())).collect()
    }
}
