//! Carries out the machine's effects. It does not decide, and remembers only requests in flight.

mod brake;
pub(crate) mod writes;

use std::sync::Arc;

use ccm_base::clock;
use ccm_cloud::Cloud;
use ccm_controller::{
    handover, instances,
    machine::Door,
    queue::{LONG_RETRY, Pace, Priority, QueueConfig, QueueMetrics, WorkQueue},
    record,
    repeat_reports::RepeatMetrics,
};
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::{
    leadership::LeaseAnnotations,
    plans::{self, Plans},
    program::{Context, Program},
};

use self::brake::BrakeLine;
pub(crate) use self::brake::{OBJECTS, specimens};
use crate::{
    machine::{
        Again, Effect, Event, Machine, Params, Pause, Queued, RETRY, Report, Request, RetryReason,
    },
    metrics::NodeMetrics,
    plan::{Field, Outcome, PROVIDER_ID, Plan, Step, TAINTS},
    report::NodeReports,
    settings::NodeSettings,
};

/// Upstream's name of the queue: the label of its metrics.
pub(crate) const QUEUE: &str = "Nodes";

/// Returns the name of a field of [`Plan::fields`] in the metric of repeated writes.
fn kind(field: &str) -> &'static str {
    match field {
        TAINTS => TAINTS,
        PROVIDER_ID => PROVIDER_ID,
        other => Field::named(other).into(),
    }
}

/// The machine, and what its effects reach.
pub(crate) struct Performer {
    door: Door<Machine>,
    cloud: Arc<dyn Cloud>,
    queue: WorkQueue<Name>,
    plans: Plans,
    reports: NodeReports,
    metrics: NodeMetrics,
    repeats: RepeatMetrics,
    lease: LeaseAnnotations,
    brake: BrakeLine,
}

impl Performer {
    pub(crate) fn new<P: Program<Settings = NodeSettings>>(
        context: &Context<P>,
        params: Params,
    ) -> Arc<Self> {
        let metrics = NodeMetrics::new(&context.metrics);
        Arc::new(Self {
            door: record::door(context, Machine::new(params)),
            cloud: Arc::clone(&context.cloud),
            queue: WorkQueue::new(QUEUE, queue_config(), &QueueMetrics::new(&context.metrics)),
            plans: context.plans.clone(),
            reports: NodeReports::new(context.events.clone(), metrics.clone()),
            repeats: RepeatMetrics::beginning(&context.metrics, "Node", "addresses"),
            lease: context.leadership.annotations().clone(),
            brake: BrakeLine::new(context),
            metrics,
        })
    }

    /// Returns the way to the machine's memory.
    pub(crate) fn door(&self) -> &Door<Machine> {
        &self.door
    }

    /// Returns the nodes that need work.
    pub(crate) fn queue(&self) -> &WorkQueue<Name> {
        &self.queue
    }

    /// Returns the metrics of the program.
    pub(crate) fn metrics(&self) -> &NodeMetrics {
        &self.metrics
    }

    /// Tells the machine of an event, and performs the effects without an answer. Returns the
    /// others.
    pub(crate) fn hear(&self, event: Event) -> Vec<Request> {
        let effects = self.door.apply(event);
        effects.into_iter().filter_map(|effect| self.perform(effect)).collect()
    }

    fn perform(&self, effect: Effect) -> Option<Request> {
        match effect {
            Effect::Queue(name, queued) => self.queued(name, queued),
            Effect::Retry(node, again, failure) => {
                let pace = self.again(Name::clone(&node.name), again);
                match failure {
                    RetryReason::Waits(wait) => self.reports.wait(&node, &wait, pace),
                    RetryReason::Refused(what, error) => {
                        self.reports.refused(&node, &what, &error, pace);
                    }
                }
            }
            Effect::Counts(state, by) => self.metrics.count(state, by),
            // The counts of all nodes are read under the machine's lock, so that they include the last event.
            Effect::TurnsWait => {
                self.door.read(|machine, _| self.metrics.corrections_wait(machine.waiting()));
            }
            Effect::BreakerOpens(cause) => self.brake.opens(cause),
            Effect::BreakerCloses => BrakeLine::closes(),
            Effect::BrakeChanges => {
                self.door.read(|machine, now| self.brake.show(&machine.brake(now)));
            }
            Effect::Leave => {
                self.door.read(|machine, _| handover::keep(&self.lease, machine.window()));
            }
            Effect::Publish(node, plan, pause) => self.publish(&node, &plan, pause),
            Effect::Clear(name) => self.plans.clear("Node", &name),
            Effect::Forget(name) => {
                self.reports.forget(&name);
                self.plans.clear("Node", &name);
                self.queue.remove(&name);
            }
            Effect::LeftOut { node, is_selected } => self.left_out(&node, is_selected),
            Effect::Report(node, report) => self.report(&node, report),
            Effect::Repeats(fields) => {
                for field in fields {
                    self.repeats.count("Node", kind(&field));
                }
            }
            Effect::HeldUnconfirmed => self.metrics.held_unconfirmed(),
            Effect::Irregular(counts) => self.metrics.irregular(&counts),
            Effect::Request(request) => return Some(request),
        }
        None
    }

    fn queued(&self, name: Name, queued: Queued) {
        match queued {
            Queued::Add(priority) => self.queue.add(name, priority),
            Queued::After(wait) => self.queue.add_after(name, wait, Priority::Routine),
            Queued::Again(again) => drop(self.again(name, again)),
            Queued::Forget => self.queue.forget(&name),
        }
    }

    fn again(&self, name: Name, again: Again) -> Pace {
        match again {
            Again::As(class) => self.queue.retry_as(name, class),
            Again::Every(wait) => self.queue.retry_every(name, wait),
            Again::Rarely => self.queue.retry_every(name, LONG_RETRY),
        }
    }

    /// Publishes a plan on the page `/plan`, or the reason why the node does not have one.
    fn publish(&self, node: &Node, plan: &Plan, pause: Option<Pause>) {
        match &plan.outcome {
            Outcome::Initialised | Outcome::InSync => {
                self.plans.set(&node.reference(), published(plan, pause));
            }
            // The report about the excluded node names its owner.
            Outcome::Foreign => {}
            outcome => self.plans.block(&node.reference(), &outcome.to_string()),
        }
    }

    fn left_out(&self, node: &Node, is_selected: bool) {
        let why = instances::why_left_out(&*self.cloud, node, is_selected);
        self.plans.block(&node.reference(), &why);
        if is_selected {
            self.reports.foreign(node, &why);
        } else {
            self.reports.not_selected(node);
        }
    }

    fn report(&self, node: &Node, report: Report) {
        let reports = &self.reports;
        match report {
            Report::Begins => NodeReports::begins(node),
            Report::Notes(plan) => reports.notes(node, &plan),
            Report::Stored(plan, step) => NodeReports::stored(node, &step, &plan.outcome),
            Report::Made(change) => reports.made(node, &change),
            Report::Untainted => {
                if let Some(age) = node.age(clock::wall()) {
                    self.metrics.initialised(age);
                }
            }
            Report::Initialised => reports.initialised(node),
            Report::NotStored(repeated) => reports.not_stored(node, &repeated),
            Report::Repeated(plan, repeated) => reports.repeated(node, &plan, &repeated),
            Report::Held(plan, hold) => reports.held(node, &plan, hold),
            Report::Skipped(outcome) => reports.skipped(node, &outcome),
            Report::Duplicate { id, names } => reports.duplicate(node, &id, &names),
        }
    }
}

/// Returns how the queue spaces its retries.
fn queue_config() -> QueueConfig {
    QueueConfig { waits: RETRY, ..QueueConfig::default() }
}

/// Returns the steps of a plan as `/plan` shows them.
fn published(plan: &Plan, pause: Option<Pause>) -> Vec<plans::Step> {
    let held = pause.and_then(Pause::held);
    let step = |step: &Step| plans::Step {
        step: step.kind(),
        changes: step.changes(),
        reason: step.reason(),
        held: held.clone(),
    };
    plan.steps.iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Quirk 15 of docs/internal/parity.md: upstream waits up to 1000 s.
    #[test]
    fn failures_are_retried_after_a_second_to_a_minute() {
        for (failures, seconds) in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (u32::MAX, 60)] {
            let wait = queue_config().waits.after(failures);
            assert_eq!(wait, Duration::from_secs(seconds), "{failures} failures");
        }
    }
}
