//! Load balancers that are gone, load balancers without a Service, and what is left of them to the next leader.

use std::{sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::{LoadBalancer, Loss};
use ccm_controller::brake::Window;
use ccm_objects::{Service, ServiceDetails, ServiceIngress, ServicePort};

use super::{due, leader, machine};
use crate::{
    machine::{
        Machine,
        effect::{Effect, OrphanDue, Task},
        left::LeaderNote,
    },
    plan::{
        Known, REPLACEMENT_APPROVED,
        front_end::owner,
        marks::{Mark, Marks},
        orphans::OrphanSight,
        status::ID,
    },
};

const NOW: At = At(Duration::from_hours(1000));

/// A Service that shows the address of a load balancer.
fn service() -> Service {
    let annotations = [(ID, "lb-1"), (REPLACEMENT_APPROVED, "yes")]
        .map(|(key, value)| (key.into(), value.into()));
    let details = ServiceDetails {
        annotations: annotations.into(),
        ports: vec![ServicePort { protocol: "TCP".into(), port: 80, ..ServicePort::default() }],
        ingress: vec![ServiceIngress::default()],
        ..ServiceDetails::default()
    };
    Service {
        key: "shop/web".into(),
        uid: "uid-1".into(),
        is_load_balancer: true,
        has_finalizer: true,
        details: Some(Box::new(details)),
        ..Service::default()
    }
}

fn lost(machine: &mut Machine) {
    let loss = Loss { why: "404".to_owned(), is_gone: true };
    machine.losses.record_answer(NOW, "uid-1", loss);
}

#[test]
fn the_note_of_the_last_leader_is_left_to_the_next_one() {
    let window = |what: &str| -> Window { [(NOW, what.into())].into_iter().collect() };
    let left =
        LeaderNote { orphans: window("lb-2"), replaced: window("uid-1"), ..LeaderNote::default() };
    let mut marks = Marks::default();
    marks.went("node-1", Some(Mark::Drained), NOW);
    let mut machine = machine();
    machine.begin(LeaderNote { marks, ..left.clone() }, NOW);
    assert_eq!(machine.nodes.went.get("node-1"), Some(Mark::Drained));
    let effects = machine.leave(&[], true, NOW);
    let [Effect::Leave(again)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(**again, left);
}

#[test]
fn a_replacement_is_left_to_the_next_leader_before_it_is_made() {
    let (mut machine, service) = (leader(), service());
    let state = &mut machine.balancers.entry(&service).state;
    (state.known, state.proved_absent) = (Known::Absent, true);
    lost(&mut machine);
    let effects = machine.due(&due(&machine, service.clone()), NOW);
    let is_noted = |effect: &Effect| matches!(effect, Effect::Wake(Task::Note));
    assert!(effects.iter().any(is_noted), "{effects:?}");
    assert!(machine.has_note());
    assert!(!machine.balancers.entry(&service).state.proved_absent, "there may be one now");
}

#[test]
fn a_replacement_that_is_held_hears_of_an_approval() {
    let mut machine = machine();
    let last = &mut machine.balancers.entry(&service()).last_plan;
    assert_eq!(last.held_replacement, None);
    last.held_replacement = Some(("unproved".to_owned(), NOW));
    let effects = machine.approved();
    assert!(matches!(effects[..], [Effect::Queue(..)]), "{effects:?}");
}

#[test]
fn a_load_balancer_that_was_made_again_is_not_lost() {
    let mut machine = machine();
    lost(&mut machine);
    assert!(machine.losses.are_any());
    machine.completed(&Arc::new(service()), NOW);
    assert!(!machine.losses.are_any());
}

#[test]
fn without_a_list_an_earlier_call_does_not_show_that_the_cloud_is_the_same() {
    let (mut machine, service) = (machine(), Arc::new(service()));
    let balancer = LoadBalancer::new("lb-1", "", None);
    machine.balancers.entry(&service).state.known = Known::There(Box::new(balancer));
    machine.no_list(&[service], NOW);
    assert!(!machine.losses.show_others());
}

#[test]
fn an_address_without_a_record_is_lost_unless_others_may_have_made_it() {
    for (is_new, is_lost) in [(false, true), (true, false)] {
        let (mut machine, mut service) = (machine(), service());
        service.details.as_mut().expect("details").annotations.clear();
        let state = &mut machine.balancers.entry(&service).state;
        (state.known, state.is_new) = (Known::Absent, is_new);
        machine.no_list(&[Arc::new(service)], NOW);
        assert_eq!(machine.losses.are_any(), is_lost);
    }
}

#[test]
fn the_api_servers_word_saves_a_load_balancer() {
    let (mut machine, service) = (machine(), service());
    let cluster = machine.cluster.clone();
    let orphans = [LoadBalancer::new("lb-1", "", Some(owner(&service, &cluster)))];
    let sight = OrphanSight {
        cluster: &cluster,
        orphans: &orphans,
        all: 10,
        services: 10,
        is_complete: true,
    };
    machine.orphans.listed(NOW, sight);
    let orphan = machine.orphans.get("lb-1").expect("an orphan").clone();
    let looked_up = |machine: &mut Machine, found| {
        let due = OrphanDue { orphan: orphan.clone(), is_duplicate: false };
        let effects = machine.orphan_looked_up(due, Ok(found), NOW);
        effects.iter().any(|effect| matches!(effect, Effect::DeleteOrphan(_)))
    };
    assert!(looked_up(&mut machine, None));
    assert!(!looked_up(&mut machine, Some(Box::new(service))));
}
