//! `ccm_node_oldest_waiting_seconds`: how long the node that has waited longest has been
//! unschedulable.
//!
//! The histograms know only of nodes that were initialised in the end. This is what shows
//! the one that never is.

use std::{sync::Arc, time::Duration};

use ccm_base::clock;
use ccm_metrics::computed;
use ccm_objects::Node;
use ccm_runtime::metrics::Metrics;

use super::{intake::Intake, ledger::Ledger};
use crate::metrics::State;

computed! {
    static WAITING: Duration = {
        /// Age of the oldest node that still has the uninitialized taint and is ours to initialise, on the leader; 0 without one
        [ALPHA] Gauge ccm_node_oldest_waiting_seconds = |oldest| oldest.as_secs_f64();
    }
}

/// Reads the age when it is asked for. A replica that stands by reports zero: it does not
/// know whose nodes they are.
pub(crate) fn collect(metrics: &Metrics, intake: Arc<Intake>, ledger: Ledger) {
    metrics.collect(WAITING.collector(move || {
        let oldest = if intake.leads() {
            let now = clock::wall();
            oldest(&intake.list(), &ledger, |node| node.age(now))
        } else {
            Duration::ZERO
        };
        vec![(Vec::new(), oldest)]
    }));
}

/// A series of it without a controller, for the reference of the metrics.
pub(crate) fn specimen(metrics: &Metrics) {
    metrics.collect(WAITING.collector(|| vec![(Vec::new(), Duration::ZERO)]));
}

fn oldest(
    nodes: &[Arc<Node>],
    ledger: &Ledger,
    age: impl Fn(&Node) -> Option<Duration>,
) -> Duration {
    let ours =
        |node: &Node| !matches!(ledger.state(&node.name), Some(State::Foreign | State::NotOurs));
    nodes
        .iter()
        .filter(|node| node.is_uninitialised() && !node.deleting && ours(node))
        .filter_map(|node| age(node))
        .max()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
