//! The metrics of route-ccm. Upstream's one keeps its name.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind, RouteChange};
use ccm_kube::{ApiError, ApiReason};
use ccm_metrics::{Counter, Every, Family, Gauge, Histogram, computed, label, level, metrics};
use ccm_runtime::metrics::Metrics;
use strum::{IntoStaticStr, VariantNames};

use super::plan::Counts;

/// Bounds of the time from the creation of a node to its routes, in seconds.
const TO_ROUTES: [f64; 12] =
    [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];

/// The trigger that made the program look at the routes.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Trigger {
    /// The period of `--route-reconciliation-period`, or an answer that was not as expected.
    Periodic,
    /// A change of a node, or a retry.
    Event,
}

/// How it ended.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Outcome {
    Success,
    Error,
}

/// The change of a route.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Operation {
    Create,
    Replace,
    Delete,
}

impl From<&RouteChange> for Operation {
    fn from(change: &RouteChange) -> Self {
        match change {
            RouteChange::Create(_) => Self::Create,
            RouteChange::Replace { .. } => Self::Replace,
            RouteChange::Delete(_) => Self::Delete,
        }
    }
}

/// The kind of a route in the table.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum Kind {
    Ours,
    Defective,
    Unknown,
    OtherUid,
    Foreign,
    OtherNetworks,
}

/// The state of a node's routes.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum State {
    Complete,
    Incomplete,
    WithoutPodCidrs,
}

/// Why a node is left out.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum Reason {
    AnotherProvider,
    NotSelected,
}

/// Why a pod CIDR gets no route because of its node.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum Refused {
    TooWide,
    WiderThanMost,
    IdOfAnotherNode,
    AddressOfAnotherNode,
}

label!(Trigger, Outcome, Operation, Kind, State, Reason, Refused);

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
        let outcome = if result.is_ok() { Outcome::Success } else { Outcome::Error };
        self.syncs.of((Trigger::Periodic, outcome)).inc();
        self.lists.of(result.map_err(|error| error.kind)).inc();
    }

    /// Records the end of a call that changes routes.
    pub(crate) fn synced(&self, failures: usize) {
        let outcome = if failures == 0 { Outcome::Success } else { Outcome::Error };
        self.syncs.of((Trigger::Event, outcome)).inc();
    }

    /// Records the end of a change.
    pub(crate) fn changed(
        &self,
        change: &RouteChange,
        result: Result<(), &CloudError>,
        replaces: bool,
    ) {
        if matches!(change, RouteChange::Replace { .. }) && result.is_ok() && !replaces {
            self.gaps.inc();
        }
        self.changes.of((change.into(), result.map_err(|error| error.kind))).inc();
    }

    /// Records that a node of this age has got all its routes.
    pub(crate) fn completed(&self, age: Duration) {
        self.to_routes.observe(age.as_secs_f64());
    }

    /// Records the end of a write of the condition.
    pub(crate) fn written(&self, result: Result<(), &ApiError>) {
        self.writes.of(result.map_err(ApiReason::from)).inc();
    }

    /// Sets the number of conditions that an earlier controller has left.
    pub(crate) fn left_over(&self, count: usize) {
        self.left_over.set(level(count));
    }

    /// Sets the gauges.
    pub(crate) fn counted(&self, counts: &Counts) {
        for (kind, count) in [
            (Kind::Ours, counts.ours),
            (Kind::Defective, counts.defective),
            (Kind::Unknown, counts.unknown),
            (Kind::OtherUid, counts.lent),
            (Kind::Foreign, counts.foreign),
            (Kind::OtherNetworks, counts.elsewhere),
        ] {
            self.routes.of(kind).set(level(count));
        }
        for (state, count) in [
            (State::Complete, counts.nodes_complete),
            (State::Incomplete, counts.nodes_incomplete),
            (State::WithoutPodCidrs, counts.nodes_without_cidrs),
        ] {
            self.nodes.of(state).set(level(count));
        }
        for (reason, count) in [
            (Reason::AnotherProvider, counts.nodes_of_others),
            (Reason::NotSelected, counts.nodes_not_selected),
        ] {
            self.left_out.of(reason).set(level(count));
        }
        for (reason, count) in [
            (Refused::TooWide, counts.cidrs_too_wide),
            (Refused::WiderThanMost, counts.cidrs_wider_than_most),
            (Refused::IdOfAnotherNode, counts.cidrs_of_same_id),
            (Refused::AddressOfAnotherNode, counts.cidrs_of_same_address),
        ] {
            self.refused.of(reason).set(level(count));
        }
        self.held.set(level(counts.held));
    }
}
