//! The brake over changes of Ready nodes: one wrong answer of the cloud must not reach the whole
//! fleet.

use std::{sync::Arc, time::Duration};

use ccm_base::{At, clock::Timeline};
use ccm_cloud::{Claim, Cloud};
use ccm_controller::{
    approvals::Approvals,
    brake::{Gathered, Pause, TooMany, Transition, approval::SetApproval},
    handover, instances,
    queue::{Priority, WorkQueue},
};
use ccm_kube::store::Store;
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::{
    health::{Condition, Scope},
    leadership::LeaseAnnotations,
    program::{Context, Program},
};
use parking_lot::Mutex;
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    metrics::NodeMetrics,
    plan::{Plan, is_approved},
    settings::NodeSettings,
};

/// The time between two looks at the approvals of the Lease: that between two renewals.
const PERIOD: Duration = Duration::from_secs(2);
/// For how long the number of Ready nodes is not counted again.
const RECOUNT: Duration = Duration::from_secs(1);

/// The brake. Clones share it.
#[derive(Clone)]
pub(crate) struct FleetBrake {
    cloud: Arc<dyn Cloud>,
    store: Store<Node>,
    settings: watch::Receiver<Arc<NodeSettings>>,
    metrics: NodeMetrics,
    timeline: Timeline,
    lease: LeaseAnnotations,
    /// The line `brake` of `/readyz?verbose`.
    condition: Condition,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    gathered: Gathered,
    approval: Option<SetApproval>,
    /// The number of Ready nodes, and when they were counted.
    ready: Option<(At, usize)>,
}

impl FleetBrake {
    pub(crate) fn new<P: Program<Settings = NodeSettings>>(
        context: &Context<P>,
        store: &Store<Node>,
        metrics: &NodeMetrics,
    ) -> Self {
        let condition = context.health.condition("brake", Scope::Information, "not needed yet");
        condition.pass("not needed yet");
        Self {
            cloud: Arc::clone(&context.cloud),
            store: store.clone(),
            settings: context.settings.clone(),
            metrics: metrics.clone(),
            timeline: Timeline::begin(),
            lease: context.leadership.annotations().clone(),
            condition,
            state: Arc::default(),
        }
    }

    /// Takes over what the last leader has left, and follows the approvals of the Lease until the
    /// token is cancelled.
    pub(crate) async fn run(self, queue: WorkQueue<Name>, token: CancellationToken) {
        let mut approvals = Approvals::new(&self.lease, "held changes of Ready nodes");
        let work = async {
            loop {
                if let Some(approval) = approvals.changed() {
                    self.state.lock().approval = approval;
                    for node in self.store.list() {
                        if self.state.lock().gathered.is_held(&node.uid) {
                            queue.add(Arc::clone(&node.name), Priority::Routine);
                        }
                    }
                }
                sleep(PERIOD).await;
            }
        };
        token.run_until_cancelled(work).await;
    }

    /// Continues with the budget that the last leader has left.
    pub(crate) fn take_over(&self) {
        let window = handover::found(&self.lease);
        self.state.lock().gathered = Gathered::resume(self.timeline.now(), window);
    }

    /// Notes what the cloud's last answer about an initialised node means for it.
    pub(crate) fn note(&self, node: &Node, plan: &Plan) {
        let needed = plan.needs_brake();
        if !needed && !self.state.lock().gathered.is_wanted(&node.uid) {
            return;
        }
        self.change(|gathered, now| match (needed, node.is_ready()) {
            (true, _) => gathered.wants(now, &node.uid),
            (false, true) => gathered.agrees(&node.uid),
            (false, false) => gathered.leaves(&node.uid),
        });
    }

    /// The node is gone.
    pub(crate) fn forget(&self, node: &Node) {
        self.change(|gathered, _| gathered.leaves(&node.uid));
    }

    /// A part of the plan was written.
    pub(crate) fn written(&self, node: &Node, plan: &Plan) {
        if plan.needs_brake() {
            self.change(|gathered, now| gathered.made(now, &node.uid));
            self.leave();
        }
    }

    /// Whether the plan of an initialised node may be executed now.
    ///
    /// # Errors
    ///
    /// Why not.
    pub(crate) fn check(&self, node: &Node, plan: &Plan) -> Result<(), Pause> {
        self.note(node, plan);
        if !plan.needs_brake() {
            return Ok(());
        }
        let (budget, now) = (self.settings.borrow().budget(), self.timeline.now());
        let is_approved = is_approved(node)
            || self.state.lock().approval.as_ref().is_some_and(|set| set.covers(now, &node.labels));
        let ready = self.ready(now);
        let request = |gathered: &mut Gathered, now| {
            gathered.request(now, &node.uid, ready, budget, is_approved)
        };
        let answer = self.change(request);
        if answer.is_ok() {
            // Before the write: the next leader is to know of it even if this one dies meanwhile.
            self.leave();
        }
        answer
    }

    /// The time until then.
    pub(crate) fn until(&self, at: At) -> Duration {
        at.since(self.timeline.now())
    }

    fn leave(&self) {
        handover::keep(&self.lease, self.state.lock().gathered.brake().window());
    }

    /// Changes what is wanted, and reports what that means for all.
    fn change<R>(&self, change: impl FnOnce(&mut Gathered, At) -> R) -> R {
        let (budget, now) = (self.settings.borrow().budget(), self.timeline.now());
        let ready = self.ready(now);
        let state = &mut *self.state.lock();
        let result = change(&mut state.gathered, now);
        match state.gathered.observe(now, ready, budget) {
            Transition::Opened(cause) => {
                self.metrics.brake_opened();
                tracing::error!("no Ready node is changed unless approved: {}", words(cause));
            }
            Transition::Closed => tracing::warn!("the brake is released: Ready nodes follow again"),
            Transition::StaysOpen(..) | Transition::StaysClosed => {}
        }
        let usage = state.gathered.usage(now, ready, budget);
        let (held, open) = (state.gathered.held(), state.gathered.cause());
        self.metrics.set_brake(open.is_some(), held.map_or(0, |(held, _)| held), usage);
        match (open, held) {
            (Some(cause), _) => self
                .condition
                .fail(format!("open, no Ready node is changed unless approved: {}", words(cause))),
            (None, Some((held, hold))) => {
                self.condition.fail(format!("changes of {held} Ready nodes are held: {hold}"));
            }
            (None, None) => self.condition.pass(format!(
                "released; {} of at most {} Ready nodes have changed",
                usage.used, usage.limit
            )),
        }
        result
    }

    /// The number of Ready nodes of this cloud.
    fn ready(&self, now: At) -> usize {
        if let Some((at, ready)) = self.state.lock().ready
            && now.since(at) < RECOUNT
        {
            return ready;
        }
        let is_ready = |node: &&Arc<Node>| {
            let is_ours =
                instances::claim(&*self.cloud, node).is_some_and(|claim| claim != Claim::Foreign);
            is_ours && node.is_ready() && !node.is_uninitialised()
        };
        let ready = self.store.list().iter().filter(is_ready).count();
        self.state.lock().ready = Some((now, ready));
        ready
    }
}

fn words(TooMany { changes, population }: TooMany) -> String {
    format!(
        "the cloud returns other first InternalIPs, families, zones, regions or types for {changes} of {population} Ready nodes"
    )
}
