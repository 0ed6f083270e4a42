//! Tests of what a leader leaves to the next one.

use std::time::Duration;

use ccm_cloud::{LoadBalancer, NodeSelector};
use ccm_controller::brake::{Budget, Limit};

use super::*;
use crate::plan::{
    Known,
    eligible::{self, NodeSet},
    members::MemberRules,
};

fn member(node: &str) -> Member {
    let (node, addresses) = (node.to_owned(), Vec::new());
    Member { node, provider_id: None, addresses, labels: Arc::default() }
}

/// Returns two load balancers that exist and whose members are not known yet.
fn resumed(left: Option<Digest>, nodes: &Arc<[Member]>) -> Balancers {
    let mut balancers = Balancers::default();
    let left = LeaderNote { settled: left, ..LeaderNote::default() };
    balancers.inherited = (At::default(), left);
    balancers.publish(nodes);
    balancers.list = List::Compared;
    for name in ["default/web", "default/api"] {
        let service =
            Service { key: name.into(), uid: format!("uid-{name}").into(), ..Service::default() };
        let balancer = LoadBalancer::new(format!("lb-{name}"), "", None);
        balancers.entry(&service).state.known = Known::There(Box::new(balancer));
    }
    balancers
}

fn awaited(balancers: &mut Balancers) -> usize {
    balancers.all().filter(|(_, entry)| entry.is_awaited()).count()
}

#[test]
fn with_the_nodes_of_the_last_leader_members_wait_for_their_turn() {
    let nodes: Arc<[Member]> = vec![member("a"), member("b")].into();
    let own = eligible::digest(&nodes);
    for (left, expect) in [
        (Some(own), (false, 0)),
        (Some(eligible::digest(&[member("a")])), (true, 2)),
        (None, (false, 2)),
    ] {
        let mut balancers = resumed(left, &nodes);
        assert_eq!(balancers.settled(), left.filter(|left| *left == own));
        assert_eq!((balancers.await_members(), awaited(&mut balancers)), expect, "{left:?}");
        assert_eq!(balancers.settled().is_some(), left == Some(own));
    }
    // A load balancer on which the cloud works may lack a change of the last leader.
    let mut balancers = resumed(Some(own), &nodes);
    {
        let entry = balancers.named("default/web").unwrap();
        let (call, digest, members) = (None, None, None);
        let (what, check_at, since) = (String::new(), At::default(), At::default());
        let pending = crate::plan::Pending { call, digest, members, what, check_at, since };
        entry.state.pending = Some(pending);
    }
    assert_eq!((balancers.await_members(), awaited(&mut balancers)), (false, 1));
    balancers.named("default/web").unwrap().state.pending = None;
    assert_eq!(balancers.settled(), None, "it has still to be read");
}

#[test]
fn settled_is_what_all_load_balancers_have() {
    let nodes: Arc<[Member]> = vec![member("a"), member("b")].into();
    let mut balancers = resumed(None, &nodes);
    let set = NodeSet { members: Arc::clone(&nodes), ..Default::default() };
    for (_, entry) in balancers.all_mut() {
        entry.membership.shown(&nodes, &set, At::default());
        entry.agrees = Some(eligible::digest(&nodes));
    }
    assert_eq!(balancers.settled(), Some(eligible::digest(&nodes)));
    balancers.named("default/web").unwrap().agrees = None;
    assert_eq!(balancers.settled(), None, "one has other members");
    // With other nodes, no load balancer has them.
    balancers.publish(&vec![member("a")].into());
    assert_eq!(balancers.settled(), None);
}

#[test]
fn what_has_left_is_known_while_the_service_is_not_served() {
    let nodes: Arc<[Member]> = vec![member("a"), member("b")].into();
    let mut balancers = resumed(None, &nodes);
    let (limit, window) = (Limit::Count(1), Duration::from_mins(10));
    let now = At::default() + window;
    let name = Name::from("default/web");
    {
        let entry = balancers.named(&name).unwrap();
        let set = NodeSet { members: nodes[1..].into(), ..NodeSet::default() };
        entry.membership.shown(&nodes, &set, now);
        let rules = MemberRules {
            budget: Budget { limit, window },
            approved: false,
            selector: &NodeSelector::every(),
            is_default: true,
            families: &[],
            in_cloud: None,
        };
        entry.membership.decide(now, &set, rules);
    }
    let told = balancers.departures(At::default());
    assert_ne!(told, Departures::default());
    balancers.forget(&name);
    assert_eq!(balancers.departures(At::default()), told);
    let uid = "uid-default/web".into();
    let service = Service { key: Name::clone(&name), uid, ..Service::default() };
    assert!(!balancers.entry(&service).membership.is_known());
    assert_eq!(balancers.departures(At::default()), told, "it is served again");
}
