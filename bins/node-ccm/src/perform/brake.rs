//! Shows the brake to users: its metrics, its log lines and its line of `/readyz`.

use ccm_metrics::{Counter, Gauge, level, metrics};
use ccm_runtime::{
    health::{Condition, Scope},
    metrics::Metrics,
    program::{Context, Program},
};

use crate::machine::{BrakeState, TooMany};

/// The objects that the brake guards, in log lines.
pub(crate) const OBJECTS: &str = "Ready nodes";
/// The change that the brake holds, in log lines.
const CHANGE: &str =
    "the cloud returns another first InternalIP, address family, zone, region or type";

metrics! {
    struct BrakeMetrics {
        /// 1 while the brake is open: more objects would change at once than its budget allows, and node-ccm changes
        /// only those that a user approves; 0 otherwise
        [ALPHA] ccm_brake_open => open: Gauge;
        /// Openings of the brake
        [ALPHA] ccm_brake_openings => openings: Counter;
        /// Maximum number of objects that may change within the window of the brake's budget
        [ALPHA] ccm_brake_limit => limit: Gauge;
        /// Objects that have changed within the current window of the brake's budget
        [ALPHA] ccm_brake_used => used: Gauge;
        /// Objects whose change the brake holds, because it is open or its budget is used up
        [ALPHA] ccm_brake_held => held: Gauge;
    }
}

/// Registers the metrics, for the metrics reference.
pub(crate) fn specimens(metrics: &Metrics) {
    BrakeMetrics::new(metrics).specimens();
}

/// The metrics, and the line `brake` of `/readyz?verbose`.
pub(super) struct BrakeLine {
    metrics: BrakeMetrics,
    condition: Condition,
}

/// Returns the reason why the brake is open.
fn words(TooMany { changes, population }: TooMany) -> String {
    format!("no {OBJECTS} change unless approved: {CHANGE} for {changes} of {population} {OBJECTS}")
}

impl BrakeLine {
    pub(super) fn new<P: Program>(context: &Context<P>) -> Self {
        let condition = context.health.condition("brake", Scope::Information, "not needed yet");
        condition.pass("not needed yet");
        Self { metrics: BrakeMetrics::new(&context.metrics), condition }
    }

    pub(super) fn opens(&self, cause: TooMany) {
        self.metrics.openings.inc();
        tracing::error!("{}", words(cause));
    }

    pub(super) fn closes() {
        tracing::warn!("the brake is released: {OBJECTS} change again");
    }

    pub(super) fn show(&self, BrakeState { usage, held, cause }: &BrakeState) {
        let Self { metrics, condition } = self;
        metrics.open.set(cause.is_some().into());
        metrics.held.set(level(held.map_or(0, |(held, _)| held)));
        metrics.limit.set(level(usage.limit));
        metrics.used.set(level(usage.used));
        match (cause, held) {
            (Some(cause), _) => condition.fail(format!("open, {}", words(*cause))),
            (None, Some((count, why))) => {
                condition.fail(format!("changes of {count} {OBJECTS} are held: {why}"));
            }
            (None, None) => condition.pass(format!(
                "released; {} of at most {} {OBJECTS} have changed",
                usage.used, usage.limit
            )),
        }
    }
}
