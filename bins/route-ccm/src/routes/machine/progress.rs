//! The progress of each node's routes.

use std::{collections::BTreeMap, mem, time::Duration};

use ccm_base::At;
use ccm_cloud::{AppliedChange, CloudError};
use ccm_objects::{Node, Shared as Name};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::routes::plan::{
    Counts, Lack, NodeRoutes,
    condition::{GRACE, NETWORK_UNAVAILABLE},
    failures::is_failure,
    targets::is_target,
    wanted::NodeView,
};

/// A node that was created up to this long before the leader's term still counts as joining. An
/// older node without the condition has run its pods without it.
const JOINING: Duration = Duration::from_mins(10);
/// Creation times have no fractions.
const SECOND: Duration = Duration::from_secs(1);
/// How long a node may lack pod CIDRs before that is reported.
const BARE: Duration = Duration::from_mins(1);

/// The progress of all nodes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    /// The routes of each node with pod CIDRs, as of the last plan and the answers since.
    nodes: BTreeMap<Name, NodeRoutes>,
    /// The time since when a node has lacked routes.
    lacking: BTreeMap<Name, At>,
    /// The time since when a node has lacked pod CIDRs.
    bare: BTreeMap<Name, At>,
    /// When this term began, by the clock of creation times.
    begun: At,
    /// The UIDs of nodes created since then that have had all their routes.
    completed: BTreeMap<Name, Box<str>>,
}

impl Progress {
    /// Begins a term.
    pub(super) fn new(begun: At) -> Self {
        Self { begun, ..Self::default() }
    }

    /// Takes the states of the nodes over from a plan. Returns the nodes that have all their routes
    /// and had not when this was last seen.
    pub(super) fn planned(&mut self, now: At, planned: BTreeMap<Name, NodeRoutes>) -> Vec<Name> {
        let before = mem::replace(&mut self.nodes, planned);
        let nodes = &self.nodes;
        let earlier = |name: &Name, routes: &NodeRoutes| {
            before.get(name).filter(|before| before.uid == routes.uid)
        };
        let completes = |(name, routes): &(&Name, &NodeRoutes)| {
            let was_complete = earlier(name, routes).is_some_and(NodeRoutes::is_complete);
            routes.is_complete() && !was_complete
        };
        let complete = nodes.iter().filter(completes);
        let complete = complete.map(|(name, _)| Name::clone(name)).collect();
        self.completed.retain(|name, _| nodes.contains_key(name));
        self.lacking.retain(|name, _| {
            let lacks = nodes.get(name).filter(|routes| !routes.is_complete());
            lacks.is_some_and(|routes| earlier(name, routes).is_some())
        });
        for (name, routes) in nodes {
            if !routes.is_complete() {
                self.lacking.entry(Name::clone(name)).or_insert(now);
            }
        }
        complete
    }

    /// Looks at the nodes as long as no table was listed, for this reason. Nodes that join lack
    /// their routes. The conditions of other nodes stay: a leader with a table wrote them.
    pub(super) fn unlisted(&mut self, now: At, nodes: &[NodeView], why: &str) -> Counts {
        let mut counts = Counts::default();
        nodes.iter().filter_map(|view| view.left_out).for_each(|why| counts.left_out(why));
        let served = || nodes.iter().filter(|view| view.left_out.is_none());
        let joins = |node: &Node| {
            node.condition(NETWORK_UNAVAILABLE) != Some("False")
                && Self::is_created_since(self.begun - JOINING, node)
        };
        let mut lacking: BTreeMap<Name, NodeRoutes> = BTreeMap::new();
        for view in served().filter(|view| joins(&view.node)) {
            for cidr in view.pod_cidrs() {
                let routes = lacking.entry(Name::clone(&view.node.name)).or_default();
                routes.uid.clone_from(&view.node.uid);
                routes.lack(cidr, Lack::pending(why));
            }
        }
        counts.nodes_without_cidrs = served().filter(|view| view.node.pod_cidrs.is_empty()).count();
        counts.nodes_incomplete = lacking.len();
        self.planned(now, lacking);
        counts
    }

    /// Records the nodes without pod CIDRs. Returns those that have had none of them for [`BARE`].
    pub(super) fn bare<'a>(&mut self, now: At, nodes: &'a [NodeView]) -> Vec<&'a NodeView> {
        let before = mem::take(&mut self.bare);
        let served = nodes.iter().filter(|view| view.left_out.is_none());
        let bare = served.filter(|view| view.node.pod_cidrs.is_empty());
        let since = |view: &NodeView| before.get(&view.node.name).map_or(now, |since| *since);
        self.bare = bare.clone().map(|view| (Name::clone(&view.node.name), since(view))).collect();
        bare.filter(|view| now.since(since(view)) >= BARE).collect()
    }

    /// Returns true if the last look saw the node without pod CIDRs, for [`BARE`].
    pub(super) fn is_bare(&self, now: At, name: &str) -> bool {
        self.bare.get(name).is_some_and(|since| now.since(*since) >= BARE)
    }

    /// Records the answer to a change about this node. Returns true if it has all its routes now.
    pub(super) fn record_answer(
        &mut self,
        destination: IpNet,
        answer: &Result<AppliedChange, CloudError>,
        view: &NodeView,
    ) -> bool {
        let routes = self.nodes.get_mut(&view.node.name);
        let Some(routes) = routes.filter(|routes| routes.are_of(&view.node)) else { return false };
        match answer {
            Ok(AppliedChange { route: Some(route), .. }) if route.defect.is_none() => {
                // If the node has another address now, the next plan finds that.
                if route.target.as_ref().is_some_and(|target| is_target(target, view)) {
                    routes.found(destination);
                }
            }
            Ok(AppliedChange { route, .. }) => {
                let defect = route.as_ref().and_then(|route| route.defect.clone());
                let none = || Lack::failed("the cloud shows no such route");
                routes.lack(destination, defect.map_or_else(none, Lack::pending));
            }
            Err(error) => {
                let has_failed = is_failure(error);
                routes.lack(destination, Lack { has_failed, ..Lack::pending(error.to_string()) });
            }
        }
        routes.is_complete()
    }

    fn is_created_since(moment: At, node: &Node) -> bool {
        node.created.is_some_and(|created| moment < At::from(created) + SECOND)
    }

    /// Records that a node has all its routes. Returns true if that is so for the first time since
    /// it was created, which was in this term.
    pub(super) fn completes(&mut self, node: &Node) -> bool {
        if !self.nodes.get(&node.name).is_some_and(|routes| routes.are_of(node)) {
            return false;
        }
        if !Self::is_created_since(self.begun, node) {
            return false;
        }
        let before = self.completed.insert(Name::clone(&node.name), node.uid.clone());
        before.is_none_or(|uid| uid != node.uid)
    }

    /// Returns the routes of a node, and how long it has lacked some. Nothing is known of a node
    /// that has come since the last plan, even if there was one of its name.
    pub(super) fn routes_of(&self, now: At, node: &Node) -> Option<(&NodeRoutes, Duration)> {
        let routes = self.nodes.get(&node.name).filter(|routes| routes.are_of(node))?;
        let waited = self.lacking.get(&node.name).map(|since| now.since(*since));
        Some((routes, waited.unwrap_or_default()))
    }

    /// Returns true if this node has pod CIDRs.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.nodes.contains_key(name)
    }

    /// Returns true if a node lacks a route only because it is being made.
    pub(super) fn is_pending(&self, name: &str) -> bool {
        self.nodes.get(name).and_then(NodeRoutes::why).is_some_and(|(_, has_failed)| !has_failed)
    }

    /// Returns when the next node has lacked routes for so long that its condition says so.
    pub(super) fn next_condition(&self, now: At) -> Option<At> {
        self.lacking.values().map(|since| *since + GRACE).filter(|due| *due > now).min()
    }

    /// Returns how long the node that waits longest has lacked a route.
    pub(super) fn longest_wait(&self, now: At) -> Duration {
        self.lacking.values().min().map(|since| now.since(*since)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_completes_once_and_counts_only_if_this_term_has_seen_its_creation() {
        let mut progress = Progress::new(At(Duration::from_millis(1_000_500)));
        let node = |uid: &str, created: &str| Node {
            name: "n".into(),
            uid: uid.into(),
            created: Some(created.parse().expect("a time")),
            ..Node::default()
        };
        let mut completes = |node: Node| {
            let mut routes = NodeRoutes::default();
            routes.uid.clone_from(&node.uid);
            progress.nodes.insert(Name::clone(&node.name), routes);
            progress.completes(&node)
        };
        assert!(!completes(Node::default()), "nothing is known of its creation");
        assert!(!completes(node("a", "1970-01-01T00:16:39Z")));
        assert!(completes(node("b", "1970-01-01T00:16:40Z")));
        assert!(!completes(node("b", "1970-01-01T00:16:40Z")));
        assert!(completes(node("c", "1970-01-01T00:16:41Z")), "another node of that name");
        let next = node("d", "1970-01-01T00:16:42Z");
        assert!(!progress.completes(&next), "the routes belong to the previous node");
    }
}
