//! Metrics, each declared in one place.
//!
//! [`metrics!`] makes a struct from a list of metrics. Registration, the initial series and
//! the sample series for the reference follow from the same list. The values of a label are
//! a type: a [`LabelValue`]. [`computed!`] declares metrics that are computed on each
//! scrape.
//!
//! Where upstream has a metric, its name is used, so that dashboards keep working; new names
//! begin with `ccm_`. An object's name is never a label.
//!
//! | module | what it holds |
//! |---|---|
//! | `declare`, `family` | the macro; metrics with labels |
//! | `labels` | label values and sets of them |
//! | `computed` | metrics that are computed on each scrape |

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

/// A gauge with fractions, for instance of seconds.
pub type FloatGauge = Gauge<f64, std::sync::atomic::AtomicU64>;

/// Returns a count as the value of a [`Gauge`].
pub fn level(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Registers metrics: the part of the process's registry that components and providers see.
pub trait MetricsSink: Send + Sync {
    /// Calls `add` once with the registry. The call may happen in another context: `add`
    /// registers and does nothing else.
    fn add(&self, add: &mut dyn FnMut(&mut Registry));
}

/// Discards all metrics, for tests and tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMetrics;

impl MetricsSink for NoMetrics {
    fn add(&self, _: &mut dyn FnMut(&mut Registry)) {}
}
