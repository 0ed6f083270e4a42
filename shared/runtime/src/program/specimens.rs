//! What a process of a program measures, without running one.

use ccm_kube::{events::EventMetrics, metrics::RestMetrics};

use super::{ConfigMetrics, Program};
use crate::{
    cloud_gate::CloudGate,
    leadership::LeadershipMetrics,
    limits::{ApiLimits, ApiRates, CloudLimits, CloudRates, LimitMetrics, Rate},
    metrics::Metrics,
    plans::PlanMetrics,
    rights::RightsMetrics,
};

/// A registry as a process of this program has it, with one series of every metric for
/// every value that a label can take. A value that depends on the cluster or the cloud
/// stands there once, with an example. The metrics of providers are not among them.
///
/// The reference of the metrics is printed from it; a scenario compares it with what
/// running programs report.
pub fn specimens<P: Program>() -> Metrics {
    let metrics = Metrics::of(P::IDENTITY.binary);
    drop(metrics.running(P::IDENTITY.alias));
    ConfigMetrics::new(&metrics).specimens();
    RightsMetrics::new(&metrics).specimens();
    PlanMetrics::new(&metrics).specimens();

    let limit_metrics = LimitMetrics::new(&metrics);
    let rate = Rate::UNLIMITED;
    ApiLimits::new(ApiRates::each(rate), &limit_metrics);
    let cloud_limits = CloudLimits::new(CloudRates { read: rate, write: rate }, &limit_metrics);
    CloudGate::new(cloud_limits, &metrics, None).specimens();

    RestMetrics::new(&metrics).specimens();
    EventMetrics::new(&metrics).specimens();
    let election = LeadershipMetrics::new(P::IDENTITY.lease);
    metrics.with(|registry| election.register(registry));
    election.specimens();
    P::specimens(&metrics);
    metrics
}
