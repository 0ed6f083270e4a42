//! What the policy remembers of one node.

use super::{At, Evidence, ListCoverage, NodeView, Proof};

/// A node that is not Ready.
#[derive(Clone, Debug)]
pub struct Record {
    /// The object that all of this is about.
    pub uid: Box<str>,
    /// Whether it had a provider ID: an answer by name is none about an ID.
    pub has_id: bool,
    /// What the operator said of it: whether it is protected, and approved.
    pub orders: (bool, bool),
    /// Its deletion was carried out; it is waited for to vanish.
    pub deleted: bool,
    /// Its deletion was refused.
    pub refused: bool,
    /// When it was last looked at.
    pub looked: Option<At>,
    /// When it is due.
    pub look_again: At,
    /// Open from the first answer "gone" that counted.
    pub case: Option<Case>,
}

/// What speaks against a node.
#[derive(Clone, Debug)]
pub struct Case {
    first: Proof,
    latest: Proof,
    answers: u32,
}

impl Record {
    /// A node that was never looked at.
    pub fn new(node: &NodeView) -> Self {
        Self {
            uid: node.uid.clone(),
            has_id: node.has_id,
            orders: orders(node),
            deleted: false,
            refused: false,
            looked: None,
            look_again: At::default(),
            case: None,
        }
    }

    /// Takes notice of the node as it is now. A new word of the operator is acted on at
    /// once; with its provider ID set, everything begins anew.
    pub fn update(&mut self, node: &NodeView) {
        if self.has_id != node.has_id {
            *self = Self::new(node);
        }
        if self.orders != orders(node) {
            self.orders = orders(node);
            self.look_again = At::default();
        }
    }
}

const fn orders(node: &NodeView) -> (bool, bool) {
    (node.protected, node.approved)
}

impl Case {
    /// A case that this answer opens.
    pub fn open(proof: Proof) -> Self {
        Self { first: proof.clone(), latest: proof, answers: 1 }
    }

    /// When the answer that opened the case was heard.
    pub fn opened(&self) -> At {
        self.first.answered
    }

    /// Takes down one more answer "gone".
    pub fn add(&mut self, proof: Proof) {
        self.latest = proof;
        self.answers = self.answers.saturating_add(1);
    }

    /// For the decision.
    pub fn evidence(&self, list: Option<ListCoverage>) -> Evidence {
        Evidence {
            first: Some(self.first.clone()),
            latest: Some(self.latest.clone()),
            answers: self.answers,
            list,
        }
    }
}
