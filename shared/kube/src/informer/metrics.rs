//! `ccm_informer_*`.

use std::{
    collections::HashSet,
    sync::Arc,
};

use ccm_cloud::clock;
use kube::Resource;
use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::{error::ApiError, store::Stored};

/// How many malformed objects are remembered, so that each is logged once.
const REMEMBERED: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabel {
    resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    resource: String,
    reason: &'static str,
}

/// The metrics of all informers of a program.
#[derive(Clone, Default)]
pub struct InformerMetrics {
    objects: Family<ResourceLabel, Gauge>,
    relists: Family<ResourceLabel, Counter>,
    errors: Family<ErrorLabels, Counter>,
    malformed: Family<ResourceLabel, Counter>,
    last_event: Family<ResourceLabel, Gauge<f64, std::sync::atomic::AtomicU64>>,
}

impl InformerMetrics {
    /// Adds them to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("ccm_informer_objects", "[ALPHA] Objects in the informer's store", self.objects.clone());
        registry.register("ccm_informer_relists", "[ALPHA] Times that everything was listed anew", self.relists.clone());
        registry.register("ccm_informer_errors", "[ALPHA] Failed lists and watches, by reason", self.errors.clone());
        registry.register(
            "ccm_informer_malformed_objects",
            "[ALPHA] Objects that could not be read and were left out",
            self.malformed.clone(),
        );
        registry.register(
            "ccm_informer_last_event_timestamp_seconds",
            "[ALPHA] When the informer last heard of the API server, in Unix time",
            self.last_event.clone(),
        );
    }

    pub(super) fn of<K: Stored>(&self) -> Meter {
        let resource = K::Wire::plural(&()).into_owned();
        Meter { metrics: self.clone(), label: ResourceLabel { resource }, logged: Arc::default() }
    }
}

/// The metrics and logs of one informer.
pub(super) struct Meter {
    metrics: InformerMetrics,
    label: ResourceLabel,
    logged: Arc<Mutex<HashSet<String>>>,
}

impl Meter {
    pub(super) fn event(&self) {
        self.metrics.last_event.get_or_create(&self.label).set(clock::unix_seconds());
    }

    pub(super) fn objects(&self, count: usize) {
        self.metrics.objects.get_or_create(&self.label).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn relisted(&self) {
        self.metrics.relists.get_or_create(&self.label).inc();
        tracing::info!(resource = self.label.resource, "watch cannot go on; listing again");
    }

    pub(super) fn failed(&self, error: &ApiError) {
        let labels = ErrorLabels { resource: self.label.resource.clone(), reason: error.reason() };
        self.metrics.errors.get_or_create(&labels).inc();
        tracing::warn!(resource = self.label.resource, error = %error, "list or watch failed; trying again");
    }

    pub(super) fn malformed(&self, name: Option<&str>, why: &str) {
        self.metrics.malformed.get_or_create(&self.label).inc();
        let name = name.unwrap_or("(unnamed)");
        let mut logged = self.logged.lock();
        if logged.len() < REMEMBERED && logged.insert(name.to_owned()) {
            tracing::warn!(resource = self.label.resource, name, why, "object cannot be read and is left out");
        }
    }
}
