//! Metrics, each declared once.
//!
//! [`metrics!`] makes a struct from a list of metrics. Their registration, the series that
//! are there from the start and one series for every value of every label follow from the
//! same list. The values of a label are a type: a [`LabelValue`]. [`computed!`] does the same
//! for metrics that are computed when they are asked for.
//!
//! Names are upstream's where upstream has one, so that dashboards keep working; new ones
//! begin with `ccm_`. An object's name is never a label.

mod computed;
mod declare;
mod family;
mod labels;

pub use computed::{Column, Row, Sample, Table};
pub use family::{Family, Make};
pub use labels::{Begin, Every, LabelSet, LabelValue, Text};
pub use prometheus_client::{
    metrics::{
        counter::Counter,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
// For the macros.
#[doc(hidden)]
pub use prometheus_client::metrics::MetricType;
#[doc(hidden)]
pub use strum::VariantNames;

/// A gauge of fractions, for instance of seconds.
pub type FloatGauge = Gauge<f64, std::sync::atomic::AtomicU64>;

/// Where metrics are registered: the registry of the process, as far as a component or a
/// provider needs it.
pub trait MetricsSink: Send + Sync {
    /// Calls `add` once with the registry, which may be called away from other work:
    /// `add` registers and does nothing else.
    fn add(&self, add: &mut dyn FnMut(&mut Registry));
}

/// Nobody looks, for tests and tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMetrics;

impl MetricsSink for NoMetrics {
    fn add(&self, _: &mut dyn FnMut(&mut Registry)) {}
}
