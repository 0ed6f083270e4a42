//! `leader_election_*`.

use std::time::Duration;

use ccm_metrics::{Counter, Family, FloatGauge, Gauge, Histogram, Registry, Text, metrics};

use super::problem::Reason;

/// The buckets of the renewal duration, in seconds.
const RENEWALS: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0];

metrics! {
    struct Elections {
        /// Renewals that needed more than one attempt
        [ALPHA] leader_election_slowpath { name } => slow_path: Family<Counter, Text>;
        /// How often this replica became leader
        [ALPHA] ccm_leader_election_transitions { name } => transitions: Family<Counter, Text>;
        /// 1 if this replica leads, 0 otherwise
        [ALPHA] leader_election_master_status { name } => leads: Family<Gauge, Text>;
        /// leaseTransitions of the Lease: how often it changed its holder; equal on every replica
        [ALPHA] ccm_leader_election_lease_transitions { name } => lease_transitions: Family<Gauge, Text>;
        /// 1 if another program holds the Lease of this replica, which then never works, 0
        /// otherwise
        [ALPHA] ccm_leader_election_lease_of_other_program { name } => other_program: Family<Gauge, Text>;
        /// Failed attempts to acquire, renew or release the Lease, by reason
        [ALPHA] ccm_leader_election_failures { name, reason } => failures: Family<Counter, (Text, Reason)>;
        /// Duration of Lease renewals
        [ALPHA] ccm_leader_election_renew_duration_seconds => renewal: Histogram, bounds RENEWALS;
        /// Remaining term just before the last renewal; 0 without a term
        [ALPHA] ccm_leader_election_term_remaining_seconds => remaining: FloatGauge;
    }
}

/// The metrics of one election.
#[derive(Clone)]
pub struct LeadershipMetrics {
    name: Text,
    of: Elections,
}

impl LeadershipMetrics {
    /// Creates the metrics of the Lease of this name.
    pub fn new(name: &str) -> Self {
        let metrics = Self { name: name.to_owned().into(), of: Elections::default() };
        // Present from the start, so that "no leader" differs from "no data".
        metrics.set_leading(false);
        metrics
    }

    /// Adds the metrics to a registry.
    pub fn register(&self, registry: &mut Registry) {
        self.of.register(registry);
    }

    /// Creates one series per metric and label value. The metrics reference is generated from
    /// them.
    pub fn specimens(&self) {
        self.of.specimens();
    }

    pub(super) fn set_leading(&self, leads: bool) {
        self.of.leads.series(self.name.clone()).set(leads.into());
        if !leads {
            self.of.remaining.set(0.0);
        }
    }

    pub(super) fn became_leader(&self) {
        self.set_leading(true);
        self.of.transitions.series(self.name.clone()).inc();
    }

    /// Sets the Lease's own count of transitions, and whether another program holds it. A process
    /// that loses the Lease exits, so only the Lease can count across processes.
    pub(super) fn read_lease(&self, transitions: Option<i64>, of_other_program: bool) {
        if let Some(count) = transitions {
            self.of.lease_transitions.series(self.name.clone()).set(count);
        }
        self.of.other_program.series(self.name.clone()).set(of_other_program.into());
    }

    pub(super) fn renewed(&self, took: Duration, remaining: Duration, slow: bool) {
        self.of.renewal.observe(took.as_secs_f64());
        self.of.remaining.set(remaining.as_secs_f64());
        if slow {
            self.of.slow_path.series(self.name.clone()).inc();
        }
    }

    pub(super) fn failed(&self, reason: Reason) {
        self.of.failures.series((self.name.clone(), reason)).inc();
    }
}
