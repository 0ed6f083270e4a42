//! How long the longest-waiting node has been unschedulable: `ccm_node_oldest_waiting_seconds`, and the line
//! `new-nodes` of `/readyz?verbose`.
//!
//! The histograms only count nodes that were initialised. This gauge shows a node that never
//! is.

use std::{sync::Arc, time::Duration};

use ccm_base::{clock, duration::in_words};
use ccm_controller::states::States;
use ccm_metrics::computed;
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::{
    health::{Health, Scope, Verdict},
    metrics::Metrics,
};

use super::{Handles, intake::Intake};
use crate::metrics::State;

/// A node that is older has waited for long, as for the alert NodeCCMNodeWaiting.
const LONG: Duration = Duration::from_mins(5);

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
            waiting(&handles.store.list(), &handles.states, |node| node.age(now))
        } else {
            Waiting::default()
        };
        vec![(Vec::new(), oldest.longest)]
    }));
}

/// Shows on `/readyz?verbose` how many nodes wait. Fails if one has waited for long, unless this process only
/// observes: then another program initialises them.
pub(crate) fn show(health: &Health, intake: Arc<Intake>, handles: Handles) {
    health.add("new-nodes", Scope::Information, move || {
        if !intake.leads() {
            return Verdict::Passed("not known here: this replica does not lead".to_owned());
        }
        let now = clock::wall();
        let waiting = waiting(&handles.store.list(), &handles.states, |node| node.age(now));
        verdict(&waiting, handles.plans.is_observing())
    });
}

/// One series without a controller, for the metrics reference.
pub(crate) fn specimen(metrics: &Metrics) {
    metrics.collect(WAITING.collector(|| vec![(Vec::new(), Duration::ZERO)]));
}

/// The nodes that this program has to initialise.
#[derive(Debug, Default, PartialEq, Eq)]
struct Waiting {
    nodes: usize,
    /// The age and the name of the oldest node, and the reason why it waits, if known.
    longest: Duration,
    first: Option<(Name, &'static str)>,
}

fn waiting(
    nodes: &[Arc<Node>],
    states: &States<State>,
    age: impl Fn(&Node) -> Option<Duration>,
) -> Waiting {
    let others = [State::Foreign, State::NotOurs, State::NotSelected];
    let is_ours = |node: &Node| states.get(&node.name).is_none_or(|state| !others.contains(&state));
    let mut waiting = Waiting::default();
    for node in nodes.iter().filter(|node| node.is_uninitialised() && !node.deleting) {
        if !is_ours(node) {
            continue;
        }
        waiting.nodes += 1;
        let age = age(node).unwrap_or_default();
        if age > waiting.longest || waiting.first.is_none() {
            let why = states.get(&node.name).and_then(State::why);
            waiting.longest = age;
            waiting.first = Some((Name::clone(&node.name), why.unwrap_or("being looked up")));
        }
    }
    waiting
}

fn verdict(waiting: &Waiting, is_observing: bool) -> Verdict {
    let Waiting { nodes, longest, first } = waiting;
    let Some((name, why)) = first else {
        return Verdict::Passed("no tainted node waits for this program".to_owned());
    };
    let text =
        format!("{nodes} nodes stay tainted, longest {name} for {}: {why}", in_words(*longest));
    let is_late = *longest >= LONG && !is_observing;
    if is_late { Verdict::Failed(text) } else { Verdict::Passed(text) }
}

#[cfg(test)]
mod tests;
