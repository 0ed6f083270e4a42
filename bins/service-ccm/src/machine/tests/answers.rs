//! Answers to writes and calls.

use std::{sync::Arc, time::Duration};

use ccm_base::{At, RetryClass};
use ccm_cloud::{CloudError, Cure, ErrorKind, LoadBalancer, Phase, Progress, Waiting};
use ccm_kube::ApiError;
use ccm_objects::{Service, ServiceDetails, ServiceIngress, ServicePort};

use super::{due, leader, machine};
use crate::{
    machine::{
        Machine,
        effect::{Effect, Lane, Tell, Turn},
        event::{Answered, CallAnswer, Due, Written},
    },
    plan::{Known, Step, status::ID},
};

fn service() -> Arc<Service> {
    Arc::new(Service { key: "shop/web".into(), uid: "uid-1".into(), ..Service::default() })
}

fn written(machine: &mut Machine, answer: Result<Arc<Service>, Option<ApiError>>) -> Vec<Effect> {
    let written = Written { lane: Lane::Normal, service: service(), step: Step::Protect, answer };
    machine.written(&written, At::default())
}

#[test]
fn many_conflicts_in_a_row_are_a_failure_that_is_told() {
    let mut machine = machine();
    for _ in 0..2 {
        for _ in 0..8 {
            let effects = written(&mut machine, Err(Some(ApiError::Conflict)));
            let [Effect::Queue(_, Lane::Normal, Turn::After(..))] = effects[..] else {
                panic!("{effects:?}")
            };
        }
        let effects = written(&mut machine, Err(Some(ApiError::Conflict)));
        let failed = Turn::Failed(RetryClass::Retry);
        let [Effect::Queue(_, Lane::Normal, turn), Effect::Tell(_, tell)] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!(*turn, failed);
        assert!(matches!(tell, Tell::NotWritten { what: "protect", .. }), "{tell:?}");
        // A write ends the row.
        written(&mut machine, Ok(service()));
    }
}

/// A Service that asks for a load balancer.
fn asking() -> Service {
    let port = ServicePort { protocol: "TCP".into(), port: 80, ..ServicePort::default() };
    let details = ServiceDetails { ports: vec![port], ..ServiceDetails::default() };
    Service {
        is_load_balancer: true,
        has_finalizer: true,
        details: Some(Box::new(details)),
        ..Service::clone(&service())
    }
}

/// Makes the call that is due for this Service, and answers it. `None`: no call is due.
fn ensured(
    machine: &mut Machine,
    service: &Service,
    answer: Progress<LoadBalancer>,
    now: At,
) -> Option<Vec<Effect>> {
    let asked = machine.due(&due(machine, service.clone()), now);
    let is_asked = matches!(asked.last(), Some(Effect::Ask(_)));
    let (name, uid) = (service.key.clone(), service.uid.clone());
    let answer = CallAnswer::Ensure(Box::new(Ok(answer)));
    is_asked.then(|| machine.record_answer(Answered { lane: Lane::Normal, name, uid, answer }, now))
}

fn repeats(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Tell(_, Tell::Repeated(_))))
}

fn waiting(id: Option<&str>) -> Progress<LoadBalancer> {
    Progress::InProgress(Waiting {
        what: "creating".to_owned(),
        check_after: Duration::from_secs(1),
        id: id.map(str::to_owned),
        request_id: None,
        changed: true,
    })
}

/// A provider may not say whether a call that only waits has changed something.
#[test]
fn a_load_balancer_without_an_id_is_not_undone_but_asked_for_less_often() {
    for (id, is_repeated) in [(None, false), (Some("lb-1"), true)] {
        let (mut machine, service) = (leader(), asking());
        let (mut was_repeated, mut calls) = (false, 0);
        for second in 0..600 {
            let now = At(Duration::from_secs(1_000_000 + second));
            let Some(effects) = ensured(&mut machine, &service, waiting(id), now) else { continue };
            was_repeated |= repeats(&effects);
            calls += 1;
        }
        assert_eq!(was_repeated, is_repeated, "{id:?}");
        assert!(calls < 60, "{id:?}: {calls} calls");
    }
}

#[test]
fn only_a_load_balancer_that_has_not_failed_is_announced() {
    for phase in [Phase::Ready, Phase::Failed { why: "no amphora".to_owned(), cure: Cure::Person }]
    {
        let (mut machine, service) = (leader(), asking());
        let is_good = phase == Phase::Ready;
        let balancer = LoadBalancer { phase, ..LoadBalancer::new("lb-1", "", None) };
        let effects = ensured(&mut machine, &service, Progress::Done(balancer), At::default());
        let is_told = |effect: &Effect| matches!(effect, Effect::Tell(_, Tell::Ensured));
        assert_eq!(effects.expect("a call").iter().any(is_told), is_good);
    }
}

/// The list is wrong: each call shows the load balancer.
#[test]
fn what_a_list_lacks_is_not_undone() {
    let (mut machine, mut service) = (leader(), asking());
    let details = service.details.as_mut().expect("details");
    details.annotations.insert(ID.into(), "lb-1".into());
    details.ingress = vec![ServiceIngress::default()];
    for minute in 0..10 {
        let now = At(Duration::from_mins(1000 + 5 * minute));
        let entry = machine.balancers.entry(&service);
        (entry.state.known, entry.state.configured) = (Known::Absent, None);
        let balancer = LoadBalancer::new("lb-1", "", None);
        let effects = ensured(&mut machine, &service, Progress::Done(balancer), now);
        let effects = effects.expect("a call");
        assert!(!repeats(&effects), "{effects:?}");
        let says =
            |effect: &Effect| matches!(effect, Effect::Log(_, _, text) if text.contains("lacked"));
        assert!(effects.iter().any(says), "{effects:?}");
    }
}

/// Answers a call about this Service that a lane has made.
fn answered(
    machine: &mut Machine,
    (lane, service): (Lane, &Service),
    answer: Result<Progress<LoadBalancer>, CloudError>,
    now: At,
) -> Vec<Effect> {
    let (name, uid) = (service.key.clone(), service.uid.clone());
    let answer = CallAnswer::Ensure(Box::new(answer));
    machine.record_answer(Answered { lane, name, uid, answer }, now)
}

/// Its first call has taken all its time, so a slow lane makes the second one. While that is under way, the cloud
/// answers a call about another Service.
#[test]
fn a_creation_that_is_under_way_is_not_made_by_another_lane_as_well() {
    let at = |second: u64| At(Duration::from_secs(1_000_000 + second));
    let timeout = || Err(CloudError::new(ErrorKind::Timeout, "no answer").that_may_be_done());
    let is_asked = |effects: &[Effect]| matches!(effects.last(), Some(Effect::Ask(_)));
    for is_under_way in [true, false] {
        let (mut machine, one) = (leader(), asking());
        let other = Service { key: "shop/other".into(), uid: "uid-2".into(), ..one.clone() };
        for service in [&one, &other] {
            let due = due(&machine, service.clone());
            assert!(is_asked(&machine.due(&due, at(0))));
        }
        answered(&mut machine, (Lane::Normal, &one), timeout(), at(30));
        let slow = Due { lane: Lane::Slow, ..due(&machine, one.clone()) };
        assert!(is_asked(&machine.due(&slow, at(40))));
        if !is_under_way {
            answered(&mut machine, (Lane::Slow, &one), timeout(), at(70));
        }
        let done = Ok(Progress::Done(LoadBalancer::new("lb-2", "", None)));
        let effects = answered(&mut machine, (Lane::Normal, &other), done, at(71));
        let is_back = |effect: &Effect| matches!(effect, Effect::Queue(name, Lane::Normal, Turn::Now(_)) if *name == one.key);
        assert_eq!(effects.iter().any(is_back), !is_under_way, "{effects:?}");
        // Its own answer takes it back.
        if is_under_way {
            let done = Ok(Progress::Done(LoadBalancer::new("lb-1", "", None)));
            answered(&mut machine, (Lane::Slow, &one), done, at(72));
            let slow = Due { lane: Lane::Slow, ..due(&machine, one.clone()) };
            let effects = machine.due(&slow, at(72));
            assert!(effects.iter().any(is_back), "{effects:?}");
        }
    }
}
