//! Performs the effects of events.

pub(crate) mod writes;

use std::sync::Arc;

use ccm_base::clock;
use ccm_controller::{machine::log_unexpected, queue::WorkQueue};
use ccm_kube::store::Store;
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::{
    metrics::Metrics,
    plans::{Plans, Step},
    programs::NODE_IPAM,
};
use ipnet::IpNet;
use tokio::sync::Notify;

use super::{
    machine::{Effect, needs_cidrs},
    metrics::CidrMetrics,
    report::CidrReports,
};
use crate::networks::{AllocatorType, Config};

/// The kind of step on `/plan`.
const STEP: &str = "pod-cidrs";

/// Tells the routes that a node has got its pod CIDRs.
pub(crate) type Assigned = Box<dyn Fn(&Arc<Node>) + Send + Sync>;

/// The parts of the program that effects are about.
pub(crate) struct Performer {
    pub(crate) config: Config,
    pub(crate) store: Store<Node>,
    pub(crate) queue: WorkQueue<Name>,
    pub(crate) conditions: WorkQueue<Name>,
    pub(crate) reports: CidrReports,
    pub(crate) plans: Plans,
    pub(crate) metrics: CidrMetrics,
    pub(crate) process: Metrics,
    /// Wakes the task that frees blocks.
    pub(crate) wake: Notify,
    pub(crate) assigned: Option<Assigned>,
}

impl Performer {
    /// Performs these effects in order. Returns those that their caller makes: writes, and what the task that frees blocks
    /// waits for.
    pub(crate) fn perform(&self, effects: Vec<Effect>) -> Vec<Effect> {
        let requests = effects.into_iter().filter_map(|effect| self.one(effect));
        requests.collect()
    }

    fn one(&self, effect: Effect) -> Option<Effect> {
        match effect {
            Effect::Write { .. } | Effect::Leave(_) | Effect::Due(_) => return Some(effect),
            Effect::Queue(name, priority) => self.queue.add(name, priority),
            Effect::Forget(name) => self.queue.forget(&name),
            Effect::Remove(name) => {
                self.queue.remove(&name);
                self.reports.forget(&name);
            }
            Effect::RetryEvery(name, wait) => drop(self.queue.retry_every(name, wait)),
            Effect::RetryAs(name, class) => drop(self.queue.retry_as(name, class)),
            Effect::RetryRefused { name, error, told } => {
                let pace = self.queue.retry_as(name, error.class());
                if let Some(node) = told {
                    self.reports.not_written(&node, error.reason(), &error.to_string(), pace);
                }
            }
            Effect::Condition(name, priority) => self.conditions.add(name, priority),
            Effect::Show { node, cidrs, held } => self.show(&node, &cidrs, held),
            Effect::Clear(name) => self.plans.clear("Node", &name),
            Effect::WakeRelease => self.wake.notify_one(),
            Effect::Assigned(node) => {
                if let Some(assigned) = &self.assigned {
                    assigned(&node);
                }
            }
            Effect::Runs(does) => self.process.set_running(NODE_IPAM.name, does),
            Effect::Stops(does) => {
                self.metrics.stops(does);
                if !does {
                    tracing::info!("no other client assigns pod CIDRs: nodes get them again");
                }
            }
            Effect::Tried(tries) => self.metrics.tried(&self.config, &tries),
            Effect::Ended(end) => self.metrics.written(&end),
            told => self.tell(told),
        }
        None
    }

    /// Tells the user.
    fn tell(&self, effect: Effect) {
        match effect {
            Effect::Known { assigned, bare } => {
                tracing::info!(
                    "pod CIDRs of {assigned} nodes are known; {bare} nodes do not have any"
                );
            }
            Effect::Given(node) => {
                if let Some(age) = node.age(clock::wall()) {
                    self.metrics.assigned(age);
                }
                let cidrs = node.pod_cidrs.join(",");
                tracing::info!(node = &*node.name, "node {}: podCIDRs {cidrs}", node.name);
            }
            Effect::HasNone { node, state, why } => self.reports.no_cidrs(&node, &state, &why),
            Effect::HasCidrs(node) => self.reports.report_assigned(&node),
            Effect::NotStored { node, why, pace } => {
                self.reports.not_written(&node, "not_stored", &why, pace);
            }
            Effect::Strange(name, problem) => {
                if let Some(node) = self.store.get(&name) {
                    self.reports.strange(&node, &problem);
                }
            }
            Effect::Foreign(node, foreign) => {
                self.metrics.foreign();
                self.reports.foreign(&node, &foreign);
            }
            Effect::Rival(node, rival) => self.reports.rival(&node, &rival),
            other => log_unexpected(&other),
        }
    }

    /// Shows on the page `/plan` what the node gets.
    fn show(&self, node: &Node, cidrs: &[IpNet], held: Option<String>) {
        let reason = match self.config.allocator {
            AllocatorType::RangeAllocator => "the node has no podCIDRs",
            AllocatorType::CloudAllocator => "its instance has them in the cloud",
        };
        let changes = cidrs.iter().map(|cidr| format!("podCIDRs += {cidr}")).collect();
        let step = Step { step: STEP, changes, reason: reason.to_owned(), held };
        self.plans.set(&node.reference(), vec![step]);
        // This is checked afterwards, because a node that was deleted or has got its pod CIDRs in
        // the meantime must not stay on the page.
        let now = self.store.get(&node.name);
        if now.is_none_or(|now| now.uid != node.uid || !needs_cidrs(&now)) {
            self.plans.clear("Node", &node.name);
        }
    }
}
