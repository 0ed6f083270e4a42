//! Metrics that are computed on each scrape.

use std::fmt::{self, Debug};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use crate::labels::Text;

/// The value of one sample.
#[derive(Clone, Copy, Debug)]
pub enum Sample {
    /// A gauge.
    Gauge(f64),
    /// A counter.
    Counter(u64),
    /// A counter with fractions.
    Sum(f64),
}

impl Sample {
    fn encode(self, to: MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Gauge(value) => ConstGauge::new(value).encode(to),
            Self::Counter(value) => ConstCounter::new(value).encode(to),
            Self::Sum(value) => ConstCounter::new(value).encode(to),
        }
    }
}

/// One metric of a [`Table`].
#[derive(Debug)]
pub struct Column<S> {
    /// Its name.
    pub name: &'static str,
    /// Its help text with its stability and a full stop.
    pub help: &'static str,
    /// Its type.
    pub kind: MetricType,
    /// Its value, if it is known.
    pub value: fn(&S) -> Option<Sample>,
}

/// Metrics that are all computed from an `S`; declared with [`crate::computed!`].
#[derive(Debug)]
pub struct Table<S: 'static> {
    /// The labels that all of them share.
    pub labels: &'static [&'static str],
    /// The metrics.
    pub columns: &'static [Column<S>],
}

/// An `S` with its label values.
pub type Row<S> = (Vec<Text>, S);

impl<S> Table<S> {
    /// Returns a collector that computes these metrics from the rows that `read` returns.
    pub fn collector(
        &'static self,
        read: impl Fn() -> Vec<Row<S>> + Send + Sync + 'static,
    ) -> impl Collector {
        Computed { table: self, read: Box::new(read) }
    }
}

struct Computed<S: 'static> {
    table: &'static Table<S>,
    read: Box<dyn Fn() -> Vec<Row<S>> + Send + Sync>,
}

impl<S> Debug for Computed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Computed").finish_non_exhaustive()
    }
}

impl<S> Collector for Computed<S> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let rows = (self.read)();
        for column in self.table.columns {
            let known: Vec<_> =
                rows.iter().filter_map(|(texts, at)| Some((texts, (column.value)(at)?))).collect();
            // A metric without known values is omitted together with its description.
            if known.is_empty() && !rows.is_empty() {
                continue;
            }
            let mut metric =
                encoder.encode_descriptor(column.name, column.help, None, column.kind)?;
            if self.table.labels.is_empty() {
                known.first().map_or(Ok(()), |(_, sample)| sample.encode(metric))?;
                continue;
            }
            for (texts, sample) in known {
                let labels: Vec<_> =
                    self.table.labels.iter().copied().zip(texts.iter().cloned()).collect();
                sample.encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// Declares a [`Table`] in a static.
///
/// ```
/// use ccm_metrics::computed;
///
/// struct Door { opened: u64, width: f64 }
///
/// computed! {
///     /// The metrics of a door.
///     static DOORS: Door { door } = {
///         /// How often the door was opened
///         [ALPHA] Counter ccm_door_openings = |door| door.opened;
///         /// How wide it is open; not there while it is locked
///         [ALPHA] Gauge ccm_door_width = |door| (door.width > 0.0).then_some(door.width);
///     }
/// }
///
/// let collector = DOORS.collector(|| vec![(vec!["front".into()], Door { opened: 1, width: 0.5 })]);
/// ```
#[macro_export]
macro_rules! computed {
    (@ Gauge) => { $crate::MetricType::Gauge };
    (@ $counter:ident) => { $crate::MetricType::Counter };
    (
        $(#[$meta:meta])*
        $visible:vis static $table:ident: $of:ty $({ $($label:ident),+ })? = {$(
            $(#[doc = $help:literal])+
            $([$stability:ident])? $kind:ident $name:ident = |$at:pat_param| $value:expr;
        )+}
    ) => {
        $(#[$meta])*
        $visible static $table: $crate::Table<$of> = $crate::Table {
            labels: &[$($(stringify!($label)),+)?],
            columns: &[$($crate::Column {
                name: stringify!($name),
                help: concat!($("[", stringify!($stability), "]",)? $($help,)+ ".").trim_ascii_start(),
                kind: $crate::computed!(@ $kind),
                value: |$at| Option::from($value).map($crate::Sample::$kind),
            }),+],
        };
    };
}
