//! User-visible reports about pod CIDRs: events on nodes, and log lines.

use std::time::Duration;

use ccm_controller::{
    queue::Pace,
    reports::{Report, Reports, When},
};
use ccm_objects::Node;
use ccm_runtime::program::{Context, Program};

use super::ipam::{Foreign, Problem, Rival};

/// Upstream's reasons.
const NO_CIDRS: &str = "CIDRNotAvailable";
const NOT_WRITTEN: &str = "CIDRAssignmentFailed";

/// Upstream's component of events about pod CIDRs.
const COMPONENT: &str = "cidrAllocator";

/// Reports about the pod CIDRs of nodes.
pub(crate) struct CidrReports {
    reports: Reports,
}

impl CidrReports {
    pub(crate) fn new<P: Program>(context: &Context<P>) -> Self {
        let (events, log) =
            (context.events.for_component(COMPONENT), ccm_controller::log_here!("route_ccm::ipam"));
        Self { reports: Reports::new(events, Duration::ZERO, log) }
    }

    /// Forgets the reports about a deleted node.
    pub(crate) fn forget(&self, name: &str) {
        self.reports.memory().forget(name);
    }

    /// Reports that a node gets no pod CIDRs now. `state` does not change while the reason is the same.
    pub(crate) fn no_cidrs(&self, node: &Node, state: &str, why: &str) {
        let line = format!("node {} does not get pod CIDRs: {why}", node.name);
        let text = format!("Node {} status is now: {NO_CIDRS}: {why}", node.name);
        let report = Report::warning(NO_CIDRS, state, line).with_event(NO_CIDRS, text);
        self.reports.report(&node.reference(), When::Changed, report);
    }

    /// Reports that a node has its pod CIDRs: the end of that.
    pub(crate) fn report_assigned(&self, node: &Node) {
        let key = node.reference().key();
        for topic in [NO_CIDRS, NOT_WRITTEN] {
            if self.reports.memory().state(&key, topic).is_some() {
                self.reports.memory().changed(&key, topic, "");
            }
        }
    }

    /// Reports that a node's pod CIDRs are not written. `state` does not change while the reason is
    /// the same.
    pub(crate) fn not_written(&self, node: &Node, state: &str, why: &str, pace: Pace) {
        let name = &node.name;
        let why = format!("cannot write podCIDRs, retrying {pace}: {why}");
        let text = format!("Node {name} status is now: {NOT_WRITTEN}: {why}");
        let report = Report::warning(NOT_WRITTEN, state, format!("node {name}: {why}"));
        self.reports.report(&node.reference(), When::Changed, report.with_event(NOT_WRITTEN, text));
    }

    /// Reports what is wrong with the pod CIDRs of a node, once.
    pub(crate) fn strange(&self, node: &Node, problem: &Problem) {
        let text = problem.to_string();
        let report = Report::of_node(node, "InvalidPodCIDR", &text, &text);
        self.reports.report(&node.reference(), When::Once, report);
    }

    /// Reports that another client has given the node its pod CIDRs, once.
    pub(crate) fn foreign(&self, node: &Node, foreign: &Foreign) {
        let text = format!(
            "{foreign}: they stay, and no other node gets them; set --allocate-node-cidrs in one program only, and let nothing else write spec.podCIDRs"
        );
        let report = Report::of_node(node, "ForeignPodCIDR", &text, &text);
        self.reports.report(&node.reference(), When::Once, report);
    }

    /// Reports that another program gives nodes their pod CIDRs.
    pub(crate) fn rival(&self, node: &Node, rival: &Rival) {
        let text = rival.to_string();
        let topic = "AnotherCIDRAllocator";
        let report = Report::warning(topic, &text, &*text).with_event(topic, &*text);
        self.reports.report(&node.reference(), When::Always, report);
    }
}
