//! Tests of the remembered state, of what a leader leaves to the next one, and of the counts.

use std::time::Duration;

use ccm_cloud::{Digest, LoadBalancer, NodeSelector};
use ccm_controller::brake::{Budget, Limit};

use super::*;
use crate::plan::members::Rules;

fn shown(change: impl FnOnce(&mut Entry)) -> metrics::State {
    let mut balancer = LoadBalancer::new("lb-1", "", None);
    balancer.phase = Phase::Ready;
    let mut entry = Entry::default();
    entry.state.known = Known::There(Box::new(balancer));
    entry.state.configured = Some(Digest { version: 1, hash: 7 });
    change(&mut entry);
    entry.shown()
}

fn member(node: &str) -> Member {
    let (node, addresses) = (node.to_owned(), Vec::new());
    Member { node, provider_id: None, addresses, labels: Arc::default() }
}

/// Two load balancers that exist and whose members are not known yet.
fn resumed(left: Option<Digest>, nodes: &Arc<[Member]>) -> Balancers {
    let balancers = Balancers::default();
    let inherited = Inherited { settled: left, ..Inherited::default() };
    balancers.inherit(At::default(), inherited);
    balancers.publish(nodes);
    balancers.set_list(List::Compared);
    for name in ["default/web", "default/api"] {
        let service =
            Service { key: name.into(), uid: format!("uid-{name}").into(), ..Service::default() };
        balancers.with(&service, |entry| {
            let balancer = LoadBalancer::new(format!("lb-{name}"), "", None);
            entry.state.known = Known::There(Box::new(balancer));
        });
    }
    balancers
}

fn awaited(balancers: &Balancers) -> usize {
    let mut count = 0;
    balancers.each(|_, entry| count += usize::from(entry.is_awaited()));
    count
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
        let balancers = resumed(left, &nodes);
        assert_eq!(balancers.settled(), left.filter(|left| *left == own));
        assert_eq!((balancers.await_members(), awaited(&balancers)), expect, "{left:?}");
        assert_eq!(balancers.settled().is_some(), left == Some(own));
    }
    // One on which the cloud works may be without a change of the last leader.
    let balancers = resumed(Some(own), &nodes);
    balancers.with_name("default/web", |entry| {
        let (call, digest, members) = (None, None, None);
        let (what, check_at, since) = (String::new(), At::default(), At::default());
        let pending = crate::plan::Pending { call, digest, members, what, check_at, since };
        entry.state.pending = Some(pending);
    });
    assert_eq!((balancers.await_members(), awaited(&balancers)), (false, 1));
    balancers.with_name("default/web", |entry| entry.state.pending = None);
    assert_eq!(balancers.settled(), None, "it has still to be read");
}

#[test]
fn settled_is_what_all_load_balancers_have() {
    let nodes: Arc<[Member]> = vec![member("a"), member("b")].into();
    let balancers = resumed(None, &nodes);
    let set = crate::plan::eligible::NodeSet { members: Arc::clone(&nodes), ..Default::default() };
    balancers.each(|_, entry| {
        entry.membership.shown(&nodes, &set, At::default());
        entry.agrees = Some(eligible::digest(&nodes));
    });
    assert_eq!(balancers.settled(), Some(eligible::digest(&nodes)));
    balancers.with_name("default/web", |entry| entry.agrees = None);
    assert_eq!(balancers.settled(), None, "one has other members");
    // With other nodes none has them.
    balancers.publish(&vec![member("a")].into());
    assert_eq!((balancers.digest_of(&nodes), balancers.settled()), (None, None));
}

#[test]
fn what_has_left_is_known_while_the_service_is_not_served() {
    let nodes: Arc<[Member]> = vec![member("a"), member("b")].into();
    let balancers = resumed(None, &nodes);
    let (limit, window) = (Limit::Count(1), Duration::from_mins(10));
    let now = At::default() + window;
    let name = Name::from("default/web");
    balancers.with_name(&name, |entry| {
        let set = NodeSet { members: nodes[1..].into(), ..NodeSet::default() };
        entry.membership.shown(&nodes, &set, now);
        let rules = Rules {
            budget: Budget { limit, window },
            approved: false,
            selector: &NodeSelector::every(),
            is_default: true,
            families: &[],
            in_cloud: None,
        };
        entry.membership.decide(now, &set, rules);
    });
    balancers.keep_departures();
    let told = balancers.departures(At::default());
    assert_ne!(told, Some(Departures::default()));
    balancers.forget(&name);
    balancers.keep_departures();
    assert_eq!(balancers.departures(At::default()), told);
    let uid = "uid-default/web".into();
    let service = Service { key: Name::clone(&name), uid, ..Service::default() };
    balancers.with(&service, |entry| assert!(!entry.membership.is_known()));
    balancers.keep_departures();
    assert_eq!(balancers.departures(At::default()), told, "it is served again");
}

#[test]
fn the_line_names_how_many_fail_and_why() {
    let balancers = resumed(None, &Vec::new().into());
    let passed = |text: &str| Verdict::Passed(text.to_owned());
    assert_eq!(balancers.verdict(), passed("2 Services, none failing"));
    balancers.with_name("default/web", |entry| {
        entry.state.failed = vec![crate::plan::Failed {
            call: CallKind::Ensure,
            digest: None,
            named: Default::default(),
            error: ccm_cloud::CloudError::new(ccm_cloud::ErrorKind::Unauthorized, "no"),
            times: 1,
            retry_at: At::default(),
            soonest: At::default(),
            inputs: crate::plan::Inputs::default(),
        }];
    });
    balancers.with_name("default/api", |entry| entry.is_wrong = true);
    let text = "2 of 2 Services: unauthorized 1, wrong Service 1";
    assert_eq!(balancers.verdict(), Verdict::Failed(text.to_owned()));
}

#[test]
fn what_needs_a_person_is_counted_as_failing() {
    assert_eq!(shown(|_| {}), metrics::State::Provisioned);
    let in_first_call =
        |known| shown(|entry| (entry.state.known, entry.state.configured) = (known, None));
    assert_eq!(in_first_call(Known::Absent), metrics::State::Pending);
    assert_eq!(in_first_call(Known::Nothing), metrics::State::Unknown);
    assert_eq!(shown(|entry| entry.is_wrong = true), metrics::State::Failing);
    let broken = |cure| {
        move |entry: &mut Entry| {
            if let Known::There(balancer) = &mut entry.state.known {
                balancer.phase = Phase::Failed { why: "no capacity".to_owned(), cure };
            }
        }
    };
    let elsewhere = shown(|entry| {
        entry.is_wrong = true;
        entry.state.known = Known::Elsewhere("an ingress controller".to_owned());
    });
    assert_eq!(elsewhere, metrics::State::Elsewhere, "its mistake is another controller's");
    assert_eq!(shown(broken(Cure::Person)), metrics::State::Failing);
    assert_eq!(shown(broken(Cure::Ensure)), metrics::State::Provisioned);
}
