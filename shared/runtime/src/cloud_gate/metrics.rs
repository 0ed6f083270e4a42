//! `ccm_cloud_*`.

use std::{fmt, time::Duration};

use ccm_cloud::{CallClass, CallReport, ErrorKind};
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{counter::Counter, family::Family, histogram::Histogram},
};

use crate::metrics::{Metrics, REQUEST_SECONDS};

/// How a request ended: `success`, or the kind of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ResultLabel(Option<ErrorKind>);

impl EncodeLabelValue for ResultLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        self.0.map_or("success", ErrorKind::reason).encode(encoder)
    }
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RefusalLabel {
    /// The limit gives it no turn in its time.
    RateLimit,
    /// The cloud asked for a pause that lasts longer than its time.
    Closed,
    /// The term of leadership does not cover it.
    Leadership,
}

impl RefusalLabel {
    const ALL: [Self; 3] = [Self::RateLimit, Self::Closed, Self::Leadership];
}

impl EncodeLabelValue for RefusalLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        let text = match self {
            Self::RateLimit => "rate_limit",
            Self::Closed => "closed",
            Self::Leadership => "leadership",
        };
        text.encode(encoder)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    service: &'static str,
    operation: &'static str,
    result: ResultLabel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    service: &'static str,
    operation: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServiceLabels {
    service: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    service: &'static str,
    reason: RefusalLabel,
}

fn histogram() -> Histogram {
    Histogram::new(REQUEST_SECONDS)
}

#[derive(Debug)]
pub(super) struct GateMetrics {
    requests: Family<RequestLabels, Counter>,
    durations: Family<OperationLabels, Histogram, fn() -> Histogram>,
    waits: Family<ServiceLabels, Histogram, fn() -> Histogram>,
    refused: Family<RefusalLabels, Counter>,
}

impl GateMetrics {
    pub(super) fn new(metrics: &Metrics) -> Self {
        let this = Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(histogram),
            waits: Family::new_with_constructor(histogram),
            refused: Family::default(),
        };
        metrics.register(
            "ccm_cloud_requests",
            "[ALPHA] Requests that were sent to the cloud, by how they ended; each page and each repetition counts",
            this.requests.clone(),
        );
        metrics.register(
            "ccm_cloud_request_duration_seconds",
            "[ALPHA] Time from sending a request to the cloud to the end of its answer, waiting for the limit left out",
            this.durations.clone(),
        );
        metrics.register(
            "ccm_cloud_limiter_wait_seconds",
            "[ALPHA] How long requests to the cloud waited for their turn, reads and writes together",
            this.waits.clone(),
        );
        metrics.register(
            "ccm_cloud_requests_refused",
            "[ALPHA] Requests to the cloud that were not sent, by why: no turn in time (rate_limit), a pause that the cloud asked for (closed), not enough left of the term (leadership)",
            this.refused.clone(),
        );
        this
    }

    pub(super) fn specimens(&self, class: CallClass) {
        self.waited(class, Duration::ZERO);
        for reason in RefusalLabel::ALL {
            self.refused(class, reason);
        }
        for error in ErrorKind::ALL.into_iter().map(Some).chain([None]) {
            self.answered(class, &CallReport { error, retry_after: None, took: Duration::ZERO });
        }
    }

    /// Shows all results of an operation from its first call on: a series that is born
    /// with the first error hides that error from `rate`.
    fn begin(&self, service: &'static str, operation: &'static str) {
        for result in ErrorKind::ALL.map(|kind| ResultLabel(Some(kind))) {
            drop(self.requests.get_or_create(&RequestLabels { service, operation, result }));
        }
    }

    pub(super) fn waited(&self, class: CallClass, waited: Duration) {
        self.waits
            .get_or_create(&ServiceLabels { service: class.service })
            .observe(waited.as_secs_f64());
    }

    pub(super) fn refused(&self, class: CallClass, reason: RefusalLabel) {
        self.refused.get_or_create(&RefusalLabels { service: class.service, reason }).inc();
    }

    pub(super) fn answered(&self, class: CallClass, report: &CallReport) {
        let CallClass { service, operation, .. } = class;
        if self.durations.get(&OperationLabels { service, operation }).is_none() {
            self.begin(service, operation);
        }
        self.requests
            .get_or_create(&RequestLabels { service, operation, result: ResultLabel(report.error) })
            .inc();
        self.durations
            .get_or_create(&OperationLabels { service, operation })
            .observe(report.took.as_secs_f64());
    }
}
