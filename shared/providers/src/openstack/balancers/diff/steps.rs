//! The changes.

use serde_json::{Value, json};

use super::super::{super::lbaas::Child, floating, wanted::Listener};

/// One change, and how it is shown.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct Step {
    pub(in super::super) line: String,
    pub(in super::super) act: Act,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) enum Act {
    Create(Child, Value),
    Update(Child, String, Value),
    Delete(Child, String),
    Members {
        pool: String,
        members: Vec<Value>,
    },
    Balancer(Value),
    Floating(floating::Act),
    /// It needs what an earlier change creates.
    Later,
}

impl Step {
    pub(in super::super) fn new(line: impl Into<String>, act: Act) -> Self {
        Self { line: line.into(), act }
    }
}

/// A change of a pool to what it is, after which its members and its monitor can be changed.
pub(in super::super) fn unchanged(pool: &str) -> Value {
    json!({ "name": pool })
}

/// How a listener is shown.
pub(super) fn shown(listener: &Listener) -> String {
    format!("{}/{}", listener.port, listener.protocol)
}

pub(super) fn members_line(count: usize, listener: &Listener) -> String {
    format!("set {count} members of listener {}", shown(listener))
}
