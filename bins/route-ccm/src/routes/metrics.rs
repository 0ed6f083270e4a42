//! The metrics of route-ccm. Upstream's metric keeps its name.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_kube::{ApiError, ApiReason};
use ccm_metrics::{Counter, Every, Family, Gauge, Histogram, computed, label, level, metrics};
use ccm_runtime::metrics::Metrics;

use super::plan::{Counts, Planned};

/// Bounds of the time from the creation of a node to its routes, in seconds.
const TO_ROUTES: [f64; 12] =
    [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];

label! {
    /// The trigger that made the program look at the routes: the period of `--route-reconciliation-period` or an answer
    /// that was not as expected, or a change of a node or a retry.
    struct Trigger { "periodic", "event" }
}
label! {
    /// The result.
    struct Outcome { "success", "error" }
}
label! {
    /// The kind of change.
    struct Operation { "create", "replace", "delete" }
}
label! {
    /// The kind of a route in the table.
    struct Kind { "ours", "defective", "unknown", "other_uid", "foreign", "other_networks" }
}
label! {
    /// The state of a node's routes.
    struct State { "complete", "incomplete", "without_pod_cidrs" }
}
label! {
    /// The reason why a node is excluded.
    struct Reason { "another_provider", "not_selected" }
}
label! {
    /// The reason why a pod CIDR does not get a route because of its node.
    struct Refused { "too_wide", "wider_than_most", "id_of_another_node", "address_of_another_node" }
}

/// The values that are computed on each scrape.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    /// How long the node that waits longest has lacked a route.
    pub(crate) longest_wait: Duration,
    /// How many routes can be added, if the cloud says so.
    pub(crate) room: Option<u32>,
}

computed! {
    static LOOK: Look = {
        /// Time for which the node that waits longest has lacked a route, on the leader; 0 without one
        [ALPHA] Gauge ccm_route_longest_wait_seconds = |look| look.longest_wait.as_secs_f64();
        /// Routes that can be added before the quota of the route table is reached, on the leader; not there if the cloud
        /// does not say it
        [ALPHA] Gauge ccm_route_table_room = |look| look.room.map(f64::from);
    }
}

/// Computes these on each scrape.
pub(crate) fn collect(metrics: &Metrics, look: impl Fn() -> Look + Send + Sync + 'static) {
    metrics.collect(LOOK.collector(move || vec![(Vec::new(), look())]));
}

metrics! {
    /// All metrics of the controller. Clones share them.
    pub(crate) struct RouteMetrics {
        /// Comparisons of the route table with the nodes: one per list (periodic) and one per call that changes routes
        /// (event), by outcome
        [ALPHA] route_controller_route_sync { trigger, outcome } => syncs: Family<Counter, (Trigger, Outcome)>,
            begin Every;
        /// Changes of routes, by result in the cloud
        [ALPHA] ccm_route_changes { operation, result } => changes: Family<Counter, (Operation, Result<(), ErrorKind>)>,
            begin (Every, Ok(()));
        /// Replacements of a route by a cloud that cannot replace in one step: for a moment the destination had no route
        [ALPHA] ccm_route_gaps => gaps: Counter;
        /// Routes by kind, on the leader: this cluster's, this cluster's without traffic, inside
        /// --cluster-cidr to an unknown target, serving nodes but made under another cluster's UID,
        /// foreign ones inside --cluster-cidr, others
        [ALPHA] ccm_route_routes { kind } => routes: Family<Gauge, Kind>;
        /// Nodes by state of their routes, on the leader
        [ALPHA] ccm_route_nodes { state } => nodes: Family<Gauge, State>;
        /// Nodes that get no route and no condition, on the leader: nodes without a provider ID of this provider in their
        /// spec.providerID, and nodes that --node-selector leaves out
        [ALPHA] ccm_route_nodes_left_out { reason } => left_out: Family<Gauge, Reason>;
        /// Pod CIDRs that get no route because of what their nodes say, on the leader: wider than --node-cidr-mask-size or
        /// --max-pod-cidr allows, wider than on most nodes, of a node that shares its provider ID or its InternalIP
        /// with another one
        [ALPHA] ccm_route_pod_cidrs_refused { reason } => refused: Family<Gauge, Refused>;
        /// Deletions and replacements of routes that are held by --route-loss, because there is no node, or until a person
        /// approves them, on the leader
        [ALPHA] ccm_route_changes_held => held: Gauge;
        /// Nodes for which this program makes no routes and whose NetworkUnavailable says that an
        /// earlier controller did not make routes, on the leader
        [ALPHA] ccm_route_conditions_left_over => left_over: Gauge;
        /// Lists of the route table, by result
        [ALPHA] ccm_route_lists { result } => lists: Family<Counter, Result<(), ErrorKind>>, begin [Ok(())];
        /// Time from the creation of a node to the moment when all its routes exist for the first
        /// time, of nodes created while this process leads
        [ALPHA] ccm_route_time_to_routes_seconds => to_routes: Histogram, bounds TO_ROUTES;
        /// Writes of the condition NetworkUnavailable, by result at the API server
        [ALPHA] ccm_route_condition_writes { result } => writes: Family<Counter, Result<(), ApiReason>>, begin [Ok(())];
    }
}

impl RouteMetrics {
    /// Records the end of a list.
    pub(crate) fn listed(&self, result: Result<(), &CloudError>) {
        self.syncs.series((Trigger("periodic"), outcome(result.is_ok()))).inc();
        self.lists.series(result.map_err(|error| error.kind)).inc();
    }

    /// Records the end of a call that changes routes.
    pub(crate) fn synced(&self, failures: usize) {
        self.syncs.series((Trigger("event"), outcome(failures == 0))).inc();
    }

    /// Records the end of a change.
    pub(crate) fn count_change(
        &self,
        planned: &Planned,
        result: Result<(), &CloudError>,
        replaces: bool,
    ) {
        let operation = planned.kind();
        if operation == "replace" && result.is_ok() && !replaces {
            self.gaps.inc();
        }
        self.changes.series((Operation(operation), result.map_err(|error| error.kind))).inc();
    }

    /// Records that a node of this age has got all its routes.
    pub(crate) fn completed(&self, age: Duration) {
        self.to_routes.observe(age.as_secs_f64());
    }

    /// Records the end of a write of the condition.
    pub(crate) fn written(&self, result: Result<(), &ApiError>) {
        self.writes.series(result.map_err(ApiReason::from)).inc();
    }

    /// Sets the number of conditions that an earlier controller has left.
    pub(crate) fn left_over(&self, count: usize) {
        self.left_over.set(level(count));
    }

    /// Sets the gauges.
    pub(crate) fn counted(&self, counts: &Counts) {
        for (kind, count) in [
            ("ours", counts.ours),
            ("defective", counts.defective),
            ("unknown", counts.unknown),
            ("other_uid", counts.lent),
            ("foreign", counts.foreign),
            ("other_networks", counts.elsewhere),
        ] {
            self.routes.series(Kind(kind)).set(level(count));
        }
        for (state, count) in [
            ("complete", counts.nodes_complete),
            ("incomplete", counts.nodes_incomplete),
            ("without_pod_cidrs", counts.nodes_without_cidrs),
        ] {
            self.nodes.series(State(state)).set(level(count));
        }
        self.left_out.series(Reason("another_provider")).set(level(counts.nodes_of_others));
        self.left_out.series(Reason("not_selected")).set(level(counts.nodes_not_selected));
        for (reason, count) in [
            ("too_wide", counts.cidrs_too_wide),
            ("wider_than_most", counts.cidrs_wider_than_most),
            ("id_of_another_node", counts.cidrs_of_same_id),
            ("address_of_another_node", counts.cidrs_of_same_address),
        ] {
            self.refused.series(Refused(reason)).set(level(count));
        }
        self.held.set(level(counts.held));
    }
}

fn outcome(is_success: bool) -> Outcome {
    Outcome(if is_success { "success" } else { "error" })
}
