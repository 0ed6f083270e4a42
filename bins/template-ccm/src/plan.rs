//! The plan for one node: a pure function from the known state to a list of steps.
//!
//! It has no clock, no I/O and no client; the tidy tests enforce this. A [`Plan`] is a value,
//! so its cases are tested as a table.

use std::fmt;

use ccm_base::RetryClass;
use ccm_cloud::{Lookup, LookupResult};
use ccm_objects::Node;

/// The annotation that the controller owns. The informer keeps only annotations that begin
/// with `quartet.dev/`.
pub const INSTANCE_NAME: &str = "quartet.dev/instance-name";

/// The steps for one node, and their reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The node's state once the steps are done.
    pub outcome: Outcome,
    /// The writes, in order.
    pub steps: Vec<Step>,
}

/// The node's state from the controller's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The annotation equals the instance's name.
    Named,
    /// The controller must not change it, for this reason.
    Skipped(String),
    /// The cloud has no answer about it now.
    Waits {
        /// When to ask again.
        class: RetryClass,
        /// The kind of the error, as one word.
        reason: &'static str,
        /// The cloud's message.
        message: String,
    },
}

/// One write to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sets the annotation.
    SetName {
        /// The new value.
        name: String,
        /// The reason.
        why: String,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetName { name, why } => write!(f, "{INSTANCE_NAME}={name} ({why})"),
        }
    }
}

/// Plans the steps for a node from the cloud's answer about it.
pub fn plan(node: &Node, answer: &LookupResult) -> Plan {
    let without_steps = |outcome| Plan { outcome, steps: Vec::new() };
    let skipped = |why: &str| without_steps(Outcome::Skipped(why.to_owned()));
    match answer {
        _ if node.deleting => skipped("it is being deleted"),
        Ok(Lookup::Found(instance)) => {
            let steps = name(node, &instance.name).into_iter().collect();
            Plan { outcome: Outcome::Named, steps }
        }
        // lifecycle-ccm decides whether to delete the node.
        Ok(Lookup::Gone(_)) => skipped("its instance is gone"),
        Ok(Lookup::NotOurs(why)) => skipped(why),
        Err(error) => without_steps(Outcome::Waits {
            class: error.class(),
            reason: error.kind.reason(),
            message: error.to_string(),
        }),
    }
}

fn name(node: &Node, wanted: &str) -> Option<Step> {
    let why = match node.annotations.get(INSTANCE_NAME) {
        Some(found) if **found == *wanted => return None,
        Some(found) => format!("it was {found}"),
        None => "the node has no such annotation".to_owned(),
    };
    Some(Step::SetName { name: wanted.to_owned(), why })
}

#[cfg(test)]
mod tests;
