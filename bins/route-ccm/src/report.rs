//! User-visible reports: events on nodes, and log lines.

use std::time::Duration;

use ccm_cloud::CloudError;
use ccm_controller::{
    brake::Transition,
    queue::Pace,
    reports::{Report, Reports, When},
};
use ccm_kube::{ApiError, events::EventRecorder};
use ccm_objects::{Node, ObjectRef};

use crate::{
    ipam::{self, Rival},
    plan::{Cause, Planned, wanted::Problem},
};

/// Upstream's reasons.
const NO_CIDRS: &str = "CIDRNotAvailable";
const NOT_WRITTEN: &str = "CIDRAssignmentFailed";

/// Reports about routes and nodes.
pub(crate) struct RouteReports(Reports);

impl RouteReports {
    pub(crate) fn new(events: EventRecorder) -> Self {
        Self(Reports::new(events, Duration::ZERO))
    }

    /// Forgets the reports about a deleted node.
    pub(crate) fn forget(&self, name: &str) {
        self.0.memory().forget(name);
    }

    /// Reports that a change has failed. The text does not depend on the attempt, so that events
    /// are aggregated.
    pub(crate) fn failed(&self, planned: &Planned, node: Option<&Node>, error: &CloudError) {
        let words = planned.words();
        let Some(node) = node else {
            tracing::warn!("{words} failed, retrying with back-off: {error}");
            return;
        };
        let (destination, name) = (planned.change.destination(), &node.name);
        let text = format!(
            "Could not create route {destination} for node {name}, retrying with back-off: {error}"
        );
        let report = Report {
            topic: "FailedToCreateRoute",
            state: error.kind.reason(),
            warning: true,
            line: format!("{words} failed, retrying with back-off: {error}"),
            event: Some(("FailedToCreateRoute", text)),
            ..Report::default()
        };
        self.0.report(&node.reference(), When::Changed, report);
    }

    /// Reports a pod CIDR that gets no route.
    pub(crate) fn problem(&self, node: &Node, problem: &Problem) {
        let text = problem.to_string();
        let report = Report {
            topic: "PodCIDRWithoutRoute",
            state: &text,
            warning: true,
            line: format!("node {}: {text}", node.name),
            event: Some(("PodCIDRWithoutRoute", text.clone())),
            ..Report::default()
        };
        self.0.report(&node.reference(), When::Changed, report);
    }

    /// Reports that a node gets no pod CIDRs now. `state` does not change while the reason is the same.
    pub(crate) fn no_cidrs(&self, node: &Node, state: &str, why: &str) {
        let text = format!("Node {} status is now: {NO_CIDRS}: {why}", node.name);
        let report = Report {
            topic: NO_CIDRS,
            state,
            warning: true,
            line: format!("node {} gets no pod CIDRs: {why}", node.name),
            event: Some((NO_CIDRS, text)),
            ..Report::default()
        };
        self.0.report(&node.reference(), When::Changed, report);
    }

    /// A node has its pod CIDRs: the end of that.
    pub(crate) fn has_cidrs(&self, node: &Node) {
        let key = node.reference().key();
        for topic in [NO_CIDRS, NOT_WRITTEN] {
            if self.0.memory().state(&key, topic).is_some() {
                self.0.memory().changed(&key, topic, "");
            }
        }
    }

    /// Reports that the API server does not carry out the write of a node's pod CIDRs.
    pub(crate) fn cidrs_not_written(&self, node: &Node, error: &ApiError, pace: Pace) {
        let name = &node.name;
        let why = format!("cannot write podCIDRs, retrying {pace}: {error}");
        let text = format!("Node {name} status is now: {NOT_WRITTEN}: {why}");
        let report = Report {
            topic: NOT_WRITTEN,
            state: error.reason(),
            warning: true,
            line: format!("node {name}: {why}"),
            event: Some((NOT_WRITTEN, text)),
            ..Report::default()
        };
        self.0.report(&node.reference(), When::Changed, report);
    }

    /// Reports what is wrong with the pod CIDRs of a node, once.
    pub(crate) fn strange_cidrs(&self, node: &Node, problem: &ipam::Problem) {
        let text = problem.to_string();
        let report = Report {
            topic: "InvalidPodCIDR",
            state: &text,
            warning: true,
            line: format!("node {}: {text}", node.name),
            event: Some(("InvalidPodCIDR", text.clone())),
            ..Report::default()
        };
        self.0.report(&node.reference(), When::Once, report);
    }

    /// Reports that another program gives nodes their pod CIDRs.
    pub(crate) fn rival(&self, node: &Node, rival: &Rival) {
        let text = rival.to_string();
        let report = Report {
            topic: "AnotherCIDRAllocator",
            state: &text,
            warning: true,
            line: text.clone(),
            event: Some(("AnotherCIDRAllocator", text.clone())),
            ..Report::default()
        };
        self.0.report(&node.reference(), When::Once, report);
    }

    /// Reports that the API server refuses the condition of a node.
    pub(crate) fn refused(&self, node: &Node, error: &ApiError) {
        let report = Report {
            topic: "ConditionNotWritten",
            state: error.reason(),
            warning: true,
            line: format!("node {}: cannot write NetworkUnavailable, retrying: {error}", node.name),
            ..Report::default()
        };
        self.0.report(&node.reference(), When::Changed, report);
    }

    /// Reports how many changes are held; when it begins, when the number changes and every ten
    /// minutes.
    pub(crate) fn held(&self, count: usize, example: &str) {
        let table =
            ObjectRef { kind: "RouteTable", name: "routes".to_owned(), ..ObjectRef::default() };
        let state = if count == 0 { "none" } else { example };
        if count == 0 {
            self.0.memory().changed(&table.key(), "held", state);
            return;
        }
        let line = format!(
            "{count} changes of routes are held, first: {example}; annotation quartet.dev/approved-selector of the Lease approves them"
        );
        let report = Report { topic: "held", state, warning: true, line, ..Report::default() };
        self.0.report(&table, When::Changed, report);
    }
}

/// Reports that a change is done.
pub(crate) fn changed(planned: &Planned, has_gap: bool) {
    let (words, why) = (planned.words(), &planned.why);
    if has_gap {
        tracing::info!("{words}: done, with a moment without a route ({why})");
    } else {
        tracing::info!("{words}: done ({why})");
    }
}

/// Logs what happened to the breaker.
pub(crate) fn breaker(transition: Transition<Cause>) {
    match transition {
        Transition::Opened(Cause::NoNodes) => {
            tracing::warn!(
                "the API server lists no node, but there are routes: no route is deleted"
            );
        }
        Transition::Closed => tracing::info!("there are nodes again"),
        Transition::StaysOpen(..) | Transition::StaysClosed => {}
    }
}
