//! The metrics of a program, without running it.

use ccm_kube::{events::EventMetrics, metrics::RestMetrics};

use super::{ConfigMetrics, Program, in_clear};
use crate::{
    cloud_gate::CloudGate,
    leadership::LeadershipMetrics,
    limits::{Limits, Rate, Rates},
    metrics::Metrics,
    own_policy::OwnPolicyMetrics,
    plans::PlanMetrics,
    records::Records,
    rights::RightsMetrics,
    rivals::RivalMetrics,
    same_cloud::SameCloudMetrics,
};

/// Returns the registry of this program's process, with one series per metric and label value. A
/// label that depends on the cluster or the cloud has one example value. Providers' metrics are not
/// included.
///
/// The metrics reference is generated from it; an end-to-end test compares it with the metrics
/// of running programs.
pub fn specimens<P: Program>() -> Metrics {
    let metrics = Metrics::for_program(P::IDENTITY.binary);
    metrics.set_running(P::IDENTITY.alias, false);
    ConfigMetrics::new(&metrics).specimens();
    RightsMetrics::new(&metrics).specimens();
    OwnPolicyMetrics::new(&metrics);
    PlanMetrics::new(&metrics).specimens();
    Records::new(&metrics);

    let limits = Limits::new(Rates::each(Rate::UNLIMITED), &metrics);
    CloudGate::new(limits, &metrics, None).specimens();

    in_clear::collect(&metrics, || false);
    RivalMetrics::new(&metrics);
    SameCloudMetrics::new(&metrics);
    RestMetrics::new(&metrics).specimens();
    EventMetrics::new(&metrics).specimens();
    let election = LeadershipMetrics::new(P::IDENTITY.binary);
    metrics.with(|registry| election.register(registry));
    election.specimens();
    P::specimens(&metrics);
    metrics
}
