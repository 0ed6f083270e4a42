//! `ccm_informer_*`.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::AtomicU64},
};

use ccm_base::clock;
use kube::Resource;
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
    resource: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    resource: Arc<str>,
    reason: &'static str,
}

/// The metrics of all informers of a program.
#[derive(Clone, Debug, Default)]
pub struct InformerMetrics {
    objects: Family<ResourceLabel, Gauge>,
    relists: Family<ResourceLabel, Counter>,
    errors: Family<ErrorLabels, Counter>,
    malformed: Family<ResourceLabel, Counter>,
    last_event: Family<ResourceLabel, Gauge<f64, AtomicU64>>,
}

impl InformerMetrics {
    /// Adds them to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "ccm_informer_objects",
            "[ALPHA] Objects that the informer knows, as the API server has them",
            self.objects.clone(),
        );
        registry.register(
            "ccm_informer_relists",
            "[ALPHA] Lists of everything because a watch could not go on; the first list is not counted",
            self.relists.clone(),
        );
        registry.register(
            "ccm_informer_errors",
            "[ALPHA] Failed lists and watches, by reason",
            self.errors.clone(),
        );
        registry.register(
            "ccm_informer_malformed_objects",
            "[ALPHA] Objects that could not be read and were left out, each time anew",
            self.malformed.clone(),
        );
        registry.register(
            "ccm_informer_last_event_timestamp_seconds",
            "[ALPHA] When the informer last heard of the API server, in Unix time",
            self.last_event.clone(),
        );
    }

    /// Makes one series of everything for this kind, with every value that a label can
    /// take: what the reference of the metrics is printed from.
    pub fn specimens<K: Stored>(&self) {
        let Meter { metrics, label, .. } = self.of::<K>();
        drop(metrics.objects.get_or_create(&label));
        drop(metrics.last_event.get_or_create(&label));
        for reason in ApiError::REASONS {
            let labels = ErrorLabels { resource: Arc::clone(&label.resource), reason };
            drop(metrics.errors.get_or_create(&labels));
        }
    }

    pub(super) fn of<K: Stored>(&self) -> Meter {
        let label = ResourceLabel { resource: K::Wire::plural(&()).into() };
        // Counters that show up only with their first increment hide it from rate().
        self.relists.get_or_create(&label).inc_by(0);
        self.malformed.get_or_create(&label).inc_by(0);
        Meter { metrics: self.clone(), label, listed: false, logged: HashSet::new() }
    }
}

/// The metrics and logs of one informer.
pub(super) struct Meter {
    metrics: InformerMetrics,
    label: ResourceLabel,
    listed: bool,
    logged: HashSet<String>,
}

impl Meter {
    pub(super) fn resource(&self) -> &str {
        &self.label.resource
    }

    pub(super) fn event(&self) {
        self.metrics.last_event.get_or_create(&self.label).set(clock::unix_seconds());
    }

    pub(super) fn objects(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.objects.get_or_create(&self.label).set(count);
    }

    /// A list begins.
    pub(super) fn list(&mut self) {
        if self.listed {
            self.metrics.relists.get_or_create(&self.label).inc();
            tracing::info!(resource = self.resource(), "listing again");
        }
        self.listed = true;
    }

    pub(super) fn failed(&self, error: &ApiError) {
        let labels =
            ErrorLabels { resource: Arc::clone(&self.label.resource), reason: error.reason() };
        self.metrics.errors.get_or_create(&labels).inc();
        tracing::warn!(resource = self.resource(), error = %error, "list or watch failed; trying again");
    }

    pub(super) fn malformed(&mut self, name: Option<&str>, why: &str) {
        self.metrics.malformed.get_or_create(&self.label).inc();
        let name = name.unwrap_or("(unnamed)");
        if self.logged.len() < REMEMBERED && self.logged.insert(name.to_owned()) {
            tracing::warn!(
                resource = self.resource(),
                name,
                why,
                "object cannot be read and is left out"
            );
        }
    }
}
