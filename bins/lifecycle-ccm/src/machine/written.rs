//! The answers to writes.

use std::sync::Arc;

use ccm_base::At;
use ccm_controller::repeats::Content;
use ccm_kube::ApiError;
use ccm_objects::{Node, instance_gone};

use super::{
    Machine,
    effect::{Effect, Told},
    event::WriteAnswer,
};
use crate::policy::{
    DeletionOutcome,
    action::{self, Action, Marks, Write},
    shutdown,
};

/// The name of writes of marks in the metric and the event of repeated writes.
const MARKS: &str = "marks";
/// The same of the write that precedes a deletion.
const PROOF: &str = "proof";

/// Returns the result of a deletion: a rejected request had no effect; without a response, the
/// effect is unknown.
fn outcome(answer: &WriteAnswer) -> DeletionOutcome {
    match answer {
        Ok(_) => DeletionOutcome::Done,
        Err(None | Some(ApiError::Conflict)) => DeletionOutcome::NotDone,
        Err(Some(error)) if error.is_uncertain() => DeletionOutcome::Uncertain,
        Err(Some(_)) => DeletionOutcome::Refused,
    }
}

/// Returns true if the node, as the API server has answered, has these marks.
fn shows(node: &Node, marks: Marks) -> bool {
    let has_taint = node.taints.iter().any(|taint| taint.is(shutdown::KEY, shutdown::EFFECT));
    let is_tainted =
        marks.taint.is_none_or(|(step, _)| has_taint == (step == shutdown::TaintStep::Add));
    is_tainted
        && !(marks.end_approval && action::has_approval(node))
        && !(marks.end_proof && action::has_proof(node))
}

impl Machine {
    /// Returns true if this may be written now. If another client removes a mark, the program
    /// writes it less and less often. The policy decides what follows a deletion.
    pub(super) fn may(&self, now: At, node: &Node, write: &Write) -> bool {
        let (kind, content) = match write {
            Write::Delete(_) => return true,
            Write::Marks(marks) => (MARKS, marks.content()),
            Write::Proof(..) => (PROOF, Content::digest(instance_gone::KEY)),
        };
        let repeats = self.written.get(&node.name);
        repeats.is_none_or(|repeats| repeats.check(now, kind, || content).is_ok())
    }

    /// Returns the proof that is written to a node right before its deletion, instead of the
    /// deletion: it tells other controllers that the deletion is intended.
    pub(super) fn with_proof(&self, now: At, node: &Node, write: Write) -> Write {
        let Write::Delete(decision) = write else { return write };
        let proof = action::proof(node, &decision, now);
        match proof.map(|proof| Write::Proof(decision.clone(), proof)) {
            Some(proof) if self.may(now, node, &proof) => proof,
            _ => Write::Delete(decision),
        }
    }

    /// Records the API server's answer to a write, or that nothing was sent.
    pub(super) fn written(&mut self, now: At, action: Action, answer: WriteAnswer) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.nodes.has(&action.node.name, &action.node.uid) {
            self.last.wrote(now, &action, &answer);
        }
        if let Ok(Some(node)) = &answer {
            self.nodes.apply_answer(node);
        }
        // A node that has changed since the decision is decided about again.
        let is_stopped = matches!(answer, Err(None | Some(ApiError::Conflict)));
        match &action.write {
            Write::Marks(marks) => {
                self.marked(now, &action, *marks, answer, &mut effects);
            }
            Write::Proof(decision, _) if !is_stopped => {
                let write = Write::Delete(decision.clone());
                let node = self.proven(now, action.node, answer, &mut effects);
                effects.push(Effect::Write(Action { node, write }));
            }
            Write::Proof(decision, _) | Write::Delete(decision) => {
                let policy = &self.parameters.policy;
                self.decider.deleted(now, decision, outcome(&answer), policy);
                self.tell(now, action, answer.map(|_| true), &mut effects);
            }
        }
        effects
    }

    fn marked(
        &mut self,
        now: At,
        action: &Action,
        marks: Marks,
        answer: WriteAnswer,
        effects: &mut Vec<Effect>,
    ) {
        self.has_failed |= answer.is_err();
        let is_shown =
            answer.as_ref().is_ok_and(|node| node.as_ref().is_some_and(|node| shows(node, marks)));
        if answer.is_ok() {
            self.record(now, &action.node, (MARKS, marks.content()), is_shown, effects);
        }
        self.tell(now, action.clone(), answer.map(|_| is_shown), effects);
    }

    /// Returns the node to delete after the answer to its mark. If the API server refuses the mark,
    /// the node is deleted without it.
    fn proven(
        &mut self,
        now: At,
        node: Arc<Node>,
        answer: WriteAnswer,
        effects: &mut Vec<Effect>,
    ) -> Arc<Node> {
        match answer {
            Ok(after) => {
                let marked = after.unwrap_or_else(|| Arc::clone(&node));
                let write = (PROOF, Content::digest(instance_gone::KEY));
                self.record(now, &node, write, action::has_proof(&marked), effects);
                marked
            }
            Err(error) => {
                let unmarked = |error| Effect::Unmarked(Arc::clone(&node.name), error);
                effects.extend(error.map(unmarked));
                node
            }
        }
    }

    /// Remembers a confirmed write.
    fn record(
        &mut self,
        now: At,
        node: &Arc<Node>,
        (kind, content): (&'static str, Content),
        is_shown: bool,
        effects: &mut Vec<Effect>,
    ) {
        if self.nodes.get(&node.name).is_none() {
            return;
        }
        let repeats = self.written.entry(Arc::clone(&node.name)).or_default();
        let repeated = match is_shown {
            true => repeats.made(now, kind, content),
            false => repeats.refused(now, kind, content),
        };
        effects.extend(repeated.map(|repeated| Effect::Repeated(Arc::clone(node), repeated)));
    }

    /// Reports the result, if a request was sent. A write that the answer shows is not due any
    /// more.
    fn tell(
        &mut self,
        now: At,
        action: Action,
        result: Result<bool, Option<ApiError>>,
        effects: &mut Vec<Effect>,
    ) {
        let result = match result {
            Ok(is_shown) => Ok(is_shown),
            Err(Some(error)) => Err(error),
            Err(None) => return,
        };
        let since = match &action.write {
            Write::Delete(decision) | Write::Proof(decision, _) => decision.since,
            Write::Marks(_) => None,
        };
        let open_for = now.since(since.unwrap_or(now));
        let name = Arc::clone(&action.node.name);
        let is_done = matches!(result, Ok(true));
        effects.push(Effect::Told(Box::new(Told { action, result, open_for })));
        if is_done && self.planned.remove(&name) {
            effects.push(Effect::Clear(name));
        }
    }
}
