//! `ccm_cloud_*`.

use std::time::Duration;

use ccm_cloud::{CallClass, CallReport, ErrorKind};
use ccm_metrics::{Counter, Family, Histogram, label, metrics};
use strum::{IntoStaticStr, VariantNames};

use crate::metrics::REQUEST_SECONDS;

/// The result of a successful request.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum Done {
    Success,
}

/// The reason for which a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(super) enum RefusalLabel {
    /// The rate limit has no token for it in time.
    RateLimit,
    /// The cloud requested a pause that is longer than the request's time limit.
    Closed,
    /// The term of leadership is too short for it.
    Leadership,
}

label!(Done, RefusalLabel);

type Api = &'static str;
type Operation = &'static str;

metrics! {
    pub(super) struct GateMetrics {
        /// Requests that were sent to the cloud, by result; each page and each retry counts
        [ALPHA] ccm_cloud_requests { api, operation, result } => requests:
            Family<Counter, (Api, Operation, Result<Done, ErrorKind>)>;
        /// Items of requests for many nodes, load balancers or routes, by the result of each item;
        /// only for providers that answer such requests item by item
        [ALPHA] ccm_cloud_items { api, operation, result } => items:
            Family<Counter, (Api, Operation, Result<Done, ErrorKind>)>;
        /// Duration of requests to the cloud until the end of the response, without waiting for the rate limit
        [ALPHA] ccm_cloud_request_duration_seconds { api, operation } => durations:
            Family<Histogram, (Api, Operation)>, bounds REQUEST_SECONDS;
        /// How long requests to the cloud waited for the rate limit, reads and writes together
        [ALPHA] ccm_cloud_limiter_wait_seconds { api } => waits: Family<Histogram, Api>,
            bounds REQUEST_SECONDS;
        /// Requests to the cloud that were not sent, by reason: not admitted before the deadline (rate_limit),
        /// Retry-After pause (closed), remaining term too short (leadership)
        [ALPHA] ccm_cloud_requests_refused { api, reason } => refused:
            Family<Counter, (Api, RefusalLabel)>;
    }
}

impl GateMetrics {
    pub(super) fn waited(&self, class: CallClass, waited: Duration) {
        self.waits.series(class.service).observe(waited.as_secs_f64());
    }

    pub(super) fn refused(&self, class: CallClass, reason: RefusalLabel) {
        self.refused.series((class.service, reason)).inc();
    }

    pub(super) fn items(&self, class: CallClass, results: &[Option<ErrorKind>]) {
        let CallClass { service: api, operation, .. } = class;
        if !self.items.is_there((api, operation, Ok(Done::Success))) {
            for kind in ErrorKind::ALL {
                drop(self.items.series((api, operation, Err(*kind))));
            }
            drop(self.items.series((api, operation, Ok(Done::Success))));
        }
        for result in results {
            self.items.series((api, operation, result.map_or(Ok(Done::Success), Err))).inc();
        }
    }

    pub(super) fn count_answer(&self, class: CallClass, report: &CallReport) {
        let CallClass { service: api, operation, .. } = class;
        // All error series are created at the first call of an operation, because `rate` misses the
        // first error of a series that starts with it.
        if !self.durations.is_there((api, operation)) {
            for kind in ErrorKind::ALL {
                drop(self.requests.series((api, operation, Err(*kind))));
            }
        }
        let result = report.error.map_or(Ok(Done::Success), Err);
        self.requests.series((api, operation, result)).inc();
        self.durations.series((api, operation)).observe(report.took.as_secs_f64());
    }
}
