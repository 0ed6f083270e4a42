//! The metric and the event of writes that are [repeated](crate::repeats), in all programs.

use ccm_metrics::{Counter, Family, metrics};
use ccm_objects::ObjectRef;
use ccm_runtime::metrics::Metrics;

use crate::{
    repeats::{Repeated, WriteKind},
    reports::{Report, Reports, When},
};

/// The reason of the event.
pub const REASON: &str = "RepeatedWrite";

metrics! {
    /// Counts repeated writes. Clones share the metric.
    pub struct RepeatMetrics {
        /// Writes to the API server or to the cloud that were answered as done and were due again with the same content,
        /// from the third time in a row on, or whose answer did not show them, by kind of object and of write
        [ALPHA] ccm_repeated_writes { object, write } => repeated: Family<Counter, (&'static str, WriteKind)>;
    }
}

impl RepeatMetrics {
    /// Registers the metric of a program that writes to this kind of object. The series of its most
    /// important write exists from the start, so that an alert sees the first repetition.
    pub fn beginning(metrics: &Metrics, object: &'static str, write: &'static str) -> Self {
        let this = Self::new(metrics);
        this.repeated.series((object, write.into()));
        this
    }

    /// Counts a repeated write to this kind of object; `write` is its field or kind of content.
    pub fn count(&self, object: &'static str, write: impl Into<WriteKind>) {
        self.repeated.series((object, write.into())).inc();
    }

    /// Counts a repeated write, and reports it if `is_news`.
    pub fn report(&self, reports: &Reports, about: &ObjectRef, repeated: &Repeated) {
        self.count(about.kind, repeated.kind.clone());
        if repeated.is_news {
            let line = format!("{} {}: {repeated}", about.kind, about.key());
            let report = Report::warning(REASON, &repeated.kind, line);
            reports.report(about, When::Always, report.with_event(REASON, repeated.to_string()));
        }
    }
}

/// Registers the metric, for the metrics reference.
pub fn specimens(metrics: &Metrics) {
    RepeatMetrics::new(metrics).specimens();
}
