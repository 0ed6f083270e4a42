//! `ccm_informer_*`.

use std::collections::HashSet;

use ccm_base::LogThrottle;
use ccm_metrics::{Counter, Every, Family, FloatGauge, Gauge, Text, metrics};
use kube::Resource;

use super::state::WatchState;
use crate::{
    error::{ApiError, ApiReason},
    store::Stored,
};

/// How many malformed objects are remembered, so that each is logged only once.
const REMEMBERED: usize = 1000;

metrics! {
    /// The metrics of all informers of a program.
    pub struct InformerMetrics {
        /// Objects in the informer's cache
        [ALPHA] ccm_informer_objects { resource } => objects: Family<Gauge, Text>;
        /// Lists of all objects because a watch could not continue, or because other parts of them
        /// must be kept; the initial list is not counted
        [ALPHA] ccm_informer_relists { resource } => relists: Family<Counter, Text>;
        /// Failed lists and watches, by reason
        [ALPHA] ccm_informer_errors { resource, reason } => errors: Family<Counter, (Text, ApiReason)>;
        /// Objects that could not be parsed and were skipped, counted on each read
        [ALPHA] ccm_informer_malformed_objects { resource } => malformed: Family<Counter, Text>;
        /// Unix time at which the watch was last known to work: an event, a bookmark, or proof that nothing was missed;
        /// before that the start of the program
        [ALPHA] ccm_informer_last_event_timestamp_seconds { resource } => proven: Family<FloatGauge, Text>;
    }
}

impl InformerMetrics {
    /// Creates the sample series for the metrics reference: one for each label value of this
    /// kind.
    pub fn specimens_of<K: Stored>(&self) {
        let meter = self.meter::<K>();
        meter.objects(0);
        meter.state();
        self.errors.begin((meter.resource.clone(), Every));
    }

    pub(super) fn meter<K: Stored>(&self) -> Meter {
        let resource: Text = K::Wire::plural(&());
        // The series exists from the start, because a counter that appears with its first increment
        // hides that increment from rate().
        self.relists.begin([resource.clone()]);
        self.malformed.begin([resource.clone()]);
        Meter {
            metrics: self.clone(),
            resource,
            listed: false,
            logged: HashSet::new(),
            failures: LogThrottle::default(),
        }
    }
}

/// The metrics and logs of one informer.
pub(super) struct Meter {
    metrics: InformerMetrics,
    resource: Text,
    listed: bool,
    logged: HashSet<String>,
    failures: LogThrottle,
}

impl Meter {
    pub(super) fn resource(&self) -> &str {
        &self.resource
    }

    /// Returns the state of a watch that begins now.
    pub(super) fn state(&self) -> WatchState {
        let proven = self.metrics.proven.series(self.resource.clone());
        WatchState::new(self.resource.clone(), proven)
    }

    pub(super) fn objects(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.objects.series(self.resource.clone()).set(count);
    }

    /// Records that a list begins.
    pub(super) fn list(&mut self) {
        if self.listed {
            self.metrics.relists.series(self.resource.clone()).inc();
            tracing::info!(resource = self.resource(), "listing again");
        }
        self.listed = true;
    }

    pub(super) fn failed(&mut self, error: &ApiError) {
        self.metrics.errors.series((self.resource.clone(), error.into())).inc();
        if self.failures.allow() {
            tracing::warn!(resource = self.resource(), %error, "list or watch failed; retrying");
        }
    }

    pub(super) fn malformed(&mut self, name: Option<&str>, why: &str) {
        self.metrics.malformed.series(self.resource.clone()).inc();
        let name = name.unwrap_or("(unnamed)");
        if self.logged.len() < REMEMBERED && self.logged.insert(name.to_owned()) {
            tracing::warn!(
                resource = self.resource(),
                name,
                why,
                "skipping an object that cannot be parsed"
            );
        }
    }
}
