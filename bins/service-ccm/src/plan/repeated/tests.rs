use std::{sync::Arc, time::Duration};

use ccm_cloud::{AddressKind, FrontEnd};
use ccm_objects::ServiceDetails;

use super::{
    super::{
        BalancerState, Plan,
        front_end::spec_front_end,
        reason::Reason,
        tests::{cluster, planned, service, there},
    },
    *,
};

fn at(seconds: u64) -> At {
    At::default() + Duration::from_secs(seconds)
}

fn front_end(service: &Service) -> Arc<FrontEnd> {
    spec_front_end(service, &cluster(), &ccm_cloud::LoadBalancerTraits::default())
        .front_end
        .unwrap()
}

/// Returns the seconds of the calls within an hour if each call is confirmed and due again at once.
fn calls(service: &Service, mut state: BalancerState) -> Vec<u64> {
    let mut calls = Vec::new();
    for second in 0..3600 {
        let plan = planned(service, &state, second, |_| {});
        if let Plan::Next(step) = plan
            && step.call().is_some()
        {
            called(&mut state.repeats, at(second), &step, service, &Decision::default());
            calls.push(second);
        }
    }
    calls
}

#[test]
fn a_call_that_is_due_again_after_done_is_made_less_and_less_often() {
    let service = service();
    // Another client undoes each change of the load balancer.
    let looked_at = BalancerState { needs_look: true, ..there(&service) };
    let mut leaving = service.clone();
    leaving.is_load_balancer = false;
    let doubled = BalancerState { duplicate: Some("lb-2".to_owned()), ..there(&service) };
    for (service, state) in
        [(&service, looked_at), (&leaving, there(&service)), (&service, doubled)]
    {
        let calls = calls(service, state);
        assert_eq!(calls[..7], [0, 1, 2, 12, 32, 72, 152], "{calls:?}");
        assert!(calls.len() < 20, "{calls:?}");
    }
    // Another client removes the members again.
    let (mut repeats, members) = (Repeats::default(), Decision::default());
    let step = Step::SetMembers("lb-1".to_owned());
    let told =
        (0..3).filter_map(|second| called(&mut repeats, at(second), &step, &service, &members));
    assert_eq!(told.count(), 1);
    assert!(!may_call(&repeats, at(11), &step, &service, &members));
    assert!(may_call(&repeats, at(12), &step, &service, &members));
}

#[test]
fn other_configurations_and_other_members_are_other_calls() {
    let mut repeats = Repeats::default();
    let service = service();
    let mut other = service.clone();
    other.details.as_mut().unwrap().source_ranges = vec!["10.0.0.0/8".into()];
    for turn in 0..20 {
        let service = if turn % 2 == 0 { &service } else { &other };
        let step = Step::Ensure(front_end(service));
        let members = Decision::default();
        assert!(may_call(&repeats, at(turn), &step, service, &members), "{turn}");
        assert_eq!(called(&mut repeats, at(turn), &step, service, &members), None, "{turn}");
    }
    // A node comes and goes.
    let member = |node: &str, label: &str| Member {
        node: node.to_owned(),
        provider_id: None,
        addresses: vec![NodeAddress::new(AddressKind::InternalIp, "10.0.0.1")],
        labels: Arc::new([("zone".to_owned(), label.to_owned())].into()),
    };
    let sets =
        [vec![member("a", "x")], vec![member("a", "x"), member("b", "x")], vec![member("a", "y")]];
    let step = Step::SetMembers("lb-1".to_owned());
    for turn in 0..20 {
        let present = sets[turn % sets.len()].clone().into();
        let members = Members { present, absent: Arc::default() };
        let members = Decision { members, ..Decision::default() };
        let now = at(turn as u64);
        assert!(may_call(&repeats, now, &step, &service, &members), "{turn}");
        assert_eq!(called(&mut repeats, now, &step, &service, &members), None, "{turn}");
    }
}

fn change() -> StatusPatch {
    let condition = (Reason::Serving, "m".to_owned());
    StatusPatch {
        ingress: Some(vec![ServiceIngress::default()]),
        conditions: vec![condition],
        annotations: [("k".to_owned(), Some("v".to_owned()))].into(),
    }
}

#[test]
fn what_others_take_back_does_not_hold_up_the_rest() {
    let mut repeats = Repeats::default();
    // A policy drops the annotation.
    let ingress = vec![ServiceIngress::default()];
    let condition = ccm_objects::ServiceCondition {
        kind: Reason::Serving.condition().into(),
        status: "True".into(),
        reason: Reason::Serving.as_str().into(),
        ..ccm_objects::ServiceCondition::default()
    };
    let details =
        ServiceDetails { ingress, conditions: vec![condition], ..ServiceDetails::default() };
    let answer = Service { details: Some(Box::new(details)), ..Service::default() };
    let told = written(&mut repeats, at(0), &Step::Write(change()), &answer);
    let told: Vec<_> = told.iter().map(|one| (&*one.kind, one.is_refused)).collect();
    assert_eq!(told, [(ANNOTATIONS, true)]);
    let rest = that_may_be_written(&repeats, at(1), change());
    assert!(rest.annotations.is_empty() && rest.ingress.is_some() && rest.conditions.len() == 1);
    assert_eq!(that_may_be_written(&repeats, at(60), change()), change(), "after a minute");
    let mut other = change();
    other.annotations = [("k".to_owned(), Some("w".to_owned()))].into();
    assert_eq!(that_may_be_written(&repeats, at(1), other.clone()), other, "another ID");
}

#[test]
fn a_status_that_is_taken_back_waits() {
    let mut repeats = Repeats::default();
    written(&mut repeats, at(0), &Step::Write(change()), &Service::default());
    assert_eq!(that_may_be_written(&repeats, at(1), change()), StatusPatch::default());
    assert_eq!(that_may_be_written(&repeats, at(60), change()), change(), "after a minute");
}

#[test]
fn a_finalizer_that_a_policy_takes_back_waits() {
    let mut service = service();
    service.has_finalizer = false;
    let mut state = BalancerState::default();
    let plan = |state: &BalancerState, now| planned(&service, state, now, |_| {});
    assert_eq!(plan(&state, 0), Plan::Next(Step::Protect));
    assert_eq!(written(&mut state.repeats, at(0), &Step::Protect, &service).len(), 1);
    assert_ne!(plan(&state, 1), Plan::Next(Step::Protect));
    assert_eq!(state.next_look(crate::plan::Inputs::default(), at(1)), Some(at(60)));
    assert_eq!(plan(&state, 60), Plan::Next(Step::Protect));
}
