//! The steps of a plan, one request after the other, each based on the node after the previous
//! step, and the answers of the API server.

use std::sync::Arc;

use ccm_base::RetryClass;
use ccm_cloud::{Claim, LookupResult};
use ccm_controller::queue::Priority;
use ccm_kube::ApiError;
use ccm_objects::{Node, Shared as Name};
use serde::{Deserialize, Serialize};

use super::{Again, Came, Effect, Machine, NodeState, Queued, Report, Request, RetryReason};
use crate::plan::{Agreed, Outcome, Plan, PlanInputs, Policy, Step, plan};

/// After this number of consecutive conflicts the usual back-off applies.
const MANY_CONFLICTS: u32 = 8;
/// The same for an initialised node, which no pod waits for.
const MANY_CONFLICTS_SETTLED: u32 = 3;

/// The inputs of a plan, besides the node.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Inputs {
    pub(super) claim: Claim,
    pub(super) answer: LookupResult,
    pub(super) policy: Policy,
    pub(super) rivals: Vec<Arc<Node>>,
    pub(super) agreed: Agreed,
}

impl Inputs {
    /// Returns the plan for this version of the node.
    pub(super) fn plan(&self, node: &Node) -> Plan {
        let known = PlanInputs { rivals: &self.rivals, agreed: self.agreed };
        plan(node, self.claim, &self.answer, self.policy, known)
    }
}

/// A plan that is being executed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Writing {
    /// The node for which the plan was made.
    node: Arc<Node>,
    plan: Arc<Plan>,
    inputs: Inputs,
    /// The node as the API server has answered it.
    latest: Arc<Node>,
    /// The number of steps that were answered.
    done: usize,
    /// The fields that the answers show.
    stored: Vec<(String, String)>,
    /// The fields that the last answer does not show: an admission policy may have dropped them. The steps
    /// after that are not executed.
    lost: Vec<(String, String)>,
}

impl Writing {
    pub(super) fn new(node: &Arc<Node>, plan: Arc<Plan>, inputs: Inputs) -> Self {
        let (node, latest) = (Arc::clone(node), Arc::clone(node));
        Self { node, plan, inputs, latest, done: 0, stored: Vec::new(), lost: Vec::new() }
    }

    /// Returns the step that is due, or whose answer has come.
    fn step(&self) -> Option<&Step> {
        self.plan.steps.get(self.done)
    }

    /// Returns the write that is under way, in words.
    pub(super) fn told(&self) -> String {
        let what = self.step().map(Step::kind).unwrap_or_default();
        format!("the write of its {what} is under way: the API server has not answered yet")
    }
}

impl Machine {
    /// Executes a plan that was made for exactly this version of the node.
    pub(super) fn begin(&mut self, writing: Writing) {
        let (node, plan) = (&writing.node, &writing.plan);
        self.report(node, Report::Notes(Arc::clone(plan)));
        if plan.outcome == Outcome::Initialised {
            self.report(node, Report::Begins);
        }
        // The next leader should know of the change even if this one dies right after it.
        let is_charged = writing.plan.needs_brake();
        self.go_on(writing, is_charged);
    }

    /// Sends the next step, or ends with the last one.
    fn go_on(&mut self, writing: Writing, is_charged: bool) {
        let Some(step) = writing.step().filter(|_| writing.lost.is_empty()) else {
            return self.finish(&writing);
        };
        let (node, step) = (Arc::clone(&writing.latest), step.clone());
        self.say(Effect::Request(Request::Write { node, step, is_charged }));
        self.writing.insert(Name::clone(&writing.node.name), writing);
    }

    /// Records the API server's answer to the step that was sent last.
    pub(super) fn written(&mut self, name: &Name, answer: Result<Arc<Node>, Option<ApiError>>) {
        let Some(writing) = self.writing.remove(name) else { return };
        match answer {
            Ok(node) => self.stored(writing, node),
            Err(error) => self.not_written(&writing, error),
        }
    }

    /// Records the changes that the API server has not stored although the plan for its answer
    /// would still make them.
    fn stored(&mut self, mut writing: Writing, latest: Arc<Node>) {
        self.saw_answer(&latest);
        let (node, plan) = (Arc::clone(&writing.node), Arc::clone(&writing.plan));
        let Some(step) = plan.steps.get(writing.done) else { return };
        let rest = writing.inputs.plan(&latest);
        writing.latest = latest;
        for change in plan.made(step, &rest) {
            self.report(&node, Report::Made(change.clone()));
            self.changed_past_brake(&node.uid);
        }
        let rest = rest.fields();
        let fields = step.fields().into_iter();
        let (not_shown, shown): (Vec<_>, Vec<_>) = fields.partition(|field| rest.contains(field));
        writing.stored.extend(shown);
        if not_shown.is_empty() {
            self.report(&node, Report::Stored(Arc::clone(&plan), step.clone()));
        }
        writing.lost = not_shown;
        writing.done += 1;
        self.go_on(writing, false);
    }

    /// The watch shows an answer only if it differs from the store, which has it already.
    fn saw_answer(&mut self, latest: &Arc<Node>) {
        let entry = self.entries.get_mut(&latest.name);
        let known = entry.and_then(|entry| entry.node.as_mut());
        if let Some(known) = known.filter(|known| latest.is_later_than(known)) {
            *known = Arc::clone(latest);
        }
    }

    /// Ends the work on a node after the API server's answers to the writes.
    fn finish(&mut self, writing: &Writing) {
        let Writing { node, plan, latest, stored, lost, .. } = writing;
        let name = &node.name;
        self.note_agreement(latest, &writing.inputs);
        let taken_back = self.made(name, stored);
        let is_over = taken_back.is_empty() && !latest.is_uninitialised();
        let is_initialised = is_over && plan.outcome == Outcome::Initialised;
        self.say(Effect::Repeats(taken_back));
        if is_initialised {
            self.report(node, Report::Untainted);
        }
        let refused = self.refused(name, lost);
        let Some(wait) = refused.first().map(|first| first.wait) else {
            if is_initialised {
                self.report(node, Report::Initialised);
            }
            self.set_state(name, NodeState::Initialised);
            self.say(Effect::Clear(Name::clone(name)));
            return self.settled(name);
        };
        self.say(Effect::Repeats(refused.iter().map(|one| one.kind.to_string()).collect()));
        for one in refused {
            self.report(node, Report::NotStored(one));
        }
        self.entry(name).take_last();
        let still_waits = latest.is_uninitialised();
        self.set_state(
            name,
            if still_waits { NodeState::WriteFailing } else { NodeState::Initialised },
        );
        self.queue(name, Queued::Again(Again::Every(wait)));
    }

    fn not_written(&mut self, writing: &Writing, error: Option<ApiError>) {
        let (node, name) = (&writing.node, &writing.node.name);
        self.note_agreement(&writing.latest, &writing.inputs);
        // Another client that sets an earlier step back makes this one fail.
        let taken_back = self.made(name, &writing.stored);
        if !taken_back.is_empty() {
            self.say(Effect::Repeats(taken_back));
        }
        let what = writing.step().map(Step::kind).unwrap_or_default();
        match error {
            // A term that is merely short is extended by the next renewal.
            None => self.queue(name, Queued::Again(Again::As(RetryClass::Retry))),
            // Deleted in the meantime: the informer reports it.
            Some(ApiError::NotFound) => self.queue(name, Queued::Forget),
            Some(ApiError::Conflict) => {
                let (most, priority) = match node.is_uninitialised() {
                    true => (MANY_CONFLICTS, Priority::Urgent),
                    false => (MANY_CONFLICTS_SETTLED, Priority::Routine),
                };
                let node = Arc::clone(node);
                self.say(Effect::Request(Request::Conflict { node, what, most, priority }));
            }
            Some(error) => self.rejected(node, what.to_owned(), error),
        }
    }

    /// Ends work on a node that other clients have written many times in a row: the conflict counts
    /// as a failure.
    pub(super) fn many_conflicts(&mut self, node: &Arc<Node>, what: String) {
        self.rejected(node, what, ApiError::Conflict);
    }

    fn rejected(&mut self, node: &Arc<Node>, what: String, error: ApiError) {
        if node.is_uninitialised() {
            self.set_state(&node.name, NodeState::WriteFailing);
        }
        let again = Again::As(error.class());
        self.came(&node.name, Came::Refused(what.clone(), error.clone()), Some(again));
        self.say(Effect::Retry(Arc::clone(node), again, RetryReason::Refused(what, error)));
    }
}
