//! Performs the effects of events that do not need an answer: reports, metrics, pages, work for
//! queues, wake-ups. The others are requests, which `requests` makes.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::ClusterId;
use ccm_controller::{
    handover,
    machine::Door,
    passes::Passes,
    queue::{KeyRate, QueueConfig, QueueMetrics, WorkQueue},
    record,
    repeat_reports::RepeatMetrics,
};
use ccm_objects::{ObjectRef, Shared as Name};
use ccm_runtime::{
    health::{Condition, Scope},
    leadership::LeaseAnnotations,
    plans::Plans,
    program::{Context, Program},
};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::sleep_until};

use crate::{
    machine::{
        Machine, RETRY,
        effect::{Effect, HealthLine, Lane, LogLevel, PlanPage, Task, Turn},
        event::Event,
        left::LeaderNote,
    },
    metrics::ServiceMetrics,
    report::ServiceReports,
    settings::ServiceSettings,
};

/// Upstream's name of the queue: the label of its metrics.
pub(crate) const QUEUE: &str = "service";
/// The queue of Services whose last call to the cloud did not return in time.
pub(crate) const SLOW_QUEUE: &str = "service-slow";
/// The kind of load balancers without a Service on the page `/plan`.
const LOAD_BALANCER: &str = "LoadBalancer";
/// How often a Service may change before each change waits, and for how long it waits.
const CHANGES: KeyRate = KeyRate { burst: 5, interval: Duration::from_secs(10) };

/// Performs the effects of events.
pub(crate) struct Performer {
    pub(crate) door: Door<Machine>,
    pub(crate) cluster: ClusterId,
    pub(crate) queue: WorkQueue<Name>,
    pub(crate) slow: WorkQueue<Name>,
    pub(crate) wakes: Wakes,
    pub(crate) lease: LeaseAnnotations,
    /// Is held while a note for the next leader is made.
    pub(crate) noting: Mutex<()>,
    pub(crate) metrics: ServiceMetrics,
    reports: ServiceReports,
    repeats: RepeatMetrics,
    plans: Plans,
    listed: Condition,
    orphans: Condition,
}

/// Wakes the tasks.
#[derive(Default)]
pub(crate) struct Wakes {
    pub(crate) audit: Passes,
    pub(crate) orphans: Passes,
    pub(crate) poll: Notify,
    pub(crate) note: Notify,
    pub(crate) nodes: Notify,
}

impl Performer {
    /// Begins with this machine.
    pub(crate) fn new<P>(context: &Context<P>, cluster: ClusterId, machine: Machine) -> Arc<Self>
    where
        P: Program<Settings = ServiceSettings>,
    {
        let queues = QueueMetrics::new(&context.metrics);
        let config = || QueueConfig { waits: RETRY, key_rate: CHANGES, ..QueueConfig::default() };
        let line = |name| {
            let line = context.health.condition(name, Scope::Information, "not listed yet");
            line.pass("not listed here: this replica does not lead");
            line
        };
        Arc::new(Self {
            door: record::door(context, machine),
            cluster,
            queue: WorkQueue::grouped(QUEUE, config(), &queues, namespace),
            slow: WorkQueue::grouped(SLOW_QUEUE, config(), &queues, namespace),
            wakes: Wakes::default(),
            lease: context.leadership.annotations().clone(),
            noting: Mutex::default(),
            metrics: ServiceMetrics::new(&context.metrics),
            reports: ServiceReports::new(context.events.clone()),
            repeats: RepeatMetrics::beginning(&context.metrics, "Service", "finalizer"),
            plans: context.plans.clone(),
            listed: line("load-balancers"),
            orphans: line("orphans"),
        })
    }

    /// Begins to lead with this replica.
    pub(crate) fn start_leading(&self) {
        self.listed.pass("not listed yet");
    }

    /// Waits until this moment, or forever without one.
    pub(crate) async fn until(&self, due: Option<At>) {
        match due {
            Some(due) => sleep_until(self.door.timeline().instant(due)).await,
            None => std::future::pending().await,
        }
    }

    /// Returns the queue of a lane.
    pub(crate) fn queue(&self, lane: Lane) -> &WorkQueue<Name> {
        match lane {
            Lane::Normal => &self.queue,
            Lane::Slow => &self.slow,
        }
    }

    /// Applies an event, and performs its effects in their order. Returns the requests, whose answers are events.
    pub(crate) fn apply(&self, event: Event) -> Vec<Effect> {
        let effects = self.door.apply(event);
        effects.into_iter().filter_map(|effect| self.perform(effect)).collect()
    }

    fn perform(&self, effect: Effect) -> Option<Effect> {
        match effect {
            Effect::Queue(name, lane, turn) => self.turn(name, lane, turn),
            Effect::Wake(task) => self.wake(task),
            Effect::Tell(service, what) => self.reports.tell(&service, &what, &self.repeats),
            Effect::TellOrphan(what) => self.reports.tell_orphan(what, &self.cluster),
            Effect::Log(level, service, text) => log(level, service, &text),
            Effect::Show(shown) => self.show(shown),
            Effect::ForgetReports(name) => self.reports.forget(&name),
            Effect::Count(count) => self.metrics.count(&count),
            Effect::Health(line, state) => {
                let line = match line {
                    HealthLine::LoadBalancers => &self.listed,
                    HealthLine::Orphans => &self.orphans,
                };
                match state {
                    Ok(text) => line.pass(text),
                    Err(text) => line.fail(text),
                }
            }
            Effect::Leave(left) => handover::keep(&self.lease, &*left),
            request => return Some(request),
        }
        None
    }

    fn turn(&self, name: Name, lane: Lane, turn: Turn) {
        let queue = self.queue(lane);
        match turn {
            Turn::Now(priority) => queue.add(name, priority),
            Turn::Paced(priority) => queue.add_paced(name, priority),
            Turn::After(wait, priority) => queue.add_after(name, wait, priority),
            Turn::Failed(class) => drop(queue.retry_as(name, class)),
            Turn::Well => queue.forget(&name),
            Turn::Gone => queue.remove(&name),
        }
    }

    /// Wakes a task.
    pub(crate) fn wake(&self, task: Task) {
        let Wakes { audit, orphans, poll, note, nodes } = &self.wakes;
        match task {
            Task::Audit => audit.wake(),
            Task::Orphans => orphans.wake(),
            Task::Poll => poll.notify_one(),
            Task::Note => note.notify_one(),
            Task::Nodes => nodes.notify_one(),
        }
    }

    fn show(&self, shown: PlanPage) {
        match shown {
            PlanPage::Service(service, steps) => self.plans.set(&service.reference(), steps),
            PlanPage::Blocked(service, why) => self.plans.block(&service.reference(), &why),
            PlanPage::Orphan(id, step) => {
                let orphan = ObjectRef { kind: LOAD_BALANCER, name: id, ..ObjectRef::default() };
                self.plans.set(&orphan, vec![step]);
            }
            PlanPage::NoService(name) => self.plans.clear("Service", &name),
            PlanPage::NoOrphan(id) => self.plans.clear(LOAD_BALANCER, &id),
        }
    }
}

fn log(level: LogLevel, service: Option<Name>, text: &str) {
    let service = service.as_deref();
    match level {
        LogLevel::Info => tracing::info!(service, "{text}"),
        LogLevel::Warn => tracing::warn!(service, "{text}"),
    }
}

impl handover::Shorten for LeaderNote {
    fn shorten(&mut self) -> bool {
        Self::shorten(self)
    }
}

/// Returns the group of a Service in the queues: tenants take turns.
fn namespace(key: &Name) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.split('/').next().hash(&mut hasher);
    hasher.finish()
}
