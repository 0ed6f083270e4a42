//! A [brake](crate::brake) with what a program needs around it: a line of `/readyz`, metrics, log
//! lines, the approvals on the Lease, and the budget that is left to the next leader.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
    sync::Arc,
    time::Duration,
};

use ccm_base::{At, clock::Timeline};
use ccm_kube::store::{Store, Stored};
use ccm_metrics::{Counter, Gauge, level, metrics};
use ccm_objects::Shared as Text;
use ccm_runtime::{
    health::{Condition, Scope},
    leadership::LeaseAnnotations,
    metrics::Metrics,
    program::{Context, Program},
};
use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    approvals::Approvals,
    brake::{Budget, Gathered, Pause, TooMany, Transition, approval::SetApproval},
    handover,
    queue::{Priority, WorkQueue},
};

/// The time between two looks at the approvals on the Lease: that between two renewals.
const PERIOD: Duration = Duration::from_secs(2);
/// For how long the population is not counted again.
const RECOUNT: Duration = Duration::from_secs(1);

metrics! {
    struct BrakeMetrics {
        /// Whether the brake is open: 1 while more objects would change at once than its budget allows, and none of
        /// them is changed unless approved, 0 otherwise
        [ALPHA] ccm_brake_open => open: Gauge;
        /// Openings of the brake
        [ALPHA] ccm_brake_openings => openings: Counter;
        /// Maximum number of objects that may change within the window of the brake's budget
        [ALPHA] ccm_brake_limit => limit: Gauge;
        /// Objects that have changed within the current window of the brake's budget
        [ALPHA] ccm_brake_used => used: Gauge;
        /// Objects whose change the brake holds, because it is open or its budget is used up
        [ALPHA] ccm_brake_held => held: Gauge;
    }
}

/// Registers the metrics, for the metrics reference.
pub fn specimens(metrics: &Metrics) {
    BrakeMetrics::new(metrics).specimens();
}

/// What the program guards.
pub struct Guarded {
    /// The objects, in log lines: `Ready nodes`.
    pub objects: &'static str,
    /// What would change, before "for 7 of 50": `the cloud returns other addresses`.
    pub change: &'static str,
    /// The number of objects that may change.
    pub population: Box<dyn Fn() -> usize + Send + Sync>,
    /// How many of them may change.
    pub budget: Box<dyn Fn() -> Budget + Send + Sync>,
}

/// The brake of a program. Clones share it.
#[derive(Clone)]
pub struct Guard {
    shared: Arc<Shared>,
}

struct Shared {
    guarded: Guarded,
    metrics: BrakeMetrics,
    timeline: Timeline,
    lease: LeaseAnnotations,
    /// The line `brake` of `/readyz?verbose`.
    condition: Condition,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    gathered: Gathered,
    approval: Option<SetApproval>,
    /// The population, and when it was counted.
    population: Option<(At, usize)>,
}

impl Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Guard {
    /// A brake that is not needed yet.
    pub fn new<P: Program>(context: &Context<P>, guarded: Guarded) -> Self {
        let condition = context.health.condition("brake", Scope::Information, "not needed yet");
        condition.pass("not needed yet");
        let shared = Shared {
            guarded,
            metrics: BrakeMetrics::new(&context.metrics),
            timeline: Timeline::begin(),
            lease: context.leadership.annotations().clone(),
            condition,
            state: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Continues with the budget that the last leader has left.
    pub fn take_over(&self) {
        let window = handover::found(&self.shared.lease);
        self.shared.state.lock().gathered = Gathered::resume(self.shared.timeline.now(), window);
    }

    /// Follows the approvals on the Lease until the token is cancelled. When another set is approved,
    /// the objects of this store whose change is held are queued: they may change now.
    pub async fn follow_approvals<K: Stored>(
        self,
        store: Store<K>,
        queue: WorkQueue<Text>,
        token: CancellationToken,
    ) {
        let what = self.shared.guarded.objects;
        let mut approvals = Approvals::new(&self.shared.lease, what);
        while !token.is_cancelled() {
            if approvals.read() {
                self.shared.state.lock().approval = approvals.current().cloned();
                for object in store.list().iter().filter(|object| self.is_held(object.uid())) {
                    queue.add(Text::clone(object.key()), Priority::Routine);
                }
            }
            token.run_until_cancelled(sleep(PERIOD)).await;
        }
    }

    fn is_held(&self, uid: &str) -> bool {
        self.shared.state.lock().gathered.is_held(uid)
    }

    /// What is known of the object: whether it is to be changed, and whether it is guarded still.
    pub fn note(&self, uid: &str, is_to_change: bool, is_guarded: bool) {
        match (is_to_change, is_guarded) {
            (true, _) => self.wants(uid),
            (false, true) => self.agrees(uid),
            (false, false) => self.leaves(uid),
        }
    }

    /// The object is to be changed.
    fn wants(&self, uid: &str) {
        self.change(|gathered, now| gathered.wants(now, uid));
    }

    /// The object is right as it is.
    fn agrees(&self, uid: &str) {
        if self.is_wanted(uid) {
            self.change(|gathered, _| gathered.agrees(uid));
        }
    }

    /// The object is gone, or not guarded any more.
    pub fn leaves(&self, uid: &str) {
        if self.is_wanted(uid) {
            self.change(|gathered, _| gathered.leaves(uid));
        }
    }

    /// The object was changed.
    pub fn made(&self, uid: &str) {
        self.change(|gathered, now| gathered.made(now, uid));
        self.leave();
    }

    /// Whether the object with these labels may be changed now. `is_marked`: a user has approved
    /// it by a mark.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn request(
        &self,
        uid: &str,
        labels: &BTreeMap<Text, Text>,
        is_marked: bool,
    ) -> Result<(), Pause> {
        self.wants(uid);
        let now = self.shared.timeline.now();
        let approval = self.shared.state.lock().approval.clone();
        let is_approved = is_marked || approval.is_some_and(|set| set.covers(labels));
        let (population, budget) = (self.population(now), (self.shared.guarded.budget)());
        self.change(|gathered, now| gathered.request(now, uid, population, budget, is_approved))?;
        // Before the change: the next leader should know of it even if this one dies of it.
        self.leave();
        Ok(())
    }

    /// Waits until the API server has stored the charge of the last [`Guard::request`]: changes
    /// that are decided on together share one renewal of the Lease.
    pub async fn stored(&self) {
        self.shared.lease.stored().await;
    }

    /// The time from now until then.
    pub fn until(&self, at: At) -> Duration {
        at.since(self.shared.timeline.now())
    }

    fn is_wanted(&self, uid: &str) -> bool {
        self.shared.state.lock().gathered.is_wanted(uid)
    }

    fn leave(&self) {
        handover::keep(&self.shared.lease, self.shared.state.lock().gathered.brake().window());
    }

    fn population(&self, now: At) -> usize {
        let known = self.shared.state.lock().population;
        if let Some((_, population)) = known.filter(|(at, _)| now.since(*at) < RECOUNT) {
            return population;
        }
        let population = (self.shared.guarded.population)();
        self.shared.state.lock().population = Some((now, population));
        population
    }

    /// Changes what is wanted, and reports what that means.
    fn change<R>(&self, change: impl FnOnce(&mut Gathered, At) -> R) -> R {
        let Shared { guarded: Guarded { objects, change: what, budget, .. }, metrics, .. } =
            &*self.shared;
        let (budget, now) = (budget(), self.shared.timeline.now());
        let population = self.population(now);
        let gathered = &mut self.shared.state.lock().gathered;
        let result = change(gathered, now);
        let words = |TooMany { changes, population }| {
            format!(
                "no {objects} change unless approved: {what} for {changes} of {population} {objects}"
            )
        };
        match gathered.observe(now, population, budget) {
            Transition::Opened(cause) => {
                metrics.openings.inc();
                tracing::error!("{}", words(cause));
            }
            Transition::Closed => tracing::warn!("the brake is released: {objects} change again"),
            Transition::StaysOpen(..) | Transition::StaysClosed => {}
        }
        let usage = gathered.usage(now, population, budget);
        let (held, open) = (gathered.held(), gathered.cause());
        metrics.open.set(open.is_some().into());
        metrics.held.set(level(held.map_or(0, |(held, _)| held)));
        metrics.limit.set(level(usage.limit));
        metrics.used.set(level(usage.used));
        let condition = &self.shared.condition;
        match (open, held) {
            (Some(cause), _) => condition.fail(format!("open, {}", words(cause))),
            (None, Some((count, why))) => {
                condition.fail(format!("changes of {count} {objects} are held: {why}"));
            }
            (None, None) => condition.pass(format!(
                "released; {} of at most {} {objects} have changed",
                usage.used, usage.limit
            )),
        }
        result
    }
}
