//! A second look at planned deletions: they wait for a lane and for the API server before they are sent.

use ccm_cloud::Route;

use super::{
    table::Table,
    targets::{Targets, is_target},
    wanted::{NodeView, Terms, Wanted, wanted},
};

/// The nodes as they are now.
#[derive(Debug)]
pub struct Again<'a> {
    nodes: &'a [NodeView],
    table: &'a Table,
    wanted: Wanted,
}

impl<'a> Again<'a> {
    /// Looks at these nodes.
    pub fn new(nodes: &'a [NodeView], terms: &Terms<'a>) -> Self {
        Self { nodes, table: terms.table, wanted: wanted(nodes, &Targets::of(nodes), terms) }
    }

    /// Returns true if the route may still go: there are nodes, and none of them needs it.
    pub fn may_go(&self, old: &Route) -> bool {
        let destination = old.destination.trunc();
        let is_disputed = || self.wanted.disputed.contains(&destination);
        let is_needed = match self.wanted.routes.get(&destination) {
            Some(place) => self.nodes.get(*place).is_some_and(|node| needs(node, old, self.table)),
            None => is_disputed(),
        };
        !self.nodes.is_empty() && !is_needed
    }
}

/// Returns true if this is the only route of the node that works.
fn needs(node: &NodeView, old: &Route, table: &Table) -> bool {
    let is_its =
        |route: &Route| route.target.as_ref().is_some_and(|target| is_target(target, node));
    let works = |route: &&Route| route.defect.is_none() && is_its(route);
    let working = table.to(old.destination.trunc()).iter().filter(works).count();
    is_its(old) && working <= usize::from(old.defect.is_none())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ccm_cloud::{RouteTable, RouteTarget, RouteTraits};
    use ccm_objects::{Address, Node};
    use ipnet::IpNet;

    use super::*;
    use crate::routes::plan::{targets::Former, widths::Widths};

    fn net(text: &str) -> IpNet {
        text.parse().expect("a network")
    }

    fn node(number: u8, cidr: &str) -> NodeView {
        let address = Address::new("InternalIP", format!("10.0.0.{number}"));
        let node = Node {
            name: format!("n{number}").into(),
            pod_cidrs: vec![cidr.into()],
            addresses: vec![address],
            ..Node::default()
        };
        NodeView { node: Arc::new(node), id: None, left_out: None }
    }

    fn route_to(destination: &str, number: u8) -> Route {
        Route::new(net(destination), RouteTarget::Address([10, 0, 0, number].into()))
    }

    fn to(number: u8, defect: Option<&str>) -> Route {
        let route = route_to("10.120.1.0/24", number);
        Route { defect: defect.map(str::to_owned), ..route }
    }

    #[test]
    fn what_a_node_needs_stays() {
        let (working, broken) = (to(1, None), to(1, Some("it is down")));
        let mine = || vec![node(1, "10.120.1.0/24"), node(2, "10.120.2.0/24")];
        let of_two = vec![node(2, "10.120.1.0/24"), node(1, "10.120.1.0/24")];
        let outside = route_to("10.99.1.0/24", 1);
        for (nodes, table, old, expect, what) in [
            (vec![], vec![&working], &working, false, "there is no node"),
            (mine(), vec![&working], &working, false, "the node is back"),
            (mine(), vec![&broken], &broken, false, "another one is not there yet"),
            (vec![node(2, "10.120.2.0/24")], vec![&working], &working, true, "no node has it"),
            (vec![node(1, "10.120.3.0/24")], vec![&working], &working, true, "it has another one"),
            (vec![node(2, "10.120.1.0/24")], vec![&working], &working, true, "another node has it"),
            (mine(), vec![&working, &working], &working, true, "it exists twice"),
            (mine(), vec![&working, &broken], &broken, true, "the other one works"),
            (mine(), vec![&working, &broken], &working, false, "the other one does not work"),
            (of_two, vec![&working], &working, false, "of two nodes the first one has it"),
            (vec![node(1, "10.99.1.0/24")], vec![&working], &working, true, "its own is elsewhere"),
            (vec![node(1, "10.99.1.0/24")], vec![&outside], &outside, false, "it has a problem"),
        ] {
            let routes = table.into_iter().cloned().collect();
            let table: Table = RouteTable { routes, ..RouteTable::default() }.into();
            let cidrs = [net("10.120.0.0/16")];
            let traits = RouteTraits::default();
            let terms = Terms {
                cluster_cidrs: &cidrs,
                traits: &traits,
                widths: &Widths::default(),
                approval: None,
                table: &table,
                former: &Former::default(),
            };
            assert_eq!(Again::new(&nodes, &terms).may_go(old), expect, "{what}");
        }
    }
}
