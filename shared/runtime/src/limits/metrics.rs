//! `ccm_limiter_*`.

use std::{
    fmt::{self, Debug},
    sync::Arc,
};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{family::Family, histogram::Histogram},
};

use super::{Rate, TokenBucket, Tuning, token_bucket::Standing};
use crate::metrics::{Column, Metrics, REQUEST_SECONDS, encode_counters, encode_gauges};

/// What kind of request a bucket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ClassLabel {
    Read,
    Write,
    Event,
}

impl EncodeLabelValue for ClassLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        let text = match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Event => "event",
        };
        text.encode(encoder)
    }
}

/// Which bucket: `service` is `apiserver`, or the name of a cloud's service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct LimiterLabels {
    pub(super) service: &'static str,
    pub(super) class: ClassLabel,
}

fn histogram() -> Histogram {
    Histogram::new(REQUEST_SECONDS)
}

/// The metrics of all limits of a process.
#[derive(Clone, Debug)]
pub struct LimitMetrics {
    waits: Family<LimiterLabels, Histogram, fn() -> Histogram>,
    buckets: Arc<Mutex<Vec<(LimiterLabels, TokenBucket)>>>,
}

impl LimitMetrics {
    /// Registers the metrics; to be called once per registry.
    pub fn new(metrics: &Metrics) -> Self {
        let this = Self { waits: Family::new_with_constructor(histogram), buckets: Arc::default() };
        metrics.register(
            "ccm_limiter_wait_seconds",
            "[ALPHA] How long requests waited until the limit let them through",
            this.waits.clone(),
        );
        metrics.collect(this.clone());
        this
    }

    /// A bucket whose metrics are these. It is reported for as long as the process runs.
    pub(super) fn bucket(&self, labels: LimiterLabels, rate: Rate, tuning: Tuning) -> TokenBucket {
        let bucket = TokenBucket::new(rate, tuning, self.waits.get_or_create_owned(&labels));
        self.buckets.lock().push((labels, bucket.clone()));
        bucket
    }
}

impl Collector for LimitMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let standings: Vec<(LimiterLabels, Standing)> = self
            .buckets
            .lock()
            .iter()
            .map(|(labels, bucket)| (*labels, bucket.standing()))
            .collect();
        let gauges: [Column<Standing, f64>; 6] = [
            (
                "ccm_limiter_rate",
                "[ALPHA] Requests per second that are let through now, lower than configured after refusals; +Inf for no limit.",
                |standing| standing.per_second.unwrap_or(f64::INFINITY),
            ),
            (
                "ccm_limiter_configured_rate",
                "[ALPHA] Requests per second that the settings in force allow; +Inf for no limit.",
                |standing| standing.configured.map_or(f64::INFINITY, |rate| rate.per_second),
            ),
            (
                "ccm_limiter_burst",
                "[ALPHA] Requests at once after a quiet time that the settings in force allow; +Inf for no limit.",
                |standing| standing.configured.map_or(f64::INFINITY, |rate| rate.burst),
            ),
            (
                "ccm_limiter_tokens",
                "[ALPHA] Requests that could start now without waiting.",
                |standing| standing.tokens,
            ),
            ("ccm_limiter_waiting", "[ALPHA] Requests that wait for their turn now.", |standing| {
                standing.waiting as f64
            }),
            (
                "ccm_limiter_closed_seconds",
                "[ALPHA] For how much longer the other side asked to be left alone; 0 if it did not.",
                |standing| standing.closed_for.as_secs_f64(),
            ),
        ];
        for (name, help, value) in gauges {
            encode_gauges(
                &mut encoder,
                (name, help),
                standings.iter().map(|(labels, at)| (*labels, value(at))),
            )?;
        }
        encode_counters(
            &mut encoder,
            ("ccm_limiter_throttled", "[ALPHA] Requests that the other side refused as too many."),
            standings.iter().map(|(labels, at)| (*labels, at.throttled)),
        )
    }
}
