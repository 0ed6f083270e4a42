//! `leader_election_*`.

use std::{sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::problem::Reason;

/// The bounds of the renewals' time, in seconds.
const RENEWALS: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    name: String,
    reason: &'static str,
}

/// The metrics of one election.
#[derive(Clone)]
pub struct LeadershipMetrics {
    name: String,
    leads: Family<NameLabel, Gauge>,
    slow_path: Family<NameLabel, Counter>,
    transitions: Family<NameLabel, Counter>,
    lease_transitions: Family<NameLabel, Gauge>,
    failures: Family<FailureLabels, Counter>,
    renewal: Histogram,
    remaining: Gauge<f64, AtomicU64>,
}

impl LeadershipMetrics {
    /// The metrics of the Lease of this name.
    pub fn new(name: &str) -> Self {
        let metrics = Self {
            name: name.to_owned(),
            leads: Family::default(),
            slow_path: Family::default(),
            transitions: Family::default(),
            lease_transitions: Family::default(),
            failures: Family::default(),
            renewal: Histogram::new(RENEWALS),
            remaining: Gauge::default(),
        };
        // There from the start, so that "no leader" can be told from "no data".
        metrics.set_leading(false);
        metrics
    }

    /// Adds them to a registry.
    pub fn register(&self, registry: &mut Registry) {
        let mut add = |name: &str, help: &str, metric: Family<NameLabel, Counter>| {
            registry.register(name, help, metric);
        };
        add(
            "leader_election_slowpath",
            "[ALPHA] Renewals that needed more than one attempt",
            self.slow_path.clone(),
        );
        add(
            "ccm_leader_election_transitions",
            "[ALPHA] Times that this replica became leader",
            self.transitions.clone(),
        );
        registry.register(
            "leader_election_master_status",
            "[ALPHA] Whether this replica leads: 1 for yes, 0 for no",
            self.leads.clone(),
        );
        registry.register(
            "ccm_leader_election_lease_transitions",
            "[ALPHA] Times that the Lease has gone to another replica, as it counts them itself; every replica shows the same",
            self.lease_transitions.clone(),
        );
        registry.register(
            "ccm_leader_election_failures",
            "[ALPHA] Failed attempts to take, renew or release the Lease, by reason",
            self.failures.clone(),
        );
        registry.register(
            "ccm_leader_election_renew_duration_seconds",
            "[ALPHA] How long it took to renew the Lease",
            self.renewal.clone(),
        );
        registry.register(
            "ccm_leader_election_term_remaining_seconds",
            "[ALPHA] What was left of the term just before it was renewed; 0 without one",
            self.remaining.clone(),
        );
    }

    /// Makes one series of everything, with every value that a label can take: what the
    /// reference of the metrics is printed from.
    pub fn specimens(&self) {
        drop(self.slow_path.get_or_create(&self.label()));
        drop(self.transitions.get_or_create(&self.label()));
        drop(self.lease_transitions.get_or_create(&self.label()));
        for reason in Reason::ALL {
            drop(self.failures.get_or_create(&self.failure(reason)));
        }
    }

    pub(super) fn set_leading(&self, leads: bool) {
        self.leads.get_or_create(&self.label()).set(leads.into());
        if !leads {
            self.remaining.set(0.0);
        }
    }

    pub(super) fn became_leader(&self) {
        self.set_leading(true);
        self.transitions.get_or_create(&self.label()).inc();
    }

    /// What the Lease says of how often it has changed hands. A process that loses it ends,
    /// so that only the Lease can count across processes.
    pub(super) fn read_transitions(&self, count: Option<i64>) {
        if let Some(count) = count {
            self.lease_transitions.get_or_create(&self.label()).set(count);
        }
    }

    pub(super) fn renewed(&self, took: Duration, remaining: Duration, slow: bool) {
        self.renewal.observe(took.as_secs_f64());
        self.remaining.set(remaining.as_secs_f64());
        if slow {
            self.slow_path.get_or_create(&self.label()).inc();
        }
    }

    pub(super) fn failed(&self, reason: Reason) {
        self.failures.get_or_create(&self.failure(reason)).inc();
    }

    fn failure(&self, reason: Reason) -> FailureLabels {
        FailureLabels { name: self.name.clone(), reason: reason.as_str() }
    }

    fn label(&self) -> NameLabel {
        NameLabel { name: self.name.clone() }
    }
}
