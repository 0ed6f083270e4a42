//! Shows the memory on metrics and pages: `ccm_inventory_*`, the page `/explain`, and how long the longest-waiting
//! node has been unschedulable: `ccm_node_oldest_waiting_seconds`, and the line `new-nodes` of `/readyz?verbose`.
//!
//! The histograms only count nodes that were initialised. This gauge also shows nodes that never
//! are.

use std::{sync::Arc, time::Duration};

use ccm_base::{clock, duration::in_words};
use ccm_controller::machine::Door;
use ccm_kube::store::Store;
use ccm_metrics::computed;
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::{
    health::{Health, Scope, Verdict},
    metrics::Metrics,
    program::{Context, Program},
};

use crate::{
    machine::{Machine, NodeState},
    settings::NodeSettings,
    translate::Translator,
};

/// A node that is older has waited for a long time, as for the alert NodeCCMNodeWaiting.
const LONG: Duration = Duration::from_mins(5);

computed! {
    static WAITING: Duration = {
        /// Age of the oldest node with the uninitialized taint that this provider has to initialise, on the leader; 0 without one
        [ALPHA] Gauge ccm_node_oldest_waiting_seconds = |oldest| oldest.as_secs_f64();
    }
}

/// The number of known instances, and the age of the last refresh.
type Instances = (usize, Option<Duration>);

computed! {
    static INVENTORY: Instances = {
        /// Instances of the cloud that are known from lookups
        [ALPHA] Gauge ccm_inventory_instances = |at| at.0 as f64;
        /// Time since the start of the last lookup of all nodes that was answered; absent before the first
        [ALPHA] Gauge ccm_inventory_age_seconds = |at| at.1.map(|age| age.as_secs_f64());
    }
}

/// Computes the metrics on each scrape. A standby replica reports the age zero: it does not know
/// which nodes belong to its provider.
pub(crate) fn collect(metrics: &Metrics, door: &Door<Machine>, store: &Store<Node>) {
    let (machine, store) = (door.clone(), store.clone());
    metrics.collect(WAITING.collector(move || {
        let oldest = waits(&machine, &store).map_or(Duration::ZERO, |waiting| waiting.longest);
        vec![(Vec::new(), oldest)]
    }));
    let machine = door.clone();
    metrics.collect(INVENTORY.collector(move || {
        let known = machine.read(|machine, now| {
            let inventory = machine.inventory();
            (inventory.len(), inventory.age(now))
        });
        vec![(Vec::new(), known)]
    }));
}

/// Shows on `/readyz?verbose` how many nodes wait. Fails if one has waited for a long time, unless
/// this process only observes: then another program initialises them.
pub(crate) fn show(health: &Health, door: &Door<Machine>, store: &Store<Node>, is_observing: bool) {
    let (machine, store) = (door.clone(), store.clone());
    health.add("new-nodes", Scope::Information, move || match waits(&machine, &store) {
        None => Verdict::Passed("not known here: this replica does not lead".to_owned()),
        Some(waiting) => verdict(&waiting, is_observing),
    });
}

/// Explains nodes on the page `/explain`, also before the first list and on a standby.
pub(crate) fn explain<P: Program<Settings = NodeSettings>>(
    context: &Context<P>,
    source: &Translator,
    door: &Door<Machine>,
) {
    let (machine, source) = (door.clone(), source.clone());
    context.explanations.add(P::IDENTITY.binary, "Node", move |name| {
        let shown = source.shown(name);
        machine.read(|machine, now| machine.explain(name, &shown, now))
    });
}

/// Creates one series of each without a controller, for the metrics reference.
pub(crate) fn specimens(metrics: &Metrics) {
    metrics.collect(WAITING.collector(|| vec![(Vec::new(), Duration::ZERO)]));
    metrics.collect(INVENTORY.collector(|| vec![(Vec::new(), (0, Some(Duration::ZERO)))]));
}

/// The nodes that this program has to initialise.
#[derive(Debug, Default, PartialEq, Eq)]
struct Waiting {
    nodes: usize,
    /// The age and the name of the oldest node, and the reason why it waits, if known.
    longest: Duration,
    first: Option<(Name, &'static str)>,
}

/// Returns the nodes that this program has to initialise now; `None` if this replica does not lead.
fn waits(door: &Door<Machine>, store: &Store<Node>) -> Option<Waiting> {
    let (nodes, now) = (store.matching(is_new), clock::wall());
    door.read(|machine, _| {
        let state = |name: &str| machine.state(name);
        machine.leads().then(|| waiting(&nodes, state, |node| node.age(now)))
    })
}

/// Returns true if the node has the taint and stays.
fn is_new(node: &Node) -> bool {
    node.is_uninitialised() && !node.deleting
}

fn waiting(
    nodes: &[Arc<Node>],
    state: impl Fn(&str) -> Option<NodeState>,
    age: impl Fn(&Node) -> Option<Duration>,
) -> Waiting {
    let others = [NodeState::Foreign, NodeState::NotOurs, NodeState::NotSelected];
    let is_ours = |node: &Node| state(&node.name).is_none_or(|state| !others.contains(&state));
    let mut waiting = Waiting::default();
    for node in nodes.iter().filter(|node| is_new(node) && is_ours(node)) {
        waiting.nodes += 1;
        let age = age(node).unwrap_or_default();
        if age > waiting.longest || waiting.first.is_none() {
            let why = state(&node.name).and_then(NodeState::why);
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
