use std::sync::LazyLock;

use ccm_cloud::Waiting;
use ccm_objects::{ServiceDetails, TooLarge};

use super::{
    super::{
        ADOPT, Plan, Step,
        evidence::INSTANCE,
        losses::LossVerdict,
        members::Decision,
        reason::Reason,
        tests::{failed, pending, planned, planned_with, service, there},
    },
    *,
};

#[test]
fn a_copied_annotation_delays_no_deletion() {
    let annotations = [(ID.into(), "lb-1".into())].into();
    let details = ServiceDetails { annotations, ..ServiceDetails::default() };
    let copy = Service { details: Some(Box::new(details)), ..Service::default() };
    let mut state = BalancerState::default();
    let traits = LoadBalancerTraits::default();
    let id =
        |state: &BalancerState, call| state.to_look_for(&copy, &traits, call).map(str::to_owned);
    let named = || Some("lb-1".to_owned());
    assert_eq!(id(&state, CallKind::Ensure), named());
    assert_eq!(id(&state, CallKind::Delete), named(), "nothing else is known");
    state.failed.push(Failed {
        call: CallKind::Delete,
        digest: None,
        named: Default::default(),
        error: CloudError::new(ErrorKind::Conflict, "load balancer lb-1 is another's"),
        times: 1,
        retry_at: At::default(),
        soonest: At::default(),
        inputs: Inputs::default(),
    });
    assert_eq!(id(&state, CallKind::Delete), None, "the cloud says that it is another's");
    state.failed.clear();
    state.known = Known::Absent;
    assert_eq!(id(&state, CallKind::Delete), None, "the list shows none of this Service");
    assert_eq!(id(&state, CallKind::Ensure), named(), "no second one is made by mistake");
    state.copied = Some("lb-1".into());
    assert_eq!(id(&state, CallKind::Ensure), None, "the cloud says that it is another's");
    state.copied = Some("lb-0".into());
    assert_eq!(id(&state, CallKind::Ensure), named(), "another copy was meant");
    state.known = Known::There(Box::new(LoadBalancer::new("lb-2", "", None)));
    for call in [CallKind::Ensure, CallKind::Delete] {
        assert_eq!(id(&state, call), Some("lb-2".to_owned()), "what the cloud has shown");
    }
}

#[test]
fn what_the_cloud_shows_to_be_wrong_has_a_reason() {
    use Reason::{CloudUnavailable, LoadBalancerFailed, WaitingForCloud};
    let failed = |cure| {
        let mut balancer = LoadBalancer::new("lb-1", "", None);
        balancer.phase = Phase::Failed { why: "ERROR".to_owned(), cure };
        Known::There(Box::new(balancer))
    };
    let (ensure, person) = (failed(Cure::Ensure), failed(Cure::Person));
    for (known, unreadable, is_pending, expect) in [
        (ensure.clone(), None, false, Some(LoadBalancerFailed)),
        // A call repairs the load balancer.
        (ensure, None, true, None),
        (person.clone(), None, false, Some(LoadBalancerFailed)),
        (person, None, true, Some(LoadBalancerFailed)),
        (Known::Absent, None, false, None),
        (Known::Absent, Some("no digest"), false, Some(CloudUnavailable)),
        (Known::Absent, Some("no digest"), true, Some(WaitingForCloud)),
    ] {
        let pending = is_pending.then(|| pending(CallKind::Ensure, 200));
        let unreadable = unreadable.map(str::to_owned);
        let state = BalancerState { known, pending, unreadable, ..BalancerState::default() };
        assert_eq!(state.trouble().map(|(reason, _)| reason), expect, "{state:?}");
    }
}

/// No other change is necessary until then.
#[test]
fn a_service_is_looked_at_when_the_cloud_has_worked_for_a_minute() {
    let pending = Pending { since: At::default(), ..pending(CallKind::Ensure, 200) };
    let state = BalancerState { pending: Some(pending), ..BalancerState::default() };
    let minute = At(Duration::from_mins(1));
    let next = |now| state.next_look(Inputs::default(), now);
    assert_eq!((next(At::default()), next(minute)), (Some(minute), None));
}

fn is_ensured(service: &Service, state: &BalancerState) -> bool {
    let plan = planned(service, state, 100, |view| view.traits = &TRAITS);
    matches!(plan, Plan::Next(Step::Ensure(_)))
}

#[test]
fn what_no_list_shows_is_called_when_it_is_to_be_looked_at() {
    let service = service();
    let mut state = there(&service);
    assert!(!is_ensured(&service, &state));
    state.needs_look = true;
    assert!(is_ensured(&service, &state));
}

#[test]
fn a_change_that_was_taken_back_half_way_is_completed() {
    // It is configured as before the change, of which the cloud has made a part.
    let service = service();
    let mut state = there(&service);
    let digest = state.configured;
    state.pending = Some(Pending { digest, ..pending(CallKind::Ensure, 50) });
    assert!(is_ensured(&service, &state), "one step of several is made");
    state.pending = None;
    state.failed = failed(CallKind::Ensure, digest, ErrorKind::Unavailable);
    assert!(!is_ensured(&service, &state));
    state.failed[0].retry_at = At::default();
    assert!(is_ensured(&service, &state), "a step has failed");
}

#[test]
fn a_deletion_that_was_taken_back_half_way_is_made_good() {
    let service = service();
    let mut state = there(&service);
    state.pending = Some(pending(CallKind::Delete, 200));
    assert!(!is_ensured(&service, &state), "the cloud still works on it");
    state.pending = Some(pending(CallKind::Delete, 50));
    assert!(is_ensured(&service, &state), "it may be gone");
    state.pending = None;
    state.failed = failed(CallKind::Delete, None, ErrorKind::Unavailable);
    assert!(is_ensured(&service, &state), "it may lack a part, and the retry need not be due");
}

/// The traits of a provider that writes an annotation with the ID.
static TRAITS: LazyLock<LoadBalancerTraits> = LazyLock::new(|| LoadBalancerTraits {
    id_annotation: Some("cloud.example/id".to_owned()),
    ..LoadBalancerTraits::default()
});

#[test]
fn a_service_on_a_load_balancer_of_others_gets_no_second_one() {
    let with = |annotations: &[(&str, &str)]| {
        let mut service = service();
        let details = service.details.as_mut().expect("details");
        details.annotations =
            annotations.iter().map(|(key, id)| ((*key).into(), (*id).into())).collect();
        service
    };
    let on = |known: Known, is_named| {
        let (id, whose) = ("lb-9".to_owned(), "it is shared by 2 Services".to_owned());
        let foreign = Some(Foreign { id, whose, is_named });
        BalancerState { known, foreign, ..BalancerState::default() }
    };
    let absent = |is_named| on(Known::Absent, is_named);
    let named = ("cloud.example/id", "lb-9");
    for (annotations, state, is_held) in [
        (vec![named], absent(true), true),
        (vec![named], absent(false), true),
        (vec![], absent(false), true),
        // The annotation is gone, names another one, or is not the only one.
        (vec![], absent(true), false),
        (vec![("cloud.example/id", "lb-8")], absent(true), false),
        (vec![named, (ADOPT, "lb-9")], absent(true), false),
        // The Service has its own load balancer.
        (
            vec![named],
            BalancerState { configured: None, ..on(there(&service()).known, true) },
            false,
        ),
    ] {
        let service = with(&annotations);
        let plan = planned(&service, &state, 100, |view| view.traits = &TRAITS);
        let words = match &plan {
            Plan::Next(Step::Write(change)) => {
                change.conditions.iter().map(|one| (one.0, &*one.1)).collect()
            }
            _ => Vec::new(),
        };
        let is_conflict = words.iter().any(|(reason, message)| {
            *reason == Reason::Conflict && message.contains("lb-9") && message.contains("shared")
        });
        assert_eq!(is_conflict, is_held, "{annotations:?} {state:?}: {plan:?}");
        let is_ensured = is_ensured(&service, &state);
        assert_eq!(is_ensured, !is_held, "{annotations:?} {state:?}: {plan:?}");
    }
}

#[test]
fn a_pending_load_balancer_is_waited_for() {
    let mut balancer = LoadBalancer::new("lb-1", "", None);
    balancer.phase = Phase::Pending(Waiting {
        what: "PENDING_UPDATE".to_owned(),
        check_after: Duration::from_secs(1),
        id: None,
        request_id: None,
        changed: false,
    });
    let known = Known::There(Box::new(balancer));
    let pending = Some(pending(CallKind::Ensure, 200));
    let state = BalancerState { known, pending, ..BalancerState::default() };
    let plan = planned(&service(), &state, 100, |_| {});
    assert!(!matches!(plan, Plan::Next(Step::Ensure(_))), "{plan:?}");
}

#[test]
fn members_that_cannot_be_seen_are_not_changed() {
    let (service, changes) = (service(), Decision { changes: true, ..Decision::default() });
    let at = |seconds| At(Duration::from_secs(seconds));
    let mut state = there(&service);
    let sets = |state: &BalancerState, now| {
        let plan = planned_with(&service, state, &changes, now, |_| {});
        matches!(plan, Plan::Next(Step::SetMembers(_)))
    };
    assert!(sets(&state, 100));
    // A full call has not helped.
    state.saw_nothing("no port".to_owned(), at(100));
    state.saw_nothing("no port".to_owned(), at(100));
    assert!(!sets(&state, 101));
    // Annotations of a Service that is too large may say which nodes are members.
    let mut cut = service.clone();
    let too_large = TooLarge { part: "spec".into(), bytes: 1, others: 0 };
    cut.details.as_mut().expect("details").too_large = Some(too_large);
    let plan = planned_with(&cut, &there(&service), &changes, 100, |_| {});
    assert!(!matches!(plan, Plan::Next(Step::SetMembers(_))), "{plan:?}");
}

/// Nothing is created, or changed in full, while something holds it.
#[test]
fn a_load_balancer_waits_for_room_for_a_proof_and_for_its_members() {
    let service = service();
    let state = BalancerState { configured: None, ..there(&service) };
    let absent = BalancerState { known: Known::Absent, ..BalancerState::default() };
    let is_next = |service: &Service, state: &BalancerState, change: fn(&mut View<'_>)| {
        let plan = planned(service, state, 100, change);
        matches!(plan, Plan::Next(Step::Ensure(_) | Step::Protect))
    };
    assert!(is_next(&service, &state, |_| {}) && is_next(&service, &absent, |_| {}));
    assert!(!is_next(&service, &state, |view| view.members_unread = true));
    let held = |view: &mut View<'_>| view.loss = LossVerdict::Held("unproved", At::default());
    assert!(!is_next(&service, &absent, held));
    let bare = Service { has_finalizer: false, ..service.clone() };
    assert!(is_next(&bare, &absent, |_| {}));
    assert!(!is_next(&bare, &absent, |view| view.full = Some("full")));
    let unknown =
        |view: &mut View<'_>| (view.is_limited, view.list) = (true, super::super::List::Awaited);
    assert!(!is_next(&bare, &absent, unknown));
}

#[test]
fn a_takeover_removes_the_id_of_another_load_balancer() {
    static TRAITS: LazyLock<LoadBalancerTraits> = LazyLock::new(|| LoadBalancerTraits {
        id_annotation: Some("cloud/id".to_owned()),
        ..LoadBalancerTraits::default()
    });
    let mut service = service();
    let details = service.details.as_mut().expect("details");
    for (key, value) in [(INSTANCE, "ns/other"), (ID, "lb-9"), ("cloud/id", "lb-9")] {
        details.annotations.insert(key.into(), value.into());
    }
    let plan = planned(&service, &there(&service), 100, |view| view.traits = &TRAITS);
    let Plan::Next(Step::Write(change)) = plan else { panic!("{plan:?}") };
    let is_removed = |key: &str| change.annotations.get(key) == Some(&None);
    assert!(is_removed(ID) && is_removed("cloud/id"), "{change:?}");
}
