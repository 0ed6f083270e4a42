//! The policy's memory of one node.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{At, Evidence, Heartbeat, ListCoverage, NodeView, Proof};

/// A watched node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The object that this record is about.
    pub uid: Box<str>,
    /// True if it had a provider ID: an answer by name proves nothing about an ID.
    pub has_id: bool,
    /// The operator's marks: protected, and approved.
    pub operator_marks: (bool, bool),
    /// True if the node was Ready when it was last seen. A Ready node is watched only if it runs on
    /// another machine than before.
    pub was_ready: bool,
    /// Its deletion was executed; the node is still in the views.
    pub deleted: bool,
    /// The answer to a deletion was lost.
    pub answer_was_lost: bool,
    /// The API server refused its deletion.
    pub refused: bool,
    /// When it was last looked up.
    pub looked: Option<At>,
    /// When the next lookup is due.
    pub look_again: At,
    /// Open from the first answer "gone" that counted.
    pub case: Option<Case>,
}

/// The evidence against a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    first: Proof,
    latest: Proof,
    answers: u32,
    /// The kubelet's Lease when it was first read, and when that was.
    pub heartbeat: Option<(At, Heartbeat)>,
}

impl Record {
    /// Creates a node that was never looked up.
    pub fn new(node: &NodeView) -> Self {
        Self {
            uid: node.uid.clone(),
            has_id: node.has_id,
            operator_marks: operator_marks(node),
            was_ready: node.ready,
            deleted: false,
            answer_was_lost: false,
            refused: false,
            looked: None,
            look_again: At::default(),
            case: None,
        }
    }

    /// Updates the record from the current node. A new mark of the operator takes effect at once,
    /// and so does a change of the condition Ready, which changes the required proof. When the
    /// provider ID is set, the case starts again.
    pub fn update(&mut self, node: &NodeView) {
        if self.has_id != node.has_id {
            *self = Self::new(node);
        }
        if self.operator_marks != operator_marks(node) || self.was_ready != node.ready {
            self.look_again = At::default();
        }
        (self.operator_marks, self.was_ready) = (operator_marks(node), node.ready);
    }
}

const fn operator_marks(node: &NodeView) -> (bool, bool) {
    (node.protected, node.approved)
}

impl Case {
    /// Returns a case opened by this answer.
    pub fn open(proof: Proof) -> Self {
        Self { first: proof.clone(), latest: proof, answers: 1, heartbeat: None }
    }

    /// Returns when the answer that opened the case arrived.
    pub fn opened(&self) -> At {
        self.first.answered
    }

    /// Adds one more answer "gone".
    pub fn add(&mut self, proof: Proof) {
        self.latest = proof;
        self.answers = self.answers.saturating_add(1);
    }

    /// Returns the number of answers.
    pub fn answers(&self) -> u32 {
        self.answers
    }

    /// Returns for how long the cloud has said so after `start`.
    pub fn lasted_from(&self, start: At) -> Duration {
        self.latest.asked.since(start.max(self.opened()))
    }

    /// Returns how many confirmation periods the answers must span, and how many answers there must
    /// be.
    pub fn needs(&self, cloud_lists: bool) -> (u32, u32) {
        let is_weak = !cloud_lists || self.first.is_weak() || self.latest.is_weak();
        if is_weak { (3, 3) } else { (1, 2) }
    }

    /// Returns the evidence for a decision.
    pub fn evidence(&self, list: Option<ListCoverage>) -> Evidence {
        Evidence {
            first: Some(self.first.clone()),
            latest: Some(self.latest.clone()),
            answers: self.answers,
            list,
        }
    }
}
