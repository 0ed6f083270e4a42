//! The condition `NetworkUnavailable`. Its *status* decides whether it is written: what another
//! component has set to the right status stays, with its reason.

use std::time::Duration;

use ccm_objects::Node;

use super::NodeRoutes;

/// The type of the condition.
pub const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// How long a node may lack routes before it is marked: the route of a new node is normally there
/// earlier.
pub const GRACE: Duration = Duration::from_secs(5);

/// The condition to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCondition {
    /// `True` or `False`.
    pub status: &'static str,
    /// Upstream's reason.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

/// What to write of a node with pod CIDRs, if anything. `waited` is how long it has lacked routes.
pub fn of_routes(node: &Node, routes: &NodeRoutes, waited: Duration) -> Option<NewCondition> {
    let change = match routes.why() {
        None => NewCondition {
            status: "False",
            reason: "RouteCreated",
            message: "RouteController created a route".to_owned(),
        },
        Some((_, false)) if waited < GRACE => return None,
        Some((why, _)) => NewCondition {
            status: "True",
            reason: "NoRouteCreated",
            message: format!("RouteController failed to create a route: {why}"),
        },
    };
    (node.condition(NETWORK_UNAVAILABLE) != Some(change.status)).then_some(change)
}

/// The reason for a node without pod CIDRs if this program makes no routes: the condition is then
/// another component's, except in this case.
const NOT_AVAILABLE: &str = "CIDRNotAvailable";

/// What to write for a node that gets no pod CIDRs, if anything.
pub fn without_cidrs(node: &Node, why: &str, has_routes: bool) -> Option<NewCondition> {
    let (reason, message) = match has_routes {
        true => {
            let what = format!("RouteController failed to create a route: no pod CIDRs: {why}");
            ("NoRouteCreated", what)
        }
        false => (NOT_AVAILABLE, format!("the node has no pod CIDRs: {why}")),
    };
    let change = NewCondition { status: "True", reason, message };
    (node.condition(NETWORK_UNAVAILABLE) != Some(change.status)).then_some(change)
}

/// Whether the condition says that the node has no pod CIDRs, in a program that makes no routes.
pub fn is_without_cidrs(node: &Node) -> bool {
    let mut conditions = node.conditions.iter().filter(|one| &*one.kind == NETWORK_UNAVAILABLE);
    conditions.any(|one| &*one.status == "True" && one.reason.as_deref() == Some(NOT_AVAILABLE))
}

/// What to write for a node that has got them, if this program makes no routes.
pub fn with_cidrs(node: &Node) -> Option<NewCondition> {
    is_without_cidrs(node).then(|| NewCondition {
        status: "False",
        reason: "CIDRAssigned",
        message: "the node has pod CIDRs; no routes are made (--configure-cloud-routes)".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use ccm_objects::Condition;

    use super::*;
    use crate::plan::Lack;

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
        });
        Node { conditions: condition.into_iter().collect(), ..Node::default() }
    }

    fn change(
        condition: Option<(&str, &str)>,
        routes: &NodeRoutes,
    ) -> Option<(&'static str, &'static str)> {
        of_routes(&node(condition), routes, GRACE).map(|change| (change.status, change.reason))
    }

    /// Upstream's scenarios 34 to 42. Those in which another component's reason stays differ.
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
        let reason =
            |change: Option<NewCondition>| change.map(|change| (change.status, change.reason));
        let marked = node(Some(("True", "CIDRNotAvailable")));
        let new = node(None);
        assert_eq!(reason(without_cidrs(&new, "x", true)), Some(("True", "NoRouteCreated")));
        assert_eq!(reason(without_cidrs(&new, "x", false)), Some(("True", "CIDRNotAvailable")));
        assert_eq!(without_cidrs(&marked, "x", false), None);
        assert_eq!(reason(with_cidrs(&marked)), Some(("False", "CIDRAssigned")));
        // That of a controller of routes.
        assert_eq!(with_cidrs(&node(Some(("True", "NoRouteCreated")))), None);
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
