//! The changes of a load balancer, one line each. Pure.

use ccm_openstack_client::{lbaas::Child, network::FloatingIp};
use serde_json::{Value, json};

/// One change, and how it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub line: String,
    pub act: Act,
}

/// The request of a step.
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
    /// A change of tags that marks the monitors as withdrawn. The next comparison deletes them.
    TakeBack(Value),
    Floating(FloatingAct),
    /// It needs what an earlier change creates.
    Later,
}

/// A change of a floating IP.
#[derive(Clone, Debug, PartialEq)]
pub enum FloatingAct {
    /// Create it for the virtual address.
    Create(Value),
    /// Attach it to the virtual address.
    Attach(FloatingIp),
    /// Attach the one that the user asks for to the virtual address.
    Wished {
        ip: FloatingIp,
        /// The present one, which cannot stay beside it. It is attached again if the other one cannot be.
        instead_of: Option<Box<FloatingIp>>,
    },
    /// Detach it and keep it.
    Detach(FloatingIp),
    /// Delete it.
    Release(String),
    /// Record the owner.
    Tag(String, Vec<String>),
}

impl Act {
    /// Returns true if it changes the configuration, and not only members or the record of the
    /// owner.
    pub fn changes_configuration(&self) -> bool {
        let is_record = matches!(self, Self::Floating(FloatingAct::Tag(..)));
        !is_record && !matches!(self, Self::Members { .. })
    }
}

impl Step {
    /// Creates a step. The line may contain the cloud's words, and stays one line.
    pub fn new(line: impl Into<String>, act: Act) -> Self {
        Self { line: line.into().replace(char::is_control, " "), act }
    }

    /// Returns true if it gives a floating IP to a virtual address without one.
    pub const fn makes_public(&self) -> bool {
        let Act::Floating(act) = &self.act else { return false };
        matches!(
            act,
            FloatingAct::Create(_)
                | FloatingAct::Attach(_)
                | FloatingAct::Wished { instead_of: None, .. }
        )
    }

    pub const fn creates_floating(&self) -> bool {
        matches!(self.act, Act::Floating(FloatingAct::Create(_)))
    }
}

/// Returns a change of a pool to what it is, after which its members and its monitor can be
/// changed.
pub fn unchanged(pool: &str) -> Value {
    json!({ "name": pool })
}
