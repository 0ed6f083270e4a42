//! Performs effects of the machine: those without an answer at once, and the others as requests.

mod cloud;
mod kubelets;
mod reports;
mod writes;

use std::sync::Arc;

use ccm_base::At;
use ccm_cloud::Cloud;
use ccm_controller::{
    fleet::Oddity, handover, instances, passes::Passes, repeat_reports::RepeatMetrics,
    reports::Reports,
};
use ccm_kube::store::Store;
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::{
    leadership::LeaseAnnotations,
    plans::Plans,
    program::{Context, Program},
};

use crate::{
    machine::{
        Effect, ShownFleet,
        effect::{Ask, Decided, NodePlan},
        event::HandoverNote,
    },
    metrics::LifecycleMetrics,
    policy::{Reason, Verdict, action::Action},
    report,
};

pub(crate) use self::{cloud::Asker, kubelets::right, reports::CloudReports, writes::Writes};

impl handover::Shorten for HandoverNote {
    fn shorten(&mut self) -> bool {
        self.deleted.sum_up()
    }
}

/// An effect whose answer is an event.
#[derive(Default)]
pub(crate) struct Requests {
    /// The questions to the cloud.
    pub(crate) ask: Option<Ask>,
    /// The kubelets whose Leases are read.
    pub(crate) leases: Vec<Name>,
    /// The writes to nodes.
    pub(crate) writes: Vec<Action>,
    /// When the next pass is due.
    pub(crate) next: Option<At>,
}

/// Performs effects.
pub(crate) struct Performer {
    pub(crate) reports: Arc<Reports>,
    pub(crate) metrics: LifecycleMetrics,
    pub(crate) cloud_reports: CloudReports,
    repeats: RepeatMetrics,
    passes: Passes,
    cloud: Arc<dyn Cloud>,
    store: Store<Node>,
    plans: Plans,
    lease: LeaseAnnotations,
}

impl Performer {
    pub(crate) fn new<P: Program>(
        context: &Context<P>,
        store: &Store<Node>,
        passes: &Passes,
    ) -> Self {
        let metrics = LifecycleMetrics::new(&context.metrics);
        Self {
            reports: report::reports(context.events.clone()),
            cloud_reports: CloudReports::new(context, metrics.clone()),
            metrics,
            repeats: RepeatMetrics::beginning(&context.metrics, "Node", "marks"),
            passes: passes.clone(),
            cloud: Arc::clone(&context.cloud),
            store: store.clone(),
            plans: context.plans.clone(),
            lease: context.leadership.annotations().clone(),
        }
    }

    /// Performs these effects in their order, except those that need an answer: it returns these.
    pub(crate) fn perform(&self, effects: Vec<Effect>) -> Requests {
        let mut requests = Requests::default();
        for effect in effects {
            match effect {
                Effect::Wake => self.passes.wake(),
                Effect::Forget(name) => {
                    self.reports.memory().forget(&name);
                    self.plans.clear("Node", &name);
                }
                Effect::Page(node, page) => self.show(&node, page),
                Effect::Clear(name) => self.plans.clear("Node", &name),
                Effect::Told(told) => report::told(&self.reports, &self.metrics, &told),
                Effect::Unmarked(name, error) => {
                    tracing::warn!(node = &*name, "node {name}: deleted without a mark: {error}");
                }
                Effect::Repeated(node, repeated) => {
                    self.repeats.report(&self.reports, &node.reference(), &repeated);
                }
                Effect::LookupsFailed { nodes, first, error } => {
                    self.cloud_reports.lookups_failed(nodes, &first, &error);
                }
                Effect::Breaker { before, after } => self.cloud_reports.breaker(before, after),
                Effect::Leave(left) => handover::keep(&self.lease, &left),
                Effect::Decided(decided) => self.decided(&decided),
                Effect::Write(action) => requests.writes.push(action),
                Effect::Ask(ask) => requests.ask = Some(ask),
                Effect::ReadLeases(names) => requests.leases = names,
                Effect::Next(at) => requests.next = Some(at),
            }
        }
        requests
    }

    /// Shows on the line `fleet` what is odd about these nodes as a whole, or the result of the
    /// last list.
    pub(crate) fn survey(&self, selected: &[Arc<Node>], shown: Option<ShownFleet>) {
        self.cloud_reports.survey(Oddity::of_ids(&*self.cloud, selected), shown);
    }

    fn show(&self, node: &Node, page: NodePlan) {
        let about = node.reference();
        match page {
            NodePlan::Steps(steps) => self.plans.set(&about, steps),
            NodePlan::Blocked(why) => self.plans.block(&about, &why),
            NodePlan::LeftOut { is_selected } => {
                self.plans.block(&about, &instances::why_left_out(&*self.cloud, node, is_selected));
            }
        }
        // Checked afterwards: a node that is deleted in the meantime must not stay on the page.
        if self.store.get(&node.name).is_none() {
            self.plans.clear("Node", &node.name);
        }
    }

    fn decided(&self, decided: &Decided) {
        let Decided { node, decision, settled, .. } = decided;
        self.metrics.decided(&decision.verdict);
        if let Some((verdict, waited)) = settled {
            self.metrics.settled(verdict, *waited);
        }
        let node = node.as_ref();
        let foreign = node.filter(|_| decision.verdict == Verdict::Keep(Reason::Foreign));
        let foreign = foreign.map(|node| report::foreign(&*self.cloud, node));
        report::decided(&self.reports, decided, foreign);
    }
}
