//! The changes.

use ccm_openstack_client::lbaas::Child;
use serde_json::{Value, json};

use crate::balancers::{floating, wanted::Listener};

/// One change, and how it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub line: String,
    pub act: Act,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    Create(Child, Value),
    Update(Child, String, Value),
    Delete(Child, String),
    Members {
        pool: String,
        members: Vec<Value>,
    },
    Balancer(Value),
    /// A change of tags that marks the monitors as taken back. The next comparison deletes them.
    TakeBack(Value),
    Floating(floating::Act),
    /// It needs what an earlier change creates.
    Later,
}

impl Act {
    /// Whether it changes the configuration, and not only members or the record of the owner.
    pub fn changes_configuration(&self) -> bool {
        let is_record = matches!(self, Self::Floating(floating::Act::Tag(..)));
        !is_record && !matches!(self, Self::Members { .. })
    }
}

impl Step {
    /// What the cloud has said may be part of the line, which stays one line.
    pub fn new(line: impl Into<String>, act: Act) -> Self {
        Self { line: line.into().replace(char::is_control, " "), act }
    }
}

/// A change of a pool to what it is, after which its members and its monitor can be changed.
pub fn unchanged(pool: &str) -> Value {
    json!({ "name": pool })
}

/// How a listener is shown.
pub fn shown(listener: &Listener) -> String {
    format!("{}/{}", listener.port, listener.protocol)
}

pub fn members_line(count: usize, listener: &Listener) -> String {
    format!("set {count} members of listener {}", shown(listener))
}
