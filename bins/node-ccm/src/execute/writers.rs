//! Second stage: plans and writes many nodes concurrently.
//!
//! There are two worker pools, as upstream has two kinds of worker: one for new nodes, one for
//! updates of initialised nodes. A change of the whole fleet never delays a new node: its writes
//! also have a rate of their own, and a node that waits for its turn waits in the queue.

use std::{sync::Arc, time::Duration};

use ccm_base::{RetryClass, clock};
use ccm_cloud::{Claim, Lookup, LookupResult};
use ccm_controller::{
    brake::Pause,
    corrector::Later,
    lookups::{Work, priority},
    queue::{LONG_RETRY, Priority},
    repeats::Repeated,
    workers,
    writer::{Stopped, Writer},
};
use ccm_kube::ApiError;
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::supervisor::Supervisor;

use super::{Executed, Unfinished, execute, publish};
use crate::{
    metrics::State,
    observe::{Handles, brake, intake::Intake, lookups::WorkSenders},
    plan::{Field, Known, Outcome, PROVIDER_ID, Plan, TAINTS, Wait, WaitReason, plan},
    settings::NodeSettings,
};

/// Capacity of each channel to the workers; large enough that the default number of workers is
/// never idle while answers arrive.
const CHANNEL_CAPACITY: usize = 64;
/// Retry interval for a provided-node-ip annotation that does not match: the cloud may attach
/// the address later. A change of the node triggers a sync at once.
const NODE_IP_RECHECK: Duration = Duration::from_secs(30);
/// How often an initialised node without an answer is looked up again, within half a minute.
/// Then it waits for the next refresh.
const LOOKUPS_BEFORE_REFRESH: u32 = 5;
/// After this number of consecutive conflicts the usual back-off applies.
const MANY_CONFLICTS: u32 = 8;
/// The same for an initialised node, which no pod waits for.
const MANY_CONFLICTS_SETTLED: u32 = 3;

/// A field of [`Plan::fields`] in the metric of repeated writes.
fn kind(field: &str) -> &'static str {
    match field {
        TAINTS => TAINTS,
        PROVIDER_ID => PROVIDER_ID,
        other => Field::named(other).into(),
    }
}

/// The stage.
pub(crate) struct Writers {
    handles: Handles,
    intake: Arc<Intake>,
    writer: Writer<Node>,
}

impl Writers {
    pub(crate) fn new(handles: &Handles, intake: Arc<Intake>, writer: Writer<Node>) -> Arc<Self> {
        Arc::new(Self { handles: handles.clone(), intake, writer })
    }

    /// Starts both pools. Returns their channels.
    pub(crate) fn start(self: &Arc<Self>, tasks: &Supervisor) -> WorkSenders {
        let pool = |name: &'static str, limit: fn(&NodeSettings) -> usize| {
            let (this, settings) = (Arc::clone(self), self.handles.settings.clone());
            let sync = move |work: Work| {
                let this = Arc::clone(&this);
                async move {
                    this.sync(&work).await;
                    this.intake.done(&work.node.name);
                }
            };
            let (limit, token) = (move || limit(&settings.borrow()), tasks.token().clone());
            let (sender, pool) = workers::channel(CHANNEL_CAPACITY, limit, token, sync);
            tasks.spawn(name, pool);
            sender
        };
        let Handles { corrector, settings, queue, .. } = self.handles.clone();
        let rate = |settings: &Arc<NodeSettings>| settings.node_correction_qps;
        let follow = corrector.follow(settings, rate, queue, tasks.token().clone());
        tasks.spawn("correction-rate", follow);
        WorkSenders {
            new: pool("new-nodes", |settings| settings.concurrent_node_syncs),
            settled: pool("settled-nodes", |settings| settings.concurrent_node_status_updates),
        }
    }

    /// Plans from the current state of the node, and executes the plan.
    async fn sync(&self, Work { node: asked, answer }: &Work) {
        let Some(node) = self.handles.store.get(&asked.name) else { return };
        if !asked.has_identity_of(&node) {
            // The node was replaced or changed its identity since the lookup.
            self.handles.queue.add(Arc::clone(&node.name), Priority::Urgent);
            return;
        }
        let claim = self.handles.claim(&node).unwrap_or(Claim::Unclaimed);
        let policy = self.intake.policy();
        let rivals = self.handles.rivals(&node, answer);
        let known = Known { rivals: &rivals, agreed: self.handles.agreed.of(&node) };
        let again = |node: &Node| plan(node, claim, answer, policy, known);
        let plan = again(&node);
        let settled = plan.outcome == Outcome::InSync;
        let pause =
            settled.then(|| brake::check(&self.handles.guard, &node, &plan).err()).flatten();
        publish(&self.handles.plans, &node, &plan, pause);
        if let Some(pause) = pause {
            return self.pause(&node, &plan, pause);
        }
        match &plan.outcome {
            Outcome::Initialised | Outcome::InSync if self.handles.plans.is_observing() => {
                self.observed(&node, &plan);
            }
            Outcome::Initialised => self.initialise(&node, &plan, again).await,
            Outcome::InSync => self.correct(&node, &plan, again).await,
            Outcome::Waits(wait) => self.wait(&node, wait, answer),
            outcome => self.skip(&node, outcome, answer),
        }
        if let (Some(node), Ok(Lookup::Found(instance))) =
            (self.handles.store.get(&node.name), answer)
        {
            self.handles.agreed.note(&node, instance);
        }
    }

    /// In observe mode the plan is only published. Without an initialised node there is no
    /// refresh, so uninitialised ones are retried.
    fn observed(&self, node: &Node, plan: &Plan) {
        self.handles.reports.notes(node, plan);
        let name = &node.name;
        self.settled(name);
        if plan.outcome == Outcome::Initialised {
            self.handles.states.set(name, State::Pending);
            self.handles.queue.retry_every(Arc::clone(name), LONG_RETRY);
        } else {
            self.handles.states.set(name, State::Initialised);
        }
    }

    /// Writes a new node, unless the API server or another client takes the same change back.
    async fn initialise(&self, node: &Arc<Node>, plan: &Plan, again: impl Fn(&Node) -> Plan) {
        let corrector = &self.handles.corrector;
        corrector.step_aside();
        match corrector.check(&node.name, 0, &plan.fields()) {
            Err(Later { wait, repeated }) => {
                self.handles.states.set(&node.name, State::WriteFailing);
                self.taken_back(node, plan, repeated);
                self.handles.queue.retry_every(Arc::clone(&node.name), wait);
            }
            Ok(()) => self.apply(node, plan, again).await,
        }
    }

    /// Writes an initialised node if it is its turn and no other writer undoes what the plan
    /// corrects. If not, it is queued for later.
    async fn correct(&self, node: &Arc<Node>, plan: &Plan, again: impl Fn(&Node) -> Plan) {
        let allowed = self.handles.corrector.check(&node.name, plan.steps.len(), &plan.fields());
        let Err(Later { wait, repeated }) = allowed else {
            return self.apply(node, plan, again).await;
        };
        self.taken_back(node, plan, repeated);
        self.later(node, wait);
    }

    /// Reports that another client undoes the writes of this plan. node-ccm has reported a write that the answer
    /// does not show when the answer came.
    fn taken_back(&self, node: &Node, plan: &Plan, repeated: Option<Repeated>) {
        if let Some(repeated) = repeated.filter(|repeated| !repeated.is_refused) {
            self.handles.reports.repeated(node, plan, &repeated);
        }
    }

    /// The node is up to date.
    fn settled(&self, name: &Name) {
        self.handles.answers.settled(name);
        self.handles.corrector.settled(name);
        self.handles.queue.forget(name);
    }

    /// Plans this initialised node again after this time.
    fn later(&self, node: &Node, wait: Duration) {
        let name = &node.name;
        if node.provider_id.is_none() {
            // The inventory finds instances by ID only.
            self.handles.answers.require(name);
        }
        self.handles.queue.add_after(Arc::clone(name), wait, Priority::Routine);
    }

    /// The brake does not let the plan pass now.
    fn pause(&self, node: &Node, plan: &Plan, pause: Pause) {
        match pause {
            Pause::Gathers(until) => self.later(node, self.handles.guard.until(until)),
            Pause::Held(hold) => {
                self.handles.states.set(&node.name, State::Initialised);
                self.handles.reports.held(node, plan, hold);
                self.handles.queue.forget(&node.name);
            }
        }
    }

    /// Executes a plan. `again` plans from an answer.
    async fn apply(&self, node: &Arc<Node>, plan: &Plan, again: impl Fn(&Node) -> Plan) {
        self.handles.reports.notes(node, plan);
        let name = &node.name;
        if plan.outcome == Outcome::Initialised {
            tracing::info!(node = &**name, "Initializing node {name} with cloud provider");
        }
        match execute(&self.writer, &self.handles, node, plan, again).await {
            Ok(executed) => self.written(node, plan, &executed),
            Err(unfinished) => self.not_written(node, unfinished),
        }
    }

    /// The API server has answered the writes.
    fn written(&self, node: &Node, plan: &Plan, executed: &Executed) {
        let Handles { corrector, repeats, states, plans, reports, metrics, queue, .. } =
            &self.handles;
        let (name, Executed { node: answer, stored, lost }) = (&node.name, executed);
        let taken_back = corrector.made(name, stored);
        for field in &taken_back {
            repeats.count("Node", kind(field));
        }
        let is_over = taken_back.is_empty() && !answer.is_uninitialised();
        let is_initialised = is_over && plan.outcome == Outcome::Initialised;
        if let Some(age) = node.age(clock::wall()).filter(|_| is_initialised) {
            metrics.initialised(age);
        }
        let refused = corrector.refused(name, lost);
        let Some(first) = refused.first() else {
            if is_initialised {
                reports.initialised(node);
            }
            states.set(name, State::Initialised);
            plans.clear("Node", name);
            return self.settled(name);
        };
        for one in &refused {
            repeats.count("Node", kind(&one.kind));
            reports.not_stored(node, one);
        }
        let still_waits = answer.is_uninitialised();
        states.set(name, if still_waits { State::WriteFailing } else { State::Initialised });
        queue.retry_every(Arc::clone(name), first.wait);
    }

    fn not_written(&self, node: &Node, Unfinished { what, why }: Unfinished) {
        let (name, queue, is_new) = (&node.name, &self.handles.queue, node.is_uninitialised());
        let most = if is_new { MANY_CONFLICTS } else { MANY_CONFLICTS_SETTLED };
        if matches!(why, Stopped::Refused(ApiError::Conflict))
            && queue.again_after_conflict(Arc::clone(name), most, priority(node))
        {
            return;
        }
        let Some((error, pace)) = why.queue_again(queue, Arc::clone(name)) else { return };
        if is_new {
            self.handles.states.set(name, State::WriteFailing);
        }
        self.handles.reports.refused(node, what, &error, pace);
    }

    /// The node keeps its taint.
    fn wait(&self, node: &Node, wait: &Wait, answer: &LookupResult) {
        let (name, state) = (&node.name, State::Waiting(wait.reason));
        if wait.reason == WaitReason::Identity && self.handles.states.get(name) != Some(state) {
            self.handles.metrics.held_unconfirmed();
        }
        self.handles.states.set(name, state);
        let key = Arc::clone(name);
        let pace = match answer {
            Err(error) => self.handles.queue.retry_as(key, error.class()),
            _ if wait.reason == WaitReason::NodeIp => {
                self.handles.queue.retry_every(key, NODE_IP_RECHECK)
            }
            // A change of the node, or the end of the other one, triggers a sync at once.
            _ if wait.reason == WaitReason::Identity => {
                self.handles.queue.retry_every(key, LONG_RETRY)
            }
            _ => self.handles.queue.retry_as(key, RetryClass::Retry),
        };
        // A new node can register before the cloud's own list shows its instance, and another
        // provider's node is tainted for a moment, too: the first time is not reported.
        let is_new =
            wait.reason != WaitReason::InstanceNotFound || self.handles.queue.failures(name) > 1;
        if is_new {
            self.handles.reports.wait(node, wait, pace);
        }
    }

    fn skip(&self, node: &Node, outcome: &Outcome, answer: &LookupResult) {
        let name = &node.name;
        let uninitialised = node.is_uninitialised();
        let state = match outcome {
            Outcome::Foreign => {
                self.handles.queue.forget(name);
                return self.intake.foreign(node);
            }
            Outcome::NotOurs(_) => State::NotOurs,
            Outcome::InstanceGone => State::InstanceGone,
            Outcome::Unconfirmed(_) | Outcome::Doubted(_) => State::Unconfirmed,
            _ => State::Unknown,
        };
        if !matches!(outcome, Outcome::Unanswered(_)) {
            self.handles.guard.leaves(&node.uid);
            self.handles.corrector.settled(name);
        }
        self.handles.reports.skipped(node, outcome);
        self.handles.states.set(name, state);
        if let Err(error) = answer
            && error.class() != RetryClass::Permanent
            && self.handles.queue.failures(name) < LOOKUPS_BEFORE_REFRESH
        {
            self.handles.answers.require(name);
            self.handles.queue.retry_as(Arc::clone(name), error.class());
            return;
        }
        self.handles.queue.forget(name);
        if uninitialised && state == State::NotOurs {
            self.handles.queue.retry_every(Arc::clone(name), LONG_RETRY);
        }
    }
}
