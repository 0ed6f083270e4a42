//! Services that change or are due, and what they depend on.

use std::{sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::{LoadBalancer, LoadBalancerList, NodeSelector};
use ccm_objects::{Node, Service, ServiceDetails, ServicePort, TooLarge};

use super::{due, leader, offer};
use crate::{
    machine::{
        Machine,
        effect::{Effect, Lane, PlanPage, Question, Turn},
        event::{Changed, Polled},
    },
    plan::{CallKind, Known, List, Pending, marks::Mark, status::ID},
};

const NOW: At = At(Duration::from_hours(1000));

/// A Service of this name that has a port.
fn service(name: &str) -> Service {
    let port = ServicePort {
        protocol: "TCP".into(),
        port: 80,
        node_port: Some(30080),
        ..Default::default()
    };
    let details = ServiceDetails { ports: vec![port], ..ServiceDetails::default() };
    Service {
        key: format!("shop/{name}").into(),
        uid: format!("uid-{name}").into(),
        is_load_balancer: true,
        has_finalizer: true,
        details: Some(Box::new(details)),
        ..Service::default()
    }
}

fn details(service: &mut Service) -> &mut ServiceDetails {
    service.details.as_mut().expect("details")
}

fn is_there(machine: &mut Machine, service: &Service) {
    let balancer = LoadBalancer::new("lb-1", "", None);
    machine.balancers.entry(service).state.known = Known::There(Box::new(balancer));
}

/// The cloud works on a creation, and is looked at again at this time.
fn working_until(check_at: At) -> Pending {
    Pending {
        call: Some(CallKind::Ensure),
        digest: None,
        members: None,
        what: String::new(),
        check_at,
        since: NOW,
    }
}

#[test]
fn a_deletion_does_not_wait_for_the_rate_of_its_service() {
    let mut machine = leader();
    let old = Some(Arc::new(service("web")));
    let turn = |machine: &mut Machine, new: Service| {
        let changed = Changed { old: old.clone(), new: Some(Arc::new(new)) };
        let effects = machine.service_changed(&changed);
        let [Effect::Queue(_, Lane::Normal, turn)] = effects[..] else { panic!("{effects:?}") };
        turn
    };
    let mut edited = service("web");
    details(&mut edited).ports[0].port = 81;
    assert!(matches!(turn(&mut machine, edited), Turn::Paced(_)));
    let deleted = Service { deleting: true, ..service("web") };
    assert!(matches!(turn(&mut machine, deleted), Turn::Now(_)));
}

#[test]
fn another_default_selector_concerns_all_and_what_has_failed_is_tried_again() {
    let mut machine = leader();
    machine.balancers.entry(&service("web"));
    assert_eq!(machine.offered(Ok(offer("pool=a")), false).len(), 1);
    assert_eq!(machine.offered(Ok(offer("pool=a")), false).len(), 0);
    let before = machine.inputs();
    machine.offered(Ok(offer("pool=a")), true);
    assert_ne!(machine.inputs(), before);
    assert!(machine.lacks_labels(&NodeSelector::parse("pool=a")));
}

#[test]
fn a_node_that_goes_leaves_its_mark_at_once() {
    let mut machine = leader();
    let node = Node { name: "node-1".into(), unschedulable: true, ..Node::default() };
    machine.node_changed(&Changed { old: Some(Arc::new(node)), new: None }, NOW);
    assert_eq!(machine.nodes.went.get("node-1"), Some(Mark::Drained));
}

#[test]
fn a_service_that_was_not_read_as_it_should_be_waits() {
    let mut machine = leader();
    let due = crate::machine::event::Due { is_read: false, ..due(&machine, service("web")) };
    let effects = machine.due(&due, NOW);
    assert!(matches!(effects[..], [Effect::Queue(_, _, Turn::After(..))]), "{effects:?}");
}

/// Its annotations may say that the address is kept.
#[test]
fn the_settings_of_a_service_that_is_too_large_are_not_known_when_it_is_deleted() {
    for is_cut in [false, true] {
        let (mut machine, mut service) = (leader(), service("web"));
        service.deleting = true;
        let too_large = TooLarge { part: "spec".into(), bytes: 1, others: 0 };
        details(&mut service).too_large = Some(too_large).filter(|_| is_cut);
        is_there(&mut machine, &service);
        let effects = machine.due(&due(&machine, service), NOW);
        let Some(Effect::Ask(ask)) = effects.last() else { panic!("{effects:?}") };
        let Question::Delete(unwanted) = &ask.question else { panic!("{ask:?}") };
        assert_eq!(unwanted.settings.is_none(), is_cut);
    }
}

#[test]
fn the_page_says_which_services_are_not_served() {
    let (mut machine, mut service) = (leader(), service("web"));
    service.has_finalizer = false;
    details(&mut service).class = Some("example.com/other".into());
    let effects = machine.due(&due(&machine, service), NOW);
    let is_blocked = |effect: &Effect| matches!(effect, Effect::Show(PlanPage::Blocked(..)));
    assert!(effects.iter().any(is_blocked), "{effects:?}");
}

#[test]
fn a_remark_does_not_block_a_service() {
    let (mut machine, mut service) = (leader(), service("web"));
    details(&mut service).ports[0].node_port = None;
    let state = &mut machine.balancers.entry(&service).state;
    state.known = Known::Absent;
    state.pending = Some(working_until(NOW + Duration::from_secs(30)));
    let effects = machine.due(&due(&machine, service), NOW);
    let is_shown = |effect: &Effect| matches!(effect, Effect::Show(PlanPage::Service(..)));
    assert!(effects.iter().any(is_shown), "{effects:?}");
}

#[test]
fn members_that_another_client_has_changed_are_read_although_they_were_read_before() {
    let (mut machine, mut service) = (leader(), service("web"));
    details(&mut service).annotations.insert(ID.into(), "lb-1".into());
    is_there(&mut machine, &service);
    let entry = machine.balancers.entry(&service);
    entry.read = Some(NOW);
    assert!(!entry.is_unread(&service));
    entry.awaited = true;
    assert!(entry.is_unread(&service));
}

#[test]
fn a_poll_that_cannot_read_an_entry_is_shown() {
    let (mut machine, service) = (leader(), service("web"));
    is_there(&mut machine, &service);
    machine.balancers.entry(&service).state.pending = Some(working_until(NOW));
    let list = LoadBalancerList {
        malformed: vec!["lb-1: no digest".to_owned()],
        ..LoadBalancerList::default()
    };
    let asked = vec![("lb-1".to_owned(), service.key.clone())];
    let effects = machine.polled(Polled { asked, list, ..Polled::default() }, NOW);
    assert!(matches!(effects[..], [Effect::Queue(..)]), "{effects:?}");
}

#[test]
fn the_room_of_a_namespace_is_for_what_stands_and_for_the_oldest() {
    let created = |name: &str, second: u8| {
        let mut service = service(name);
        details(&mut service).created = format!("2026-01-01T00:00:0{second}Z").parse().ok();
        service
    };
    let (old, web, new) = (created("old", 1), created("web", 2), created("new", 3));
    let is_full = |stands: Option<&Service>, neighbour: &Service| {
        let mut machine = leader();
        machine.parameters.most_per_namespace = 1;
        if let Some(service) = stands {
            is_there(&mut machine, service);
        }
        let neighbours = [Arc::new(neighbour.clone())];
        machine.full(&web, &neighbours, true, List::Compared).0.is_some()
    };
    assert!(is_full(None, &old) && !is_full(None, &new));
    assert!(is_full(Some(&new), &new), "it has one");
}
