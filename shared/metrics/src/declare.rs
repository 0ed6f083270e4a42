//! The macro that declares metrics.

/// Declares a struct of metrics. Clones of it share them.
///
/// ```
/// use ccm_metrics::{Counter, Family, Histogram, NoMetrics, label, metrics};
///
/// #[derive(Clone, Copy, strum::IntoStaticStr, strum::VariantNames)]
/// #[strum(serialize_all = "snake_case")]
/// enum Refusal { Full, NoRights }
/// label!(Refusal);
///
/// metrics! {
///     /// The metrics of doors.
///     pub struct DoorMetrics {
///         /// How long doors stood open
///         [ALPHA] ccm_door_open_seconds => open: Histogram, bounds [1.0, 10.0];
///         /// Refused visitors, by door and reason
///         [ALPHA] ccm_door_refused { door, reason } => refused: Family<Counter, (&'static str, Refusal)>,
///             begin [("front", Refusal::Full)];
///     }
/// }
///
/// let metrics = DoorMetrics::new(&NoMetrics);
/// metrics.open.observe(2.0);
/// metrics.refused.series(("back", Refusal::NoRights)).inc();
/// ```
///
/// One entry is: the help text without a full stop, its stability, name and labels, the
/// field with its type, the bounds of a histogram, and the series that exist from the
/// start.
#[macro_export]
macro_rules! metrics {
    (
        $(#[$meta:meta])*
        $visible:vis struct $set:ident {$(
            $(#[doc = $help:literal])+
            [$stability:ident] $name:ident $({ $($label:ident),+ })? => $field:ident: $metric:ty
            $(, bounds $bounds:expr)? $(, begin $begin:expr)?;
        )+}
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        $visible struct $set {$(
            $(#[doc = $help])+
            $field: $metric,
        )+}

        impl Default for $set {
            fn default() -> Self {
                let this = Self {$(
                    $field: $crate::Make::make(
                        &[$($(stringify!($label)),+)?],
                        [].into_iter()$(.chain($bounds))?.collect(),
                    ),
                )+};
                $($(this.$field.begin($begin);)?)+
                this
            }
        }

        #[allow(dead_code, reason = "metrics are registered in one of two ways")]
        impl $set {
            /// Creates and registers the metrics. Call it once per registry.
            $visible fn new(sink: &dyn $crate::MetricsSink) -> Self {
                let this = Self::default();
                sink.add(&mut |registry| this.register(registry));
                this
            }

            /// Adds the metrics to a registry.
            $visible fn register(&self, registry: &mut $crate::Registry) {
                $($crate::Make::register(
                    &self.$field,
                    stringify!($name),
                    concat!("[", stringify!($stability), "]" $(, $help)+),
                    registry,
                );)+
            }

            /// Creates the sample series for the metrics reference: one for every value of every
            /// label. A label whose values depend on the cluster or the cloud gets one example.
            $visible fn specimens(&self) {
                $($crate::Make::specimens(&self.$field);)+
            }
        }
    };
}
