//! Executes decisions: writes to the API server, and handles their results.

use std::{
    collections::{BTreeSet, HashMap},
    pin::pin,
    sync::Arc,
};

use ccm_base::clock::Timeline;
use ccm_controller::{
    brake::Window,
    handover,
    repeat_reports::Written,
    repeats::Content,
    reports::{Report, Reports, When},
    writer::{self, Stopped, Writer},
};
use ccm_kube::{ApiError, store::Store, write::Patch};
use ccm_objects::{Node, NodeChange, Shared as Name, instance_gone};
use ccm_runtime::{
    leadership::LeaseAnnotations,
    plans::{Plans, Step},
    program::{Context, Program},
};
use futures::{Stream, StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    metrics::LifecycleMetrics,
    observe::Observer,
    policy::{
        At, Decider, Decision, Deletion, Verdict,
        action::{self, APPROVED, Action, GONE, Marks, Words, Write},
        shutdown, text,
    },
    settings::LifecycleSettings,
};

/// What a leader leaves to the next one.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Left {
    /// The deletions that may still count for the budget.
    #[serde(default)]
    pub(crate) deleted: Window,
    /// The UIDs of nodes that run on another machine than before.
    #[serde(default)]
    pub(crate) replaced: BTreeSet<Box<str>>,
}

impl handover::Shorten for Left {
    fn shorten(&mut self) -> bool {
        self.deleted.sum_up()
    }
}

/// The result of a deletion: a rejected request had no effect; without a response, the effect is
/// unknown.
fn outcome(stopped: &Stopped) -> Deletion {
    match stopped.refusal() {
        None | Some(ApiError::Conflict) => Deletion::NotDone,
        Some(error) if error.is_uncertain() => Deletion::Uncertain,
        Some(_) => Deletion::Refused,
    }
}

/// A change of marks in `/plan`.
fn published(action: &Action) -> Step {
    let marks = match action.write {
        Write::Marks(marks) => marks,
        Write::Delete(_) => Marks::default(),
    };
    let removed = [(marks.end_approval, APPROVED), (marks.end_proof, instance_gone::KEY)];
    let removed = removed.into_iter().filter(|(is_removed, _)| *is_removed);
    let changes = removed.map(|(_, key)| format!("{key} removed")).collect();
    let Words { kind: step, reason, .. } = action.write.words();
    Step { step, changes, reason: reason.to_owned(), held: None }
}

/// A deletion, due or held, in `/plan`.
fn deletion(decision: &Decision) -> Option<Step> {
    let held = decision.held();
    let is_deletion = held.is_some() || decision.verdict == Verdict::Delete;
    let (changes, reason) = (Vec::new(), GONE.to_owned());
    is_deletion.then_some(Step { step: "delete", changes, reason, held })
}

/// The name of writes of marks in the metric and the event of repeated writes.
const MARKS: &str = "marks";
/// The same of the write that precedes a deletion.
const PROOF: &str = "proof";

/// Writes nodes, and reports the results.
pub(crate) struct Executor {
    writer: Writer<Node>,
    settings: watch::Receiver<Arc<LifecycleSettings>>,
    /// Cancelled when no new write may start.
    closing: CancellationToken,
    reports: Arc<Reports>,
    metrics: LifecycleMetrics,
    written: Written,
    timeline: Timeline,
    plans: Plans,
    store: Store<Node>,
    lease: LeaseAnnotations,
}

impl Executor {
    /// Writes the observer's nodes until `closing` is cancelled.
    pub(crate) fn new<P: Program<Settings = LifecycleSettings>>(
        context: &Context<P>,
        observer: &Observer,
        (reports, metrics, written): (Arc<Reports>, LifecycleMetrics, Written),
        closing: CancellationToken,
    ) -> Self {
        Self {
            writer: Writer::new(context, &observer.store),
            settings: context.settings.clone(),
            closing,
            reports,
            metrics,
            written,
            timeline: observer.timeline,
            plans: context.plans.clone(),
            store: observer.store.clone(),
            lease: context.leadership.annotations().clone(),
        }
    }

    /// What the last leader has left.
    pub(crate) fn last_leaders(&self) -> Left {
        handover::found(&self.lease)
    }

    /// Leaves this to the next leader.
    pub(crate) fn leave(&self, left: &Left) {
        handover::keep(&self.lease, left);
    }

    /// Returns when no new write may start.
    pub(crate) async fn closing(&self) {
        self.closing.cancelled().await;
    }

    /// The current settings.
    pub(crate) fn settings(&self) -> Arc<LifecycleSettings> {
        Arc::clone(&self.settings.borrow())
    }

    /// Publishes all actions for these nodes, or why there are none. `errors` has the kinds of the errors that the
    /// cloud has answered.
    pub(crate) fn publish<'a>(
        &self,
        nodes: impl Iterator<Item = &'a Arc<Node>>,
        marks: &[Action],
        (decisions, errors): (&[Decision], &HashMap<Name, &'static str>),
    ) {
        let blocked = decisions.iter().filter_map(|decision| {
            let (name, why) = (&*decision.name, decision.blocked()?);
            let error = errors.get(name).map(|error| format!(" ({error})"));
            Some((name, why + &error.unwrap_or_default()))
        });
        let mut blocked: HashMap<&str, String> = blocked.collect();
        let mut by_name: HashMap<&str, Vec<Step>> = HashMap::new();
        for action in marks {
            by_name.entry(&action.node.name).or_default().push(published(action));
        }
        for decision in decisions {
            by_name.entry(&decision.name).or_default().extend(deletion(decision));
        }
        for node in nodes {
            let steps = by_name.remove(&*node.name).unwrap_or_default();
            match blocked.remove(&*node.name) {
                Some(why) if steps.is_empty() => self.block(node, &why),
                _ => self.show(node, |plans| plans.set(&node.reference(), steps)),
            }
        }
    }

    /// Publishes why nothing is done about this node.
    pub(crate) fn block(&self, node: &Node, why: &str) {
        self.show(node, |plans| plans.block(&node.reference(), why));
    }

    fn show(&self, node: &Node, change: impl FnOnce(&Plans)) {
        change(&self.plans);
        // Checked afterwards: a node that is deleted in the meantime must not stay on the page.
        if self.store.get(&node.name).is_none() {
            self.plans.clear("Node", &node.name);
        }
    }

    /// A case ended without a lookup. Each pass publishes the actions for Ready nodes.
    pub(crate) fn withdraw(&self, name: &str) {
        if self.store.get(name).is_none_or(|node| !node.is_ready()) {
            self.plans.clear("Node", name);
        }
    }

    /// Executes what was decided with these settings: the only path from decisions to the API
    /// server. The policy receives the result of each deletion as soon as it is known. Returns
    /// whether all mark updates succeeded; the policy itself schedules failed deletions again.
    pub(crate) async fn apply(
        &self,
        actions: Vec<Action>,
        by: &Arc<LifecycleSettings>,
        decider: &mut Decider,
    ) -> bool {
        if self.plans.is_observing() {
            for action in &actions {
                if let Write::Delete(decision) = &action.write {
                    let now = self.timeline.now();
                    decider.deleted(now, decision, Deletion::Observed, &by.policy);
                }
            }
            return true;
        }
        let mut is_done = true;
        let actions: Vec<_> = actions.into_iter().filter(|action| self.may(action)).collect();
        if actions.iter().any(|action| matches!(action.write, Write::Delete(_))) {
            // The next leader should know of the deletions even if this one dies of them.
            self.closing.run_until_cancelled(self.lease.stored()).await;
        }
        let mut ended = pin!(self.execute(actions, by));
        while let Some((action, result)) = ended.next().await {
            let now = self.timeline.now();
            self.report(&action, &result, now);
            if matches!(result, Ok(true)) {
                self.plans.clear("Node", &action.node.name);
            }
            match &action.write {
                Write::Delete(decision) => {
                    let outcome = result.as_ref().map_or_else(outcome, |_| Deletion::Done);
                    decider.deleted(now, decision, outcome, &by.policy);
                }
                Write::Marks(_) => is_done &= result.is_ok(),
            }
        }
        is_done
    }

    /// Returns true if the action may run now. The program writes a mark that another client removes
    /// less and less often. The policy decides what follows a deletion.
    fn may(&self, action: &Action) -> bool {
        match &action.write {
            Write::Delete(_) => true,
            Write::Marks(marks) => {
                self.written.check(&action.node.name, MARKS, marks.content()).is_ok()
            }
        }
    }

    /// Returns each action with its result as soon as that is known: whether the API server has
    /// stored it.
    fn execute<'a>(
        &'a self,
        actions: Vec<Action>,
        decided_by: &'a Arc<LifecycleSettings>,
    ) -> impl Stream<Item = (Action, Result<bool, Stopped>)> + Send + 'a {
        let writes = actions.into_iter().map(move |action| async move {
            let result = match &action.write {
                Write::Delete(decision) => {
                    self.delete(&action.node, decision, decided_by).await.map(|()| true)
                }
                Write::Marks(marks) => self.mark(&action.node, *marks).await,
            };
            (action, result)
        });
        stream::iter(writes).buffer_unordered(decided_by.concurrent_node_lifecycle_syncs)
    }

    /// Reports the result of an action. One that is not stored was reported with its answer.
    fn report(&self, action: &Action, result: &Result<bool, Stopped>, now: At) {
        match (&action.write, writer::answer(result)) {
            (Write::Delete(decision), Some(answer)) => {
                self.metrics.deleted(answer, now.since(decision.since.unwrap_or(now)));
            }
            (Write::Marks(Marks { taint: Some((step, _)), .. }), Some(answer)) => {
                self.metrics.tainted(*step, answer);
            }
            _ => {}
        }
        let (node, name) = (&action.node.reference(), &action.node.name);
        let report = |(topic, text): (&'static str, String)| {
            let line = Report::line(topic, "", format!("node {name}: {text}"));
            self.reports.report(node, When::Always, line.with_event(topic, text));
        };
        match (result, &action.write) {
            (Err(stopped), write) => self.report_stopped(&action.node, write, stopped),
            (Ok(_), Write::Delete(decision)) => report(text::deleted(&action.node, decision)),
            (Ok(true), Write::Marks(marks)) => text::marked(*marks).for_each(report),
            (Ok(false), Write::Marks(_)) => {}
        }
    }

    /// A decision that was not executed is no failure if the node has changed in the meantime
    /// or this replica no longer leads: the node is looked up again.
    fn report_stopped(&self, node: &Node, write: &Write, stopped: &Stopped) {
        let (name, what) = (&node.name, write.words().what);
        let Some(error) = stopped
            .refusal()
            .filter(|error| !matches!(error, ApiError::Conflict | ApiError::NotFound))
        else {
            tracing::info!(node = &**name, reason = %stopped, "node {name}: {what} postponed until the next lookup");
            return;
        };
        let line = format!("node {name}: {what} failed, retrying: {error}");
        let mut report = Report::warning(what, error.reason(), line).because(error.reason());
        if matches!(write, Write::Delete(_)) {
            let text = format!("Failed deleting node {name}: {error}");
            report = report.with_event("DeletingNodeFailed", text);
        }
        self.reports.report(&node.reference(), When::Changed, report);
    }

    /// Queued deletions are dropped if the settings change (the budget may be lower) or the
    /// program shuts down.
    async fn delete(
        &self,
        node: &Arc<Node>,
        decision: &Decision,
        by: &Arc<LifecycleSettings>,
    ) -> Result<(), Stopped> {
        if self.closing.is_cancelled() {
            return Err(Stopped::Superseded("the program is shutting down"));
        }
        if !Arc::ptr_eq(by, &self.settings.borrow()) {
            return Err(Stopped::Superseded("the settings have changed since the decision"));
        }
        let marked = self.prove(node, decision).await?;
        self.writer.delete(&marked).await
    }

    /// Leaves the proof on the node, right before its deletion: other controllers learn from it that
    /// the node was meant to go. Returns the node as it is then. If the API server refuses the mark,
    /// the deletion goes on without it; if the node has changed, it does not.
    async fn prove(&self, node: &Arc<Node>, decision: &Decision) -> Result<Arc<Node>, Stopped> {
        let content = Content::of(instance_gone::KEY);
        let may = || self.written.check(&node.name, PROOF, content).is_ok();
        let proof = action::proof(node, decision, self.timeline.now()).filter(|_| may());
        let Some(proof) = proof else { return Ok(Arc::clone(node)) };
        let annotations = [(instance_gone::KEY.to_owned(), Some(proof))].into();
        match self.writer.patch(node, &Patch { annotations, ..Patch::default() }).await {
            Ok(marked) => {
                let is_shown = action::has_proof(&marked);
                let write = (PROOF, content);
                self.written.answered(&self.reports, &node.reference(), write, is_shown);
                Ok(marked)
            }
            Err(stopped) if matches!(stopped.refusal(), None | Some(ApiError::Conflict)) => {
                Err(stopped)
            }
            Err(error) => {
                let name = &node.name;
                tracing::warn!(node = &**name, "node {name}: deleted without a mark: {error}");
                Ok(Arc::clone(node))
            }
        }
    }

    /// Writes marks. Returns true if the answer shows them.
    async fn mark(&self, node: &Node, marks: Marks) -> Result<bool, Stopped> {
        let taints = marks.taint.map(|(step, _)| shutdown::apply(&node.taints, step));
        let patch = Patch::from(&NodeChange { taints, ..NodeChange::default() });
        let patch = if marks.end_approval { patch.without_mark(APPROVED) } else { patch };
        let patch = if marks.end_proof { patch.without_mark(instance_gone::KEY) } else { patch };
        let answer = self.writer.patch(node, &patch).await?;
        let has_taint = answer.taints.iter().any(|taint| taint.is(shutdown::KEY, shutdown::EFFECT));
        let is_tainted =
            marks.taint.is_none_or(|(step, _)| has_taint == (step == shutdown::Step::Add));
        let is_shown = is_tainted
            && !(marks.end_approval && action::has_approval(&answer))
            && !(marks.end_proof && action::has_proof(&answer));
        let (write, about) = ((MARKS, marks.content()), node.reference());
        self.written.answered(&self.reports, &about, write, is_shown);
        Ok(is_shown)
    }
}
