//! The condition `NetworkUnavailable`. Its *status* decides whether it is written: if another
//! component has set the right status, it stays, with its reason. A message with a reason of ours
//! is written again when the kind of its statement changes.

use std::time::Duration;

use ccm_objects::{Condition, Node};
use serde::{Deserialize, Serialize};

use super::NodeRoutes;

/// The type of the condition.
pub const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// Upstream's reason and message of a node without a route.
const NOT_CREATED: &str = "NoRouteCreated";
const FAILED: &str = "RouteController failed to create a route";
/// The first words of the message about a node without pod CIDRs.
const NO_CIDRS: &str = "the node has no pod CIDRs";

/// How long a node may lack routes before it is marked: the route of a new node is normally there
/// earlier.
pub const GRACE: Duration = Duration::from_secs(5);

/// The status of the condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// The node has no network.
    True,
    /// The node has a network.
    False,
}

impl Status {
    /// Returns the status as the API server has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
        }
    }
}

/// The condition to write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewCondition {
    /// The status.
    pub status: Status,
    /// Upstream's reason.
    pub reason: &'static str,
    /// The message.
    pub message: String,
    /// True if the status changes. False if only the message changes.
    pub moves: bool,
}

impl NewCondition {
    fn new(status: Status, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status, reason, message: message.into(), moves: true }
    }

    /// Returns the condition, if route-ccm should write it to the node.
    fn differs(mut self, node: &Node) -> Option<Self> {
        self.moves = node.condition(NETWORK_UNAVAILABLE) != Some(self.status.as_str());
        (self.moves || self.says_else(node)).then_some(self)
    }

    /// Returns true if the node shows a reason of route-ccm that does not apply any more.
    fn says_else(&self, node: &Node) -> bool {
        let shown = node.condition_of(NETWORK_UNAVAILABLE, "True");
        shown.filter(|shown| is_own(shown)).is_some_and(|shown| {
            let message = shown.message.as_deref().unwrap_or_default();
            shown.reason.as_deref() != Some(self.reason) || topic(message).ne(topic(&self.message))
        })
    }
}

/// Returns true if the condition says that the node has no network, with a reason of ours, which is
/// upstream's as well.
fn is_own(condition: &Condition) -> bool {
    let reason = condition.reason.as_deref();
    *condition.status == *"True"
        && reason.is_some_and(|reason| [NOT_CREATED, NOT_AVAILABLE].contains(&reason))
}

/// Returns the kind of a message: its first words, without numbers, addresses and such.
fn topic(message: &str) -> impl Iterator<Item = &str> {
    let said = [FAILED, NO_CIDRS].into_iter().fold(message, |text, start| {
        text.strip_prefix(start).map_or(text, |text| text.trim_start_matches(": "))
    });
    let first = said.split_once(": ").map_or(said, |(first, _)| first);
    first.split(' ').filter(|word| !word.contains(|one: char| one.is_ascii_digit()))
}

/// Returns the condition to write for a node with pod CIDRs, if any. `waited` is how long it has
/// lacked routes.
pub fn of_routes(node: &Node, routes: &NodeRoutes, waited: Duration) -> Option<NewCondition> {
    let change = match routes.why() {
        None => {
            let message = "RouteController created a route";
            NewCondition::new(Status::False, "RouteCreated", message)
        }
        Some((_, false)) if waited < GRACE => return None,
        Some((why, _)) => NewCondition::new(Status::True, NOT_CREATED, format!("{FAILED}: {why}")),
    };
    change.differs(node)
}

/// The reason for a node without pod CIDRs if this program does not make routes. In all other cases
/// the condition then belongs to another component.
const NOT_AVAILABLE: &str = "CIDRNotAvailable";

/// Returns the condition to write for a node that gets no pod CIDRs, if any.
pub fn without_cidrs(node: &Node, why: &str, has_routes: bool) -> Option<NewCondition> {
    let (reason, message) = match has_routes {
        true => (NOT_CREATED, format!("{FAILED}: {NO_CIDRS}: {why}")),
        false => (NOT_AVAILABLE, format!("{NO_CIDRS}: {why}")),
    };
    NewCondition::new(Status::True, reason, message).differs(node)
}

/// Returns true if the condition says that the node has no route, as a controller of routes writes it.
pub fn is_not_created(node: &Node) -> bool {
    shows(node, NOT_CREATED)
}

fn shows(node: &Node, reason: &str) -> bool {
    let shown = node.condition_of(NETWORK_UNAVAILABLE, "True");
    shown.is_some_and(|shown| shown.reason.as_deref() == Some(reason))
}

/// Returns the condition to write for a node that has pod CIDRs now, if this program makes no
/// routes.
pub fn with_cidrs(node: &Node) -> Option<NewCondition> {
    let message = "the node has pod CIDRs; no routes are made (--configure-cloud-routes)";
    let new = || NewCondition::new(Status::False, "CIDRAssigned", message);
    shows(node, NOT_AVAILABLE).then(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::plan::Lack;

    fn lacking(lack: Lack) -> NodeRoutes {
        let mut routes = NodeRoutes::default();
        routes.lack("10.244.1.0/24".parse().expect("a network"), lack);
        routes
    }

    fn node(condition: Option<(&str, &str)>) -> Node {
        let condition = condition.map(|(status, reason)| Condition {
            kind: NETWORK_UNAVAILABLE.into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(format!("{FAILED}: x").into()),
        });
        Node { conditions: condition.into_iter().collect(), ..Node::default() }
    }

    fn change(
        condition: Option<(&str, &str)>,
        routes: &NodeRoutes,
    ) -> Option<(&'static str, &'static str)> {
        of_routes(&node(condition), routes, GRACE)
            .map(|change| (change.status.as_str(), change.reason))
    }

    /// Upstream's scenarios 34 to 42. The scenarios in which another component's reason stays
    /// differ.
    #[test]
    fn the_status_decides() {
        let (there, failed) = (NodeRoutes::default(), lacking(Lack::failed("x")));
        let (created, not) = (Some(("False", "RouteCreated")), Some(("True", "NoRouteCreated")));
        for (condition, routes, expect) in [
            (None, &there, created),
            (None, &failed, not),
            (Some(("False", "RouteCreated")), &there, None),
            (Some(("False", "CalicoIsUp")), &there, None),
            (Some(("False", "ExternalCNI")), &there, None),
            (Some(("True", "Other")), &failed, None),
            (Some(("False", "RouteCreated")), &failed, not),
            (Some(("True", "NoRouteCreated")), &failed, None),
            (Some(("True", "Other")), &there, created),
            (Some(("Unknown", "Other")), &there, created),
        ] {
            assert_eq!(change(condition, routes), expect, "{condition:?} {routes:?}");
        }
    }

    #[test]
    fn a_node_without_pod_cidrs_is_unavailable_until_it_has_some() {
        let reason = |change: Option<NewCondition>| {
            change.map(|change| (change.status.as_str(), change.reason))
        };
        let marked = node(Some(("True", "CIDRNotAvailable")));
        let new = node(None);
        assert_eq!(reason(without_cidrs(&new, "x", true)), Some(("True", "NoRouteCreated")));
        assert_eq!(reason(without_cidrs(&new, "x", false)), Some(("True", "CIDRNotAvailable")));
        assert_eq!(without_cidrs(&marked, "x", false), None);
        assert_eq!(reason(with_cidrs(&marked)), Some(("False", "CIDRAssigned")));
        // This is the condition of a controller of routes.
        assert_eq!(with_cidrs(&node(Some(("True", "NoRouteCreated")))), None);
    }

    #[test]
    fn a_message_is_written_again_when_it_says_something_of_another_kind() {
        let shown = |message: &str| {
            let mut node = node(Some(("True", NOT_CREATED)));
            node.conditions[0].message = (!message.is_empty()).then(|| message.into());
            node
        };
        let is_written = |message: &str, why: &str| {
            let failed = lacking(Lack::failed(why));
            let written = of_routes(&shown(message), &failed, GRACE);
            assert!(
                written.as_ref().is_none_or(|written| !written.moves),
                "the status is the same"
            );
            written.is_some()
        };
        for (before, now, expect) in [
            ("quota_exceeded: 3 of 3 (request a)", "quota_exceeded: 4 of 4 (request b)", false),
            (
                "the route of 10.0.1.0/24 is being made",
                "the route of fd00::/64 is being made",
                false,
            ),
            ("the route of 10.0.1.0/24 is being made", "quota_exceeded: 3 of 3", true),
            ("quota_exceeded: the project is full", "unavailable: the project is full", true),
            (
                "the node has no pod CIDRs: all 4 are taken",
                "the node has no pod CIDRs: all 5 are taken",
                false,
            ),
            (
                "the node has no pod CIDRs: all 4 are taken",
                "the node has no pod CIDRs: the nodes are being read",
                true,
            ),
        ] {
            assert_eq!(is_written(&format!("{FAILED}: {before}"), now), expect, "{before}, {now}");
        }
        for message in ["", FAILED] {
            assert!(is_written(message, "quota_exceeded: 3 of 3"), "{message}: it says nothing");
        }
        // This one belongs to the other part of the program.
        let other = node(Some(("True", NOT_AVAILABLE)));
        assert!(of_routes(&other, &lacking(Lack::failed("x")), GRACE).is_some());
    }

    #[test]
    fn a_route_that_is_being_made_has_a_moment() {
        let pending = lacking(Lack::pending("x"));
        let early = GRACE - Duration::from_millis(1);
        assert_eq!(of_routes(&node(None), &pending, early), None);
        assert!(of_routes(&node(None), &pending, GRACE).is_some());
        let failed = lacking(Lack::failed("x"));
        assert!(
            of_routes(&node(None), &failed, Duration::ZERO).is_some(),
            "a failure is shown at once"
        );
    }
}
