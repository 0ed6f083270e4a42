//! The routes that one node lacks.

use ccm_objects::Node;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

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
    /// The reason.
    pub why: String,
    /// True if a call or a check failed: then the condition shows it at once.
    pub has_failed: bool,
}

impl Lack {
    /// It is being made, or waits for something normal.
    pub fn pending(why: impl Into<String>) -> Self {
        Self { why: why.into(), has_failed: false }
    }

    /// It cannot be made for now.
    pub fn failed(why: impl Into<String>) -> Self {
        Self { why: why.into(), has_failed: true }
    }
}

impl NodeRoutes {
    /// Returns true if they belong to this node, and not to an earlier node of the same name.
    pub fn are_of(&self, node: &Node) -> bool {
        self.uid == node.uid
    }

    /// The route of this pod CIDR is missing, for this reason.
    pub fn lack(&mut self, destination: IpNet, lack: Lack) {
        self.found(destination);
        self.missing.reserve_exact(1);
        self.missing.push((destination, lack));
    }

    /// The route of this pod CIDR exists.
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
    pub fn why(&self) -> Option<(&str, bool)> {
        let lacks = || self.missing.iter().map(|(_, lack)| lack);
        let failed = lacks().find(|lack| lack.has_failed).map(|lack| (&*lack.why, true));
        let problem = self.problem.as_deref().map(|why| (why, true));
        let pending = || lacks().next().map(|lack| (&*lack.why, false));
        problem.or(failed).or_else(pending)
    }
}
