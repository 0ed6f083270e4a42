//! `ccm_node_oldest_waiting_seconds`: how long the longest-waiting node has been
//! unschedulable.
//!
//! The histograms only count nodes that were initialised. This gauge shows a node that never
//! is.

use std::{sync::Arc, time::Duration};

use ccm_base::clock;
use ccm_controller::states::States;
use ccm_metrics::computed;
use ccm_objects::Node;
use ccm_runtime::metrics::Metrics;

use super::{Handles, intake::Intake};
use crate::metrics::State;

computed! {
    static WAITING: Duration = {
        /// Age of the oldest node with the uninitialized taint that this provider has to initialise, on the leader; 0 without one
        [ALPHA] Gauge ccm_node_oldest_waiting_seconds = |oldest| oldest.as_secs_f64();
    }
}

/// Computes the age on each scrape. A standby replica reports zero: it does not know which
/// nodes are its provider's.
pub(crate) fn collect(metrics: &Metrics, intake: Arc<Intake>, handles: Handles) {
    metrics.collect(WAITING.collector(move || {
        let oldest = if intake.leads() {
            let now = clock::wall();
            oldest(&handles.store.list(), &handles.states, |node| node.age(now))
        } else {
            Duration::ZERO
        };
        vec![(Vec::new(), oldest)]
    }));
}

/// One series without a controller, for the metrics reference.
pub(crate) fn specimen(metrics: &Metrics) {
    metrics.collect(WAITING.collector(|| vec![(Vec::new(), Duration::ZERO)]));
}

fn oldest(
    nodes: &[Arc<Node>],
    states: &States<State>,
    age: impl Fn(&Node) -> Option<Duration>,
) -> Duration {
    let ours = |node: &Node| {
        let state = states.get(&node.name);
        !matches!(state, Some(State::Foreign | State::NotOurs | State::NotSelected))
    };
    nodes
        .iter()
        .filter(|node| node.is_uninitialised() && !node.deleting && ours(node))
        .filter_map(|node| age(node))
        .max()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
