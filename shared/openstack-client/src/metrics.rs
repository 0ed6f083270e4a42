//! Metrics with the names of the Go cloud provider for OpenStack, for its dashboards.

use std::time::Duration;

use ccm_metrics::{Counter, Family, Gauge, Histogram, label, metrics};
use strum::{IntoStaticStr, VariantNames};

/// Upstream's bounds, in seconds.
const SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The result of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Renewal {
    /// Keystone gave a token.
    #[strum(serialize = "ok")]
    Done,
    /// Keystone does not accept the credentials.
    Refused,
    /// Keystone did not answer as it should.
    Failed,
}

label!(Renewal);

/// The name of a request, a constant of the provider.
type Request = &'static str;

metrics! {
    /// The metrics of requests and logins, and of the configuration file.
    pub struct OpenStackMetrics {
        /// HTTP requests to OpenStack, including logins and retries
        [ALPHA] openstack_api_requests { request } => requests: Family<Counter, Request>;
        /// Failed HTTP requests to OpenStack, by request
        [ALPHA] openstack_api_request_errors { request } => errors: Family<Counter, Request>;
        /// Duration of HTTP requests to OpenStack, until the end of the response
        [ALPHA] openstack_api_request_duration_seconds { request } => seconds: Family<Histogram, Request>,
            bounds SECONDS;
        /// Logins at Keystone, by result: ok, refused or failed
        [ALPHA] openstack_token_renewals { result } => renewals: Family<Counter, Renewal>;
        /// 1 if Keystone refused the credentials at the last login, 0 otherwise
        [ALPHA] openstack_credentials_refused => refused: Gauge;
        /// 1 if a changed cloud configuration is rejected and the old one is in use, 0 otherwise
        [ALPHA] openstack_configuration_refused => configuration_refused: Gauge;
    }
}

impl OpenStackMetrics {
    /// Counts one request on the wire that has ended.
    pub fn request(&self, request: &'static str, took: Duration, failed: bool) {
        self.requests.series(request).inc();
        self.seconds.series(request).observe(took.as_secs_f64());
        let errors = self.errors.series(request);
        if failed {
            errors.inc();
        }
    }

    /// Records the result of a changed configuration that was tried.
    pub fn configuration(&self, is_used: bool) {
        self.configuration_refused.set(i64::from(!is_used));
    }

    /// Counts a login of the credentials in use that has ended.
    pub fn renewal(&self, result: Renewal) {
        self.renewals.series(result).inc();
        // Another failure shows nothing about the credentials.
        if result != Renewal::Failed {
            self.refused.set(i64::from(result == Renewal::Refused));
        }
    }
}
