//! The routes that one node lacks.

use std::fmt;

use ccm_objects::Node;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::problem::Problem;

/// The routes that a node lacks, with the reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRoutes {
    /// The UID of the node.
    pub uid: Box<str>,
    /// The pod CIDRs without a working route: one or two, so no map.
    missing: Vec<(IpNet, Lack)>,
    /// The reason why another pod CIDR does not get a route.
    pub problem: Option<String>,
}

/// The reason why a route is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lack {
    /// The cause, in words.
    pub cause: String,
    /// The fix for a person, if the plan knows it.
    pub fix: Option<String>,
    /// The subject of the cause.
    pub source: LackSource,
    /// True if a call or a check has failed. Then the condition shows it at once.
    pub has_failed: bool,
}

/// The subject of the cause of a missing route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LackSource {
    /// The routes.
    Routes,
    /// The last change, which has failed.
    Change,
    /// The node: node-ccm will give it what the cloud needs.
    Node,
}

impl Lack {
    /// Returns the lack of a route that is being made, or waits for something normal.
    pub fn pending(cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), fix: None, source: LackSource::Routes, has_failed: false }
    }

    /// Returns the lack of a route that cannot be made for now.
    pub fn failed(cause: impl Into<String>) -> Self {
        Self { has_failed: true, ..Self::pending(cause) }
    }

    /// Returns the state of a node that lacks data that the cloud needs.
    pub fn of_node(problem: &Problem) -> Self {
        let (cause, fix) = (problem.cause(), Some(problem.fix()));
        match problem {
            Problem::UnreadableId(_) => Self { fix, ..Self::failed(cause) },
            _ => Self { fix, source: LackSource::Node, ..Self::pending(cause) },
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)?;
        self.fix.iter().try_for_each(|fix| write!(f, "; {fix}"))
    }
}

impl NodeRoutes {
    /// Returns true if they belong to this node, and not to an earlier node of the same name.
    pub fn are_of(&self, node: &Node) -> bool {
        self.uid == node.uid
    }

    /// Records that the route of this pod CIDR is missing, for this reason.
    pub fn lack(&mut self, destination: IpNet, lack: Lack) {
        self.found(destination);
        self.missing.reserve_exact(1);
        self.missing.push((destination, lack));
    }

    /// Records that the route of this pod CIDR exists.
    pub fn found(&mut self, destination: IpNet) {
        self.missing.retain(|(missing, _)| *missing != destination);
    }

    /// Returns the reason why the route of this pod CIDR is missing, if it is.
    pub fn lacks(&self, destination: IpNet) -> Option<&Lack> {
        let mut missing = self.missing.iter();
        missing.find_map(|(one, lack)| (*one == destination).then_some(lack))
    }

    /// Returns true if the node has all its routes.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.problem.is_none()
    }

    /// Returns the first reason why a route is missing, failures before others, and true if it is a failure.
    pub fn why(&self) -> Option<(String, bool)> {
        let lacks = || self.missing.iter().map(|(_, lack)| lack);
        let lack = lacks().find(|lack| lack.has_failed).or_else(|| lacks().next());
        let problem = self.problem.clone().map(|why| (why, true));
        problem.or_else(|| lack.map(|lack| (lack.to_string(), lack.has_failed)))
    }
}
