//! Performs the effects of events.

pub(crate) mod calls;
pub(crate) mod conditions;
mod page;

use std::sync::{Arc, OnceLock};

use ccm_base::{LogThrottle, clock};
use ccm_cloud::{Cloud, CloudError};
use ccm_controller::{machine::log_unexpected, passes::Passes, queue::WorkQueue};
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::{health::Condition, plans::Plans};
use parking_lot::Mutex;

use super::{
    machine::Effect,
    metrics::RouteMetrics,
    plan::{condition::NETWORK_UNAVAILABLE, failures::is_failure},
    report::{self, RouteReports},
};
use crate::{lease::Handover, node_ipam::NodeIpam};

/// The parts of the program that effects are about.
pub(crate) struct Performer {
    /// Wakes the loop.
    pub(crate) passes: Passes,
    /// The nodes whose condition may have to be written.
    pub(crate) conditions: WorkQueue<Name>,
    pub(crate) plans: Plans,
    pub(crate) reports: RouteReports,
    pub(crate) metrics: RouteMetrics,
    pub(crate) lines: Lines,
    pub(crate) throttle: Mutex<LogThrottle>,
    pub(crate) cloud: Arc<dyn Cloud>,
    /// Gives nodes their pod CIDRs, if this program does.
    pub(crate) ipam: Option<Arc<NodeIpam>>,
    /// The note of this leader to the next one.
    pub(crate) handover: OnceLock<Arc<Handover>>,
}

/// The lines of `/readyz?verbose`.
pub(crate) struct Lines {
    /// The health line about the list of the table.
    pub(crate) listed: Condition,
    /// The health line about held changes of routes.
    pub(crate) brake: Condition,
    /// The health line about conditions that an earlier controller has left.
    pub(crate) left_over: Condition,
}

impl Performer {
    /// Performs these effects in order. Those that the caller makes go to `request`: calls, writes, and when to look
    /// again. A call goes before the conditions that depend on its answer.
    pub(crate) fn perform(&self, effects: Vec<Effect>, request: impl FnMut(Effect)) {
        effects.into_iter().filter_map(|effect| self.one(effect)).for_each(request);
    }

    fn one(&self, effect: Effect) -> Option<Effect> {
        match effect {
            Effect::Call(_) | Effect::Write { .. } | Effect::Due(_) => return Some(effect),
            Effect::Wake => self.passes.wake(),
            Effect::Condition(name, priority) => self.conditions.add(name, priority),
            Effect::ForgetCondition(name) => self.conditions.forget(&name),
            Effect::ConditionEvery(name, wait) => drop(self.conditions.retry_every(name, wait)),
            Effect::ConditionAgain(name) => self.conditions.retry(name),
            Effect::ConditionRefused { node, error, is_told } => {
                self.conditions.retry_as(Name::clone(&node.name), error.class());
                if is_told {
                    self.reports.refused(&node, &error);
                }
            }
            Effect::Leave { deleted, networks } => {
                if let Some(handover) = self.handover.get() {
                    handover.change(|left| (left.deleted, left.networks) = (deleted, networks));
                }
            }
            Effect::Ipam(event) => {
                if let Some(ipam) = &self.ipam {
                    ipam.tell(event);
                }
            }
            Effect::Forget(name) => {
                self.reports.forget(&name);
                self.conditions.remove(&name);
            }
            Effect::Show(page) => page::show(&self.plans, &*self.cloud, page),
            Effect::Counted(counts) => self.metrics.counted(&counts),
            Effect::WriteEnded(error) => self.metrics.written(error.as_ref().map_or(Ok(()), Err)),
            Effect::Completed(node) => {
                if let Some(age) = node.age(clock::wall()) {
                    self.metrics.completed(age);
                }
            }
            told => self.tell(told),
        }
        None
    }

    /// Tells the user.
    fn tell(&self, effect: Effect) {
        match effect {
            Effect::ListEnded(answer) => self.listed(answer),
            Effect::TableKnown => tracing::info!("the route table is known"),
            Effect::Lies(witness) => tracing::warn!(
                "the cloud says that most targets of nodes' routes do not exist, such as {witness}: its answers do not prove anything"
            ),
            Effect::LookUpFailed(error) if self.throttle.lock().allow() => tracing::warn!(
                %error,
                "cannot look up instances of nodes, which shows the owners of routes without a recorded owner"
            ),
            Effect::Withdrawn(planned) => tracing::info!("{}: not due any more", planned.words()),
            Effect::Answered { .. } => self.record_answer(effect),
            Effect::RouteRepeated { planned, node, repeated } => {
                self.reports.route_repeated(&planned, node.as_deref(), &repeated);
            }
            Effect::ConditionRepeated { node, repeated } => {
                self.reports.condition_repeated(&node, &repeated);
            }
            Effect::ConditionShown(name, status) => {
                let status = status.as_str();
                tracing::info!(node = &*name, "node {name}: {NETWORK_UNAVAILABLE}={status}");
            }
            Effect::Bare(node) => self.reports.bare(&node),
            Effect::Problems(node, problems) => self.reports.problems(&node, &problems),
            Effect::WaitsForAPerson(node, why) => self.reports.waits_for_a_person(&node, &why),
            Effect::Held(count, example) => {
                self.reports.held(count, example.as_deref().unwrap_or_default());
            }
            Effect::Brake(Ok(())) => self.lines.brake.pass("no change of a route is held"),
            Effect::Brake(Err(why)) => self.lines.brake.fail(why),
            Effect::Breaker(transition) => report::breaker(transition),
            Effect::LeftOver(nodes) => self.left_over(&nodes),
            Effect::LookUpFailed(_) => {}
            other => log_unexpected(&other),
        }
    }

    /// Handles nodes that have conditions of an earlier controller.
    fn left_over(&self, nodes: &[Arc<Node>]) {
        for node in nodes {
            self.reports.left_over(node);
        }
        self.metrics.left_over(nodes.len());
        match nodes.first() {
            None => self.lines.left_over.pass("none"),
            Some(first) => self.lines.left_over.fail(format!(
                "{} nodes have NetworkUnavailable=True of a controller that made their routes, and this one does not make routes for them, first: {}",
                nodes.len(),
                first.name
            )),
        }
    }

    /// Records that a list has ended.
    fn listed(&self, answer: Result<(usize, usize, Option<String>), CloudError>) {
        self.metrics.listed(answer.as_ref().map(drop));
        match answer {
            Ok((count, _, None)) => self.lines.listed.pass(format!("{count} routes listed")),
            Ok((count, malformed, Some(first))) => {
                let unread = format!("{malformed} more cannot be read, first: {first}");
                self.lines.listed.fail(format!("{count} routes listed; {unread}"));
                tracing::warn!("{malformed} routes of the cloud cannot be read, first: {first}");
            }
            Err(error) => {
                self.lines.listed.fail(format!("cannot list the routes: {error}"));
                if self.throttle.lock().allow() {
                    tracing::warn!(%error, "cannot list the routes, retrying with back-off");
                }
            }
        }
    }

    /// Records that a change was answered.
    fn record_answer(&self, effect: Effect) {
        let Effect::Answered { planned, answer, node, replaces } = effect else { return };
        self.metrics.count_change(&planned, answer.as_ref().map(drop), replaces);
        match answer {
            Ok(defect) => report::report_change(&planned, replaces, defect.as_deref()),
            Err(error) if !is_failure(&error) => {
                tracing::debug!(%error, "{}: listing the table", planned.words());
            }
            Err(error) => self.reports.report_failure(&planned, node.as_deref(), &error),
        }
    }
}
