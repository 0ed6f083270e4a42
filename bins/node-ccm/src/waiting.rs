//! `ccm_node_oldest_waiting_seconds`: how long the node that has waited longest has been
//! unschedulable.
//!
//! The histograms know only of nodes that were initialised in the end. This is what shows
//! the one that never is.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ccm_base::clock;
use ccm_metrics::computed;
use ccm_objects::Node;
use ccm_runtime::metrics::Metrics;

use crate::{controller::Controller, ledger::Ledger, metrics::State};

computed! {
    static WAITING: Duration = {
        /// Age of the oldest node that still has the uninitialized taint and is ours to initialise, on the leader; 0 without one
        [ALPHA] Gauge ccm_node_oldest_waiting_seconds = |oldest| oldest.as_secs_f64();
    }
}

/// Reads the age when it is asked for. A replica that stands by reports zero: it does not
/// know whose nodes they are.
pub(crate) fn collect(metrics: &Metrics, controller: Arc<Controller>) {
    metrics.collect(WAITING.collector(move || {
        let oldest = if controller.leads.load(Ordering::SeqCst) {
            let now = clock::wall();
            oldest(&controller.store.list(), &controller.ledger, |node| node.age(now))
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
mod tests {
    use ccm_objects::Taint;
    use ccm_objects::node_keys;

    use super::*;
    use crate::metrics::NodeMetrics;

    /// A tainted node that is this many minutes old at 12:00.
    fn tainted(name: &str, minutes: u32) -> Node {
        let created = format!("2026-01-01T11:{:02}:00Z", 60 - minutes);
        let taint = Taint {
            key: node_keys::UNINITIALIZED.into(),
            value: None,
            effect: "NoSchedule".into(),
            time_added: None,
        };
        Node {
            name: name.into(),
            created: created.parse().ok(),
            taints: vec![taint],
            ..Node::default()
        }
    }

    #[test]
    fn only_nodes_that_are_ours_to_initialise_count() {
        let ledger = Ledger::new(NodeMetrics::new(&Metrics::new()));
        ledger.set_state(&"waits".into(), State::Pending);
        ledger.set_state(&"foreign".into(), State::Foreign);
        ledger.set_state(&"elsewhere".into(), State::NotOurs);
        let check = |nodes: &[Node], minutes: u64| {
            let nodes: Vec<_> = nodes.iter().cloned().map(Arc::new).collect();
            let age = |node: &Node| node.age("2026-01-01T12:00:00Z".parse().unwrap());
            let expect = Duration::from_mins(minutes);
            assert_eq!(oldest(&nodes, &ledger, age), expect, "{nodes:?}");
        };
        check(&[], 0);
        check(&[tainted("waits", 3), tainted("unheard-of", 5), tainted("waits-2", 4)], 5);
        check(&[tainted("waits", 3), tainted("foreign", 9), tainted("elsewhere", 9)], 3);
        check(&[Node { taints: Vec::new(), ..tainted("initialised", 9) }], 0);
        check(&[Node { deleting: true, ..tainted("leaves", 9) }], 0);
        check(&[Node { created: None, ..tainted("no-date", 9) }], 0);
    }
}
