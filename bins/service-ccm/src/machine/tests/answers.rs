//! Answers to writes and calls.

use std::{sync::Arc, time::Duration};

use ccm_base::{At, RetryClass};
use ccm_cloud::{
    AbsenceProof, CloudError, Cure, ErrorKind, LoadBalancer, Phase, Progress, ProofMethod, Waiting,
};
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

/// A provider may confirm a creation each time and keep nothing.
#[test]
fn a_load_balancer_that_never_gets_an_id_is_reported_and_asked_for_rarely() {
    let (mut machine, service) = (leader(), asking());
    let mut calls = Vec::new();
    let mut told = None;
    for second in 0..4 * 3600 {
        let now = At(Duration::from_secs(1_000_000 + second));
        let Some(effects) = ensured(&mut machine, &service, waiting(None), now) else { continue };
        calls.push(second);
        if told.is_none() && repeats(&effects) {
            told = Some(second);
        }
    }
    let told = told.expect("a report");
    assert!((600..1200).contains(&told), "{told}");
    let last_hour = calls.iter().filter(|second| **second >= 3 * 3600).count();
    assert!((11..=13).contains(&last_hour), "{last_hour}");
}

/// It says how long its work takes.
#[test]
fn a_load_balancer_without_an_id_is_not_asked_for_before_the_provider_says() {
    let (mut machine, service) = (leader(), asking());
    let Progress::InProgress(waiting) = waiting(None) else { panic!("it waits") };
    let waiting = Waiting { check_after: Duration::from_mins(8), ..waiting };
    let now = At(Duration::from_secs(1_000_000));
    ensured(&mut machine, &service, Progress::InProgress(waiting), now).expect("a call");
    let entry = machine.balancers.entry(&service);
    assert_eq!(entry.check_at(), Some(now + Duration::from_mins(8)));
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

/// A person repairs the load balancer, and a list shows it.
#[test]
fn a_load_balancer_that_failed_first_is_announced_once_it_is_good() {
    let (mut machine, service) = (leader(), asking());
    let balancer = |phase| LoadBalancer { phase, ..LoadBalancer::new("lb-1", "", None) };
    let failed = Phase::Failed { why: "no amphora".to_owned(), cure: Cure::Person };
    let done = Progress::Done(balancer(failed));
    ensured(&mut machine, &service, done, At::default()).expect("a call");
    let ensured = |machine: &mut Machine| {
        let effects = machine.due(&due(machine, service.clone()), At::default());
        effects.iter().any(|effect| matches!(effect, Effect::Tell(_, Tell::Ensured)))
    };
    assert!(!ensured(&mut machine));
    let state = &mut machine.balancers.entry(&service).state;
    state.known = Known::There(Box::new(balancer(Phase::Ready)));
    assert!(ensured(&mut machine));
    assert!(!ensured(&mut machine), "once");
}

/// The list lacks the load balancer `lb-1` each time, and each call that is made shows the load balancer with this
/// ID. Returns the effects of each call.
fn unlisted(machine: &mut Machine, id: &str, period: u64) -> Vec<Vec<Effect>> {
    let mut service = asking();
    let details = service.details.as_mut().expect("details");
    details.annotations.insert(ID.into(), "lb-1".into());
    details.ingress = vec![ServiceIngress::default()];
    let answers = (0..600 / period).filter_map(|number| {
        let now = At(Duration::from_secs(100_000 + period * number));
        let entry = machine.balancers.entry(&service);
        (entry.state.known, entry.state.configured) = (Known::Absent, None);
        let balancer = LoadBalancer::new(id, "", None);
        ensured(machine, &service, Progress::Done(balancer), now)
    });
    answers.collect()
}

fn says_unlisted(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| match effect {
        Effect::Log(_, _, text) | Effect::Tell(_, Tell::Trouble(text)) => text.contains("lacked"),
        _ => false,
    })
}

/// The list is wrong: each call shows the load balancer.
#[test]
fn what_a_list_lacks_is_not_undone_but_called_for_less_often() {
    for (period, most) in [(150, 4), (10, 10)] {
        let answers = unlisted(&mut leader(), "lb-1", period);
        assert!((3..=most).contains(&answers.len()), "{}", answers.len());
        for effects in &answers {
            assert!(!repeats(effects) && says_unlisted(effects), "{effects:?}");
        }
        let is_told = |effect: &Effect| matches!(effect, Effect::Tell(_, Tell::Trouble(_)));
        assert!(answers[3].iter().any(is_told), "{:?}", answers[3]);
    }
}

/// A provider makes another load balancer although it may not.
#[test]
fn another_load_balancer_than_the_recorded_one_was_not_unlisted() {
    let answers = unlisted(&mut leader(), "lb-2", 150);
    assert!(answers.iter().any(|effects| repeats(effects)));
    assert!(!answers.iter().any(|effects| says_unlisted(effects)), "{answers:?}");
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

/// A slow lane still deletes the load balancer of a Service that asks for one again.
#[test]
fn a_deletion_that_is_under_way_is_not_overtaken_by_a_creation() {
    let at = |second: u64| At(Duration::from_secs(1_000_000 + second));
    let (mut machine, one) = (leader(), asking());
    let other = Service { key: "shop/other".into(), uid: "uid-2".into(), ..one.clone() };
    for service in [&one, &other] {
        let balancer = LoadBalancer::new(format!("lb-{}", service.uid), "", None);
        machine.balancers.entry(service).state.known = Known::There(Box::new(balancer));
    }
    let unasked = |service: &Service| Service { deleting: true, ..service.clone() };
    let delete = |machine: &mut Machine, lane, service: &Service, second| {
        let due = Due { lane, ..due(machine, unasked(service)) };
        let effects = machine.due(&due, at(second));
        assert!(matches!(effects.last(), Some(Effect::Ask(_))), "{effects:?}");
    };
    let deleted = |machine: &mut Machine, lane, service: &Service, answer, second| {
        let (name, uid) = (service.key.clone(), service.uid.clone());
        let answer = CallAnswer::Delete(answer);
        machine.record_answer(Answered { lane, name, uid, answer }, at(second))
    };
    let timeout = CloudError::new(ErrorKind::Timeout, "no answer").that_may_be_done();
    delete(&mut machine, Lane::Normal, &one, 0);
    deleted(&mut machine, Lane::Normal, &one, Err(timeout), 30);
    delete(&mut machine, Lane::Slow, &one, 40);
    delete(&mut machine, Lane::Normal, &other, 41);
    let proof = || AbsenceProof::new(ProofMethod::ById, "no such load balancer");
    let is_back = |effect: &Effect| matches!(effect, Effect::Queue(name, Lane::Normal, Turn::Now(_)) if *name == one.key);
    let done = Ok(Progress::Done(proof()));
    let effects = deleted(&mut machine, Lane::Normal, &other, done, 42);
    assert!(!effects.iter().any(is_back), "{effects:?}");
    let early = machine.due(&due(&machine, one.clone()), at(43));
    assert!(!early.iter().any(|effect| matches!(effect, Effect::Ask(_))), "{early:?}");
    // The answer of the deletion takes it back.
    deleted(&mut machine, Lane::Slow, &one, Ok(Progress::Done(proof())), 44);
    let late = machine.due(&due(&machine, one.clone()), at(45));
    assert!(matches!(late.last(), Some(Effect::Ask(_))), "{late:?}");
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
