//! Metrics under the names that dashboards for OpenStack's own cloud provider have.

use std::time::Duration;

use ccm_cloud::MetricsSink;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

/// Upstream's bounds, in seconds.
const SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    request: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RenewalLabels {
    result: &'static str,
}

/// How a login ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// With a token.
    Done,
    /// Keystone does not accept the credentials.
    Refused,
    /// Keystone did not answer as it should.
    Failed,
}

impl Renewal {
    const ALL: [Self; 3] = [Self::Done, Self::Refused, Self::Failed];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "ok",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// The metrics. Clones are the same metrics.
#[derive(Clone, Debug)]
pub(crate) struct OpenStackMetrics {
    requests: Family<RequestLabels, Counter>,
    errors: Family<RequestLabels, Counter>,
    seconds: Family<RequestLabels, Histogram, fn() -> Histogram>,
    renewals: Family<RenewalLabels, Counter>,
    refused: Gauge,
    configuration_refused: Gauge,
}

impl Default for OpenStackMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            errors: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            renewals: Family::default(),
            refused: Gauge::default(),
            configuration_refused: Gauge::default(),
        }
    }
}

impl OpenStackMetrics {
    /// Shows them. Once per process.
    pub(crate) fn register(&self, sink: &dyn MetricsSink) {
        sink.add(&mut |registry| {
            registry.register(
                "openstack_api_requests",
                "[ALPHA] HTTP requests to OpenStack, logins and repetitions included",
                self.requests.clone(),
            );
            registry.register(
                "openstack_api_request_errors",
                "[ALPHA] HTTP requests to OpenStack without a good answer, by request",
                self.errors.clone(),
            );
            registry.register(
                "openstack_api_request_duration_seconds",
                "[ALPHA] Time from sending an HTTP request to the end of OpenStack's answer",
                self.seconds.clone(),
            );
            registry.register(
                "openstack_token_renewals",
                "[ALPHA] Logins at Keystone by result: ok, refused or failed",
                self.renewals.clone(),
            );
            registry.register(
                "openstack_credentials_refused",
                "[ALPHA] Whether Keystone refused the credentials at the last login: 1 if so",
                self.refused.clone(),
            );
            registry.register(
                "openstack_configuration_refused",
                "[ALPHA] Whether a changed cloud configuration is not used: 1 if so",
                self.configuration_refused.clone(),
            );
        });
    }

    /// One series of everything, for the reference of the metrics.
    pub(crate) fn specimens(&self) {
        self.request("server_list", Duration::ZERO, false);
        for result in Renewal::ALL {
            self.renewal(result);
        }
    }

    /// One request on the wire has ended.
    pub(crate) fn request(&self, request: &'static str, took: Duration, failed: bool) {
        let labels = RequestLabels { request };
        self.requests.get_or_create(&labels).inc();
        self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
        let errors = self.errors.get_or_create(&labels);
        if failed {
            errors.inc();
        }
    }

    /// A changed configuration was tried.
    pub(crate) fn configuration(&self, is_used: bool) {
        self.configuration_refused.set(i64::from(!is_used));
    }

    /// A login of the credentials in use has ended.
    pub(crate) fn renewal(&self, result: Renewal) {
        self.renewals.get_or_create(&RenewalLabels { result: result.as_str() }).inc();
        match result {
            Renewal::Done => {
                self.refused.set(0);
            }
            Renewal::Refused => {
                self.refused.set(1);
            }
            // Says nothing about the credentials.
            Renewal::Failed => {}
        }
    }
}
