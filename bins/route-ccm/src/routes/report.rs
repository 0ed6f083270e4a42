//! User-visible reports about routes: events on nodes, and log lines.

use std::time::Duration;

use ccm_cloud::{CloudError, RouteChange};
use ccm_controller::{
    brake::Transition,
    repeat_reports::{REASON, RepeatMetrics},
    repeats::Repeated,
    reports::{Report, Reports, When},
};
use ccm_kube::ApiError;
use ccm_objects::{Node, ObjectRef};
use ccm_runtime::program::{Context, Program};

use super::plan::{
    Cause, Planned,
    wanted::{ASSIGN, Problem},
};

/// The target of log lines.
const TARGET: &str = "route_ccm::report";

/// Reports about routes and nodes.
pub(crate) struct RouteReports {
    routes: Reports,
    repeats: RepeatMetrics,
    /// The object of events that are not about a node.
    lease: ObjectRef,
}

impl RouteReports {
    pub(crate) fn new<P: Program>(context: &Context<P>) -> Self {
        let events = context.events.clone();
        let lease = {
            let election = &context.common.borrow().election;
            ObjectRef::lease(&election.namespace, &election.lease)
        };
        let routes =
            Reports::new(events, Duration::ZERO, ccm_controller::log_here!("route_ccm::report"));
        let repeats = RepeatMetrics::beginning(&context.metrics, "Node", "NetworkUnavailable");
        Self { routes, repeats, lease }
    }

    /// Forgets the reports about a deleted node.
    pub(crate) fn forget(&self, name: &str) {
        self.routes.memory().forget(name);
    }

    /// Reports that a change has failed. The text does not depend on the attempt, so that events
    /// are aggregated.
    pub(crate) fn report_failure(
        &self,
        planned: &Planned,
        node: Option<&Node>,
        error: &CloudError,
    ) {
        let words = planned.words();
        let Some(node) = node else {
            tracing::warn!(target: TARGET, "{words} failed, retrying with back-off: {error}");
            return;
        };
        let (destination, name) = (planned.change.destination(), &node.name);
        let text = format!(
            "Could not create route {destination} for node {name}, retrying with back-off: {error}"
        );
        let (topic, state) = ("FailedToCreateRoute", error.kind.reason());
        let line = format!("{words} failed, retrying with back-off: {error}");
        let report = Report::warning(topic, state, line).with_event(topic, text);
        self.routes.report(&node.reference(), When::Changed, report);
    }

    /// Reports the pod CIDRs of a node that get no route.
    pub(crate) fn problems(&self, node: &Node, problems: &[Problem]) {
        let mut texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        // The same may apply to each family.
        texts.dedup();
        let text = texts.join("; ");
        let report = Report::of_node(node, "PodCIDRWithoutRoute", &text, &text);
        self.routes.report(&node.reference(), When::Changed, report);
    }

    /// Reports that routes are held until a person approves that they go, on the node of one of them.
    pub(crate) fn waits_for_a_person(&self, node: &Node, why: &str) {
        let text = format!(
            "a route to this node is held, {why}; annotation quartet.dev/approved-selector of the Lease approves the deletion of this and other routes"
        );
        let report = Report::warning("RoutesHeld", why, &*text).with_event("RoutesHeld", &*text);
        self.routes.report(&node.reference(), When::Changed, report);
    }

    /// Reports a condition that an earlier controller of routes has left, once.
    pub(crate) fn left_over(&self, node: &Node) {
        let text = "NetworkUnavailable is True (NoRouteCreated) because of a controller that made routes for this node, and this program does not make any: pods are not scheduled here. If the pod network does not need routes of the cloud, set the condition to False";
        let report = Report::of_node(node, "NetworkUnavailableLeftOver", "left over", text);
        self.routes.report(&node.reference(), When::Once, report);
    }

    /// Reports a node without pod CIDRs that this program does not give any, once.
    pub(crate) fn bare(&self, node: &Node) {
        let text =
            format!("node {} has no podCIDRs, so it does not get a route: {ASSIGN}", node.name);
        let report = Report::warning("NoPodCIDR", "none", &*text).with_event("NoPodCIDR", &*text);
        self.routes.report(&node.reference(), When::Once, report);
    }

    /// Reports that something takes the condition of a node back.
    pub(crate) fn condition_repeated(&self, node: &Node, repeated: &Repeated) {
        self.repeats.report(&self.routes, &node.reference(), repeated);
    }

    /// Reports the same for a change of a route that the cloud has confirmed. The event is about
    /// the node that gets the route, or about the Lease: the API server has no object of a route.
    pub(crate) fn route_repeated(
        &self,
        planned: &Planned,
        node: Option<&Node>,
        repeated: &Repeated,
    ) {
        let name = planned.change.destination().to_string();
        let about = node.map_or_else(|| self.lease.clone(), Node::reference);
        self.repeats.count("Route", repeated.kind.clone());
        if repeated.is_news {
            let text = format!("Route {name}: {repeated}");
            let report = Report::warning(REASON, &repeated.kind, &*text).with_event(REASON, &*text);
            self.routes.report(&about, When::Always, report);
        }
    }

    /// Reports that the API server refuses the condition of a node.
    pub(crate) fn refused(&self, node: &Node, error: &ApiError) {
        let (name, state) = (&node.name, error.reason());
        let line = format!("node {name}: cannot write NetworkUnavailable, retrying: {error}");
        let report = Report::warning("ConditionNotWritten", state, line);
        self.routes.report(&node.reference(), When::Changed, report);
    }

    /// Reports how many changes are held; when it begins, when the number changes and every ten
    /// minutes.
    pub(crate) fn held(&self, count: usize, example: &str) {
        let table =
            ObjectRef { kind: "RouteTable", name: "routes".to_owned(), ..ObjectRef::default() };
        let state = if count == 0 { "none" } else { example };
        if count == 0 {
            self.routes.memory().changed(&table.key(), "held", state);
            return;
        }
        let line = format!(
            "{count} changes of routes are held, first: {example}; annotation quartet.dev/approved-selector of the Lease approves them"
        );
        self.routes.report(&table, When::Changed, Report::warning("held", state, line));
    }
}

/// Reports that a change is done. `replaces`: the provider replaces routes in one step. `defect`: why the route carries
/// no traffic yet.
pub(crate) fn report_change(planned: &Planned, replaces: bool, defect: Option<&str>) {
    let (words, why) = (planned.words(), &planned.why);
    let has_gap = matches!(planned.change, RouteChange::Replace { .. }) && !replaces;
    let gap = if has_gap { ", with a moment without a route" } else { "" };
    match defect {
        None => tracing::info!(target: TARGET, "{words}: done{gap} ({why})"),
        Some(defect) => {
            tracing::info!(target: TARGET, "{words}: done{gap}, does not carry traffic yet: {defect}");
        }
    }
}

/// Logs what happened to the breaker.
pub(crate) fn breaker(transition: Transition<Cause>) {
    match transition {
        Transition::Opened(Cause::NoNodes) => {
            tracing::warn!(
                target: TARGET,
                "the API server's list has no nodes, but routes exist: no route is deleted"
            );
        }
        Transition::Closed => tracing::info!(target: TARGET, "the list has nodes again"),
        Transition::StaysOpen(..) | Transition::StaysClosed => {}
    }
}
