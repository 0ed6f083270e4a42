//! Makes the calls to the cloud and the writes to the API server, one step of a Service after the
//! other.
//!
//! A lane takes a batch of Services and makes at most three calls about them: what is to be created
//! or updated, whose members change, what is to be deleted. Answers are applied one by one as they
//! arrive, so a Service whose answer does not come holds its lane and nothing else. It comes back
//! on a lane of its own.

mod answers;
mod calls;
pub(crate) mod orphans;
mod page;
mod previews;
mod slow;
mod writes;

use std::{sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::{CloudError, ErrorKind, LoadBalancers};
use ccm_controller::{
    queue::{BatchWindow, BatchWindowConfig, Priority, WorkQueue},
    workers,
    writer::Writer,
};
use ccm_objects::{Service, Shared as Name};
use ccm_runtime::{leadership::LeaseAnnotations, supervisor::Supervisor};
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    machine::{Entry, Planned},
    observe::Handles,
    plan::{
        CallKind, Inputs, Known, Plan, Step,
        hangs::{Hangs, SLOW_LANES},
        members::Decision,
        not_offered,
        repeated::that_may_be_written,
        status::ID,
    },
};

/// The number of Services of one batch that are written to the API server concurrently.
const WRITES: usize = 16;
/// How long a batch waits for more Services at most. A cloud takes longer to make a load balancer.
const LONGEST_WINDOW: Duration = Duration::from_secs(1);
/// The most steps of one Service in a row.
const STEPS: usize = 8;
/// The pause before service-ccm plans a Service again whose old load balancer it deletes as an orphan.
const AFTER_ORPHAN: Duration = Duration::from_secs(1);
/// The pause before a Service is planned that the informer is reading again.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// How often members that are held are looked at again.
const HELD: Duration = Duration::from_secs(30);

/// A Service with a call to the cloud to be made.
pub(crate) struct Due {
    service: Arc<Service>,
    step: Step,
    members: Decision,
    /// True if the call may make a new load balancer in the place of the one that the Service has.
    may_replace: bool,
    inputs: Inputs,
}

/// Which queue a lane serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Normal,
    Slow,
}

/// The lanes.
pub(crate) struct Lanes {
    handles: Handles,
    writer: Writer<Service>,
    lease: LeaseAnnotations,
    hangs: Mutex<Hangs>,
    /// Wakes slow lanes that wait for their turn.
    slow_ended: Notify,
    /// Wakes slow calls about members when the cloud answers such calls again.
    answers_again: Notify,
}

impl Lanes {
    pub(crate) fn new(
        handles: &Handles,
        writer: Writer<Service>,
        lease: LeaseAnnotations,
    ) -> Arc<Self> {
        let (hangs, slow_ended, answers_again) = Default::default();
        let handles = handles.clone();
        Arc::new(Self { handles, writer, lease, hangs, slow_ended, answers_again })
    }

    /// Starts the lanes.
    pub(crate) fn start(self: &Arc<Self>, tasks: &Supervisor) {
        let run = |lane| Arc::clone(self).run(lane, tasks.token().clone());
        tasks.spawn("lanes", run(Lane::Normal));
        tasks.spawn("slow-lanes", run(Lane::Slow));
    }

    fn queue(&self, lane: Lane) -> &WorkQueue<Name> {
        match lane {
            Lane::Normal => &self.handles.queue,
            Lane::Slow => &self.handles.slow,
        }
    }

    /// Runs until the token is cancelled; takes no more Services once the queue is shut down.
    async fn run(self: Arc<Self>, lane: Lane, token: CancellationToken) {
        let config = BatchWindowConfig { most: LONGEST_WINDOW, ..BatchWindowConfig::default() };
        let batches = stream::unfold(BatchWindow::new(config), async |mut window| {
            let most = match lane {
                Lane::Normal => self.batch_size(),
                Lane::Slow => 1,
            };
            if lane == Lane::Slow {
                self.turn().await;
            }
            let batch = self.queue(lane).get_batch(most, &mut window).await?;
            if lane == Lane::Slow {
                self.slow_lane(|hangs| hangs.begins(self.handles.timeline.now()));
            }
            Some((batch, window))
        });
        let lanes = || match lane {
            Lane::Normal => self.handles.settings.borrow().concurrent_service_syncs,
            Lane::Slow => SLOW_LANES as usize,
        };
        let work = |batch| Arc::clone(&self).process(lane, batch);
        workers::pool(batches, lanes, token, work).await;
    }

    fn batch_size(&self) -> usize {
        self.handles.load_balancers().map_or(1, |one| one.traits().max_batch).max(1)
    }

    async fn process(self: Arc<Self>, lane: Lane, batch: Vec<Name>) {
        let due: Vec<Due> = stream::iter(batch)
            .map(|name| self.advance(lane, name))
            .buffer_unordered(WRITES)
            .filter_map(std::future::ready)
            .collect()
            .await;
        // On the heap: the futures of the calls are large.
        Box::pin(self.call(lane, due)).await;
        if lane == Lane::Slow {
            self.slow_lane(Hangs::ends);
        }
    }

    /// Plans a Service and makes its writes to the API server, until a call to the cloud is due or
    /// nothing is. Returns the call; otherwise the Service is given back to its queue.
    async fn advance(&self, lane: Lane, name: Name) -> Option<Due> {
        let due = self.steps(lane, &name).await;
        if due.is_none() {
            self.queue(lane).done(&name);
        }
        due
    }

    async fn steps(&self, lane: Lane, name: &Name) -> Option<Due> {
        for _ in 0..STEPS {
            let Some(service) = self.handles.services.get(name) else {
                self.forget(name);
                return None;
            };
            if self.is_on_wrong_lane(lane, name) || self.waits_for_deletion(lane, &service) {
                return None;
            }
            let balancers = self.balancers_for(lane, &service).await?;
            let planned = self.handles.plan(&service, &*balancers);
            self.publish(&service, &planned);
            self.report(&service, &planned);
            let Planned { plan, members, unclaimed, may_replace, held_replacement, inputs, .. } =
                planned;
            let Plan::Next(step) = plan else {
                if self.ends_wait(&service) {
                    continue;
                }
                let held_until = held_replacement.map(|(_, until)| until);
                self.rest(lane, &service, &plan, &members, (inputs, held_until));
                self.unclaimed(lane, &service, unclaimed);
                return None;
            };
            let Some(step) = self.allowed(&service, step) else {
                self.queue(lane).forget(name);
                return None;
            };
            match step {
                Step::Protect | Step::Release | Step::Write(_) => {
                    if !self.write(lane, &service, &step).await {
                        return None;
                    }
                    if service.deleting && step == Step::Release {
                        // The store may show it until the watch reports its end.
                        self.forget(name);
                        return None;
                    }
                }
                step => return Some(Due { service, step, members, may_replace, inputs }),
            }
        }
        // Others change this Service as fast as this program does.
        self.queue(lane).retry(Name::clone(name));
        None
    }

    /// Reports what is wrong with a Service, and what is held.
    fn report(&self, service: &Service, planned: &Planned) {
        let reports = &self.handles.reports;
        if let Some(why) = &planned.held_release {
            reports.release_held(service, why);
        }
        if let Some(why) = &planned.full {
            reports.full(service, why);
        }
        if let Some((why, _)) = &planned.held_replacement {
            reports.replacement_held(service, why);
        }
        if service.is_load_balancer && planned.plan != Plan::NotOurs {
            reports.problems(service, &planned.problems);
        }
        reports.refused_parts(service, &planned.refused);
    }

    /// The provider's load balancers, if this Service can be planned now.
    async fn balancers_for(&self, lane: Lane, service: &Service) -> Option<Arc<dyn LoadBalancers>> {
        let balancers = match self.handles.load_balancers() {
            Ok(balancers) => balancers,
            Err(error) => {
                Box::pin(self.without_load_balancers(lane, service, &error)).await;
                return None;
            }
        };
        let is_read = self.handles.is_read(service, &balancers.traits());
        if !is_read {
            let name = Name::clone(&service.key);
            self.queue(lane).add_after(name, READ_AGAIN, Priority::Routine);
        }
        is_read.then_some(balancers)
    }

    /// The provider offers no load balancers, or it is not known whether it does. The Service is
    /// looked at again later; if it is served, it says so.
    async fn without_load_balancers(&self, lane: Lane, service: &Service, error: &CloudError) {
        let queue = self.queue(lane);
        let pace = queue.retry_as(Name::clone(&service.key), error.class());
        if error.kind != ErrorKind::Unsupported || self.handles.plans.is_observing() {
            return;
        }
        let written = self.handles.balancers.with(service, |entry| entry.state().condition_written);
        let (classes, now) = (self.handles.classes(), self.handles.timeline.now());
        let change = not_offered(service, &classes, &error.message, written, now);
        let Some(change) = change else { return };
        let change = self
            .handles
            .balancers
            .with(service, |entry| that_may_be_written(&entry.state().repeats, now, change));
        let wants = service.is_load_balancer && !service.deleting;
        let call = if wants { CallKind::Ensure } else { CallKind::Delete };
        self.handles.reports.failed(service, call, &Decision::default(), error, pace);
        if !change.is_empty() {
            self.write(lane, service, &Step::Write(change)).await;
        }
    }

    /// The step, or what an observer does instead of it.
    fn allowed(&self, service: &Service, step: Step) -> Option<Step> {
        match self.handles.plans.is_observing() {
            true => self.observed(service, step),
            false => Some(step),
        }
    }

    /// What an observer does instead of this step.
    fn observed(&self, service: &Service, step: Step) -> Option<Step> {
        let front_end = match step {
            Step::Preview(front_end) => return Some(Step::Preview(front_end)),
            Step::Ensure(front_end) => front_end,
            _ => return None,
        };
        let is_known =
            self.handles.balancers.with(service, |entry| entry.state().is_previewed(&front_end));
        (!is_known).then_some(Step::Preview(front_end))
    }

    /// Passes a Service on to the queue that is to serve it.
    fn is_on_wrong_lane(&self, lane: Lane, name: &Name) -> bool {
        let slow = self.handles.balancers.with_name(name, |entry| entry.slow());
        let right = if slow.flatten().is_some() { Lane::Slow } else { Lane::Normal };
        if right == lane {
            return false;
        }
        self.queue(right).add(Name::clone(name), Priority::Urgent);
        true
    }

    /// Delays a Service while service-ccm deletes its old load balancer as an orphan.
    fn waits_for_deletion(&self, lane: Lane, service: &Service) -> bool {
        let is_called = self.handles.orphans.lock().is_called(&service.uid);
        if is_called {
            let name = Name::clone(&service.key);
            self.queue(lane).add_after(name, AFTER_ORPHAN, Priority::Routine);
        }
        is_called
    }

    /// Ends a wait for the cloud that is over and after which no call is due.
    fn ends_wait(&self, service: &Service) -> bool {
        let now = self.handles.timeline.now();
        self.handles.balancers.with(service, |entry| entry.ends_wait(now))
    }

    /// Nothing is due now.
    fn rest(
        &self,
        lane: Lane,
        service: &Service,
        plan: &Plan,
        members: &Decision,
        (inputs, held_until): (Inputs, Option<At>),
    ) {
        self.handles.reports.held(service, members);
        let (queue, name, now) = (self.queue(lane), &service.key, self.handles.timeline.now());
        let held = (!members.held.is_empty()).then(|| now + HELD);
        let due =
            self.handles.balancers.with(service, |entry| entry.state().next_look(inputs, now));
        // The queue keeps one time for each Service, the earliest: the others follow from here.
        if let Some(due) = held.into_iter().chain(due).chain(held_until).min() {
            queue.add_after(Name::clone(name), due.since(now), Priority::Routine);
        }
        if matches!(plan, Plan::Settled | Plan::NotOurs) {
            queue.forget(name);
        }
        let is_there = |entry: &mut Entry| matches!(entry.state().known, Known::There(_));
        // service-ccm deletes this load balancer when the other controller has made its own one.
        let is_moving =
            service.annotation(ID).is_none() && self.handles.balancers.with(service, is_there);
        if *plan == Plan::NotOurs && !is_moving {
            self.handles.balancers.machine().forget(name);
        }
    }

    /// Reports a finalizer that no known controller removes, once it has stayed for long enough.
    fn unclaimed(&self, lane: Lane, service: &Service, why: Option<String>) {
        let Handles { unclaimed, timeline, reports, .. } = &self.handles;
        let Some(why) = why else { return unclaimed.forget(&service.key) };
        let now = timeline.now();
        let due = unclaimed.seen(service, now);
        if now < due {
            let name = Name::clone(&service.key);
            self.queue(lane).add_after(name, due.since(now), Priority::Routine);
        } else {
            reports.unclaimed(service, &why);
        }
    }

    fn forget(&self, name: &Name) {
        self.handles.balancers.machine().remove(name);
        self.handles.unclaimed.forget(name);
        self.handles.reports.forget(name);
        self.handles.plans.clear("Service", name);
        self.handles.queue.remove(name);
        self.handles.slow.remove(name);
    }
}
