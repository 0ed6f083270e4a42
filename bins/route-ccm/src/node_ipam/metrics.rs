//! The metrics of node IPAM. Upstream's metrics keep their names.

use std::time::Duration;

use ccm_controller::machine::Door;
use ccm_kube::{ApiReason, store::Store};
use ccm_metrics::{Counter, Family, Gauge, Histogram, LabelValue, Text, computed, metrics};
use ccm_objects::Node;
use ccm_runtime::{metrics::Metrics, programs::NODE_IPAM};

use super::{
    ipam::{Config, Usage},
    machine::{Machine, WriteEnd},
};

/// Bounds of the number of places that are tried for a block: upstream's.
const TRIES: [f64; 5] = [1.0, 5.0, 25.0, 125.0, 625.0];
/// Bounds of the time from the creation of a node to its pod CIDRs, in seconds.
const TO_CIDRS: [f64; 11] = [0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0];

/// The end of a write of pod CIDRs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Write {
    /// The answer of the API server.
    Answer(Result<(), ApiReason>),
    /// The API server answers that it is done, and the node in the answer has other pod CIDRs or
    /// lacks them.
    NotStored,
}

impl LabelValue for Write {
    fn text(self) -> Text {
        match self {
            Self::Answer(answer) => answer.text(),
            Self::NotStored => "not_stored".into(),
        }
    }

    fn every() -> Vec<Text> {
        let answers = <Result<(), ApiReason> as LabelValue>::every();
        answers.into_iter().chain([Self::NotStored.text()]).collect()
    }
}

metrics! {
    /// The metrics that are counted.
    pub(crate) struct CidrMetrics {
        /// Places that were looked at to find a free block of a cluster CIDR
        [ALPHA] node_ipam_controller_cidrset_allocation_tries_per_request { clusterCIDR } =>
            tries: Family<Histogram, Text>, bounds TRIES;
        /// Writes of spec.podCIDRs, by result at the API server; `not_stored`: answered as done, with a node that has not these
        [ALPHA] ccm_ipam_writes { result } => writes: Family<Counter, Write>, begin [Write::Answer(Ok(()))];
        /// Time from the creation of a node to its pod CIDRs, of nodes that got them from this process
        [ALPHA] ccm_ipam_time_to_pod_cidrs_seconds => to_cidrs: Histogram, bounds TO_CIDRS;
        /// Nodes that got pod CIDRs from another client while this process led
        [ALPHA] ccm_ipam_foreign_pod_cidrs => foreign: Counter;
        /// 1 if this process does not assign pod CIDRs any more, because another allocator is at
        /// work, 0 otherwise
        [ALPHA] ccm_ipam_stopped => stopped: Gauge;
    }
}

impl CidrMetrics {
    /// Records how blocks were found, one number per cluster CIDR.
    pub(super) fn tried(&self, config: &Config, tries: &[u32]) {
        for (range, tries) in config.ranges.iter().zip(tries) {
            self.tries.series(range.network.to_string().into()).observe(f64::from(*tries));
        }
    }

    /// Records that a node of this age has got its pod CIDRs.
    pub(super) fn assigned(&self, age: Duration) {
        self.to_cidrs.observe(age.as_secs_f64());
    }

    /// Records that a node has got pod CIDRs from another client.
    pub(super) fn foreign(&self) {
        self.foreign.inc();
    }

    /// Records if the process has stopped assigning pod CIDRs.
    pub(super) fn stops(&self, does: bool) {
        self.stopped.set(i64::from(does));
    }

    /// Records the end of a write.
    pub(super) fn written(&self, end: &WriteEnd) {
        let result = match end {
            WriteEnd::Stored => Write::Answer(Ok(())),
            WriteEnd::NotStored => Write::NotStored,
            WriteEnd::Refused(error) => Write::Answer(Err(error.into())),
        };
        self.writes.series(result).inc();
    }
}

computed! {
    static SETS: Usage { clusterCIDR } = {
        /// Blocks of a cluster CIDR that became taken, since this process leads
        [ALPHA] Counter node_ipam_controller_cidrset_cidrs_allocations = |usage| usage.allocations;
        /// Blocks of a cluster CIDR that became free, since this process leads
        [ALPHA] Counter node_ipam_controller_cidrset_cidrs_releases = |usage| usage.releases;
        /// Share of a cluster CIDR's blocks that are taken, on the leader
        [ALPHA] Gauge node_ipam_controller_cidrset_usage_cidrs = |usage| usage.fraction();
        /// Number of a cluster CIDR's blocks, on the leader; the misspelling is upstream's
        [ALPHA] Gauge node_ipam_controller_cirdset_max_cidrs = |usage| usage.capacity as f64;
    }
}

/// The nodes, counted on each scrape.
#[derive(Clone, Copy, Debug, Default)]
struct Nodes {
    bare: usize,
    waiting: usize,
    held: usize,
}

computed! {
    static NODES: Nodes = {
        /// Nodes without pod CIDRs
        [ALPHA] Gauge ccm_ipam_nodes_without_pod_cidrs = |nodes| nodes.bare as f64;
        /// Nodes that get no pod CIDRs now, because no block is free or because the cloud does not
        /// name one, on the leader
        [ALPHA] Gauge ccm_ipam_nodes_waiting = |nodes| nodes.waiting as f64;
        /// Nodes that are gone and hold their blocks until their routes are gone and the grace time is over, on the leader
        [ALPHA] Gauge ccm_ipam_nodes_held = |nodes| nodes.held as f64;
    }
}

/// Computes what is not counted.
pub(super) fn collect(metrics: &Metrics, door: &Door<Machine>, store: Store<Node>) {
    let (sets, nodes) = (door.clone(), door.clone());
    metrics.collect(SETS.collector(move || {
        let usage = sets.read(|machine, _| machine.usage()).into_iter();
        usage.map(|usage| (vec![usage.cluster.to_string().into()], usage)).collect()
    }));
    metrics.collect(NODES.collector(move || {
        let bare = store.list().iter().filter(|node| node.pod_cidrs.is_empty()).count();
        let (waiting, held) = nodes.read(|machine, _| machine.counts());
        vec![(Vec::new(), Nodes { bare, waiting, held })]
    }));
}

/// Makes one series each, for the metrics reference.
pub(crate) fn specimens(metrics: &Metrics) {
    CidrMetrics::new(metrics).specimens();
    metrics.set_running(NODE_IPAM.name, false);
    metrics.collect(NODES.collector(|| vec![(Vec::new(), Nodes::default())]));
    metrics.collect(SETS.collector(|| {
        let cluster = "10.244.0.0/16".parse();
        let usage = cluster.map(|cluster| Usage {
            cluster,
            capacity: 256,
            used: 1,
            allocations: 1,
            releases: 0,
        });
        usage.into_iter().map(|usage| (vec![usage.cluster.to_string().into()], usage)).collect()
    }));
}
