//! Metrics with labels, and how they are created.

use std::{
    fmt::{self, Debug},
    marker::PhantomData,
    sync::Arc,
};

use prometheus_client::{
    encoding::EncodeMetric,
    metrics::{TypedMetric, counter::Counter, family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::{
    FloatGauge,
    labels::{Begin, Every, LabelSet, Text},
};

/// A metric as [`crate::metrics!`] uses it.
pub trait Make: Sized {
    /// Returns the metric with these labels; `bounds` are the buckets of a histogram.
    fn make(labels: &'static [&'static str], bounds: Arc<[f64]>) -> Self;

    /// Registers it under this name.
    fn register(&self, name: &str, help: &str, registry: &mut Registry);

    /// Creates a series for every value of every label.
    fn specimens(&self) {}
}

macro_rules! plain {
    ($($metric:ty => |$bounds:pat_param| $new:expr),+ $(,)?) => {$(
        impl Make for $metric {
            fn make(_: &'static [&'static str], $bounds: Arc<[f64]>) -> Self {
                $new
            }

            fn register(&self, name: &str, help: &str, registry: &mut Registry) {
                registry.register(name, help, self.clone());
            }
        }
    )+};
}

plain! {
    Counter => |_| Self::default(),
    Gauge => |_| Self::default(),
    FloatGauge => |_| Self::default(),
    Histogram => |bounds| Self::new(bounds.iter().copied()),
}

type Labels = Vec<(&'static str, Text)>;

/// Creates the metric of one series.
#[derive(Clone)]
struct Maker(Arc<[f64]>);

impl<M: Make> family::MetricConstructor<M> for Maker {
    fn new_metric(&self) -> M {
        M::make(&[], Arc::clone(&self.0))
    }
}

/// A metric with labels: one `M` for each value of `V`. Clones share it.
pub struct Family<M, V> {
    labels: &'static [&'static str],
    series: family::Family<Labels, M, Maker>,
    values: PhantomData<fn(V)>,
}

impl<M, V> Clone for Family<M, V> {
    fn clone(&self) -> Self {
        Self { labels: self.labels, series: self.series.clone(), values: PhantomData }
    }
}

impl<M, V> Debug for Family<M, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("labels", &self.labels).finish_non_exhaustive()
    }
}

impl<M: Make + Clone, V: LabelSet> Family<M, V> {
    /// Returns the series with these label values. Creates it if it does not exist.
    pub fn series(&self, values: V) -> M {
        self.series.get_or_create_owned(&self.named(values.texts()))
    }

    /// Creates these series. A series that appears with its first event hides that event from
    /// `rate` and `increase`.
    pub fn begin(&self, series: impl Begin<V>) {
        for texts in series.texts() {
            drop(self.series.get_or_create_owned(&self.named(texts)));
        }
    }

    /// Returns true if the series with these label values exists.
    pub fn is_there(&self, values: V) -> bool {
        self.series.get(&self.named(values.texts())).is_some()
    }

    fn named(&self, texts: Vec<Text>) -> Labels {
        self.labels.iter().copied().zip(texts).collect()
    }
}

impl<M, V> Make for Family<M, V>
where
    M: Make + Clone + Debug + EncodeMetric + TypedMetric + Send + Sync + 'static,
    V: LabelSet,
{
    fn make(labels: &'static [&'static str], bounds: Arc<[f64]>) -> Self {
        let series = family::Family::new_with_constructor(Maker(bounds));
        Self { labels, series, values: PhantomData }
    }

    fn register(&self, name: &str, help: &str, registry: &mut Registry) {
        registry.register(name, help, self.series.clone());
    }

    fn specimens(&self) {
        self.begin(Every);
    }
}
