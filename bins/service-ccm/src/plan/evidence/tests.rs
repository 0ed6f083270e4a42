//! The controller that a Service belongs to, and the consequence for its finalizer.

use ccm_base::At;
use ccm_cloud::{Cure, LoadBalancer, Phase};
use ccm_objects::{Service, ServiceCondition};

use super::{
    super::{
        BalancerState, CallKind, Classes, Known, List, Plan, Step, View,
        members::Decision,
        not_offered,
        reason::PROVISIONING,
        repeated,
        status::ID,
        tests::{pending, planned, planned_with, service},
    },
    INSTANCE, Whose, held_release, unclaimed,
};

const OTHER: &str = "example.com/other";

/// Returns a Service with these annotations, and with the condition if `has_condition`.
fn shows(has_condition: bool, annotations: &[(&str, &str)]) -> Service {
    let mut service = service();
    let details = service.details.as_mut().expect("details");
    if has_condition {
        let kind = PROVISIONING.into();
        details.conditions = vec![ServiceCondition { kind, ..ServiceCondition::default() }];
    }
    let annotations = annotations.iter().map(|(key, value)| ((*key).into(), (*value).into()));
    details.annotations = annotations.collect();
    service
}

fn of_type_cluster_ip(service: Service) -> Service {
    Service { is_load_balancer: false, ..service }
}

fn of_class(class: &str, mut service: Service) -> Service {
    service.details.as_mut().expect("details").class = Some(class.into());
    service
}

/// Returns the classes of a program that serves only its own class; `instance` is its Lease.
fn classes(instance: Option<&str>) -> &'static Classes {
    let instance = instance.map(str::to_owned);
    let served = vec!["example.com/ours".to_owned()];
    Box::leak(Box::new(Classes { served, classless: false, instance }))
}

fn plan_of(service: &Service, state: &BalancerState, instance: Option<&str>) -> Plan {
    planned(service, state, 100, |view| view.classes = classes(instance))
}

fn there() -> BalancerState {
    let known = Known::There(Box::new(LoadBalancer::new("lb-1", "", None)));
    BalancerState { known, ..BalancerState::default() }
}

fn absent(proved_absent: bool) -> BalancerState {
    BalancerState { known: Known::Absent, proved_absent, ..BalancerState::default() }
}

fn recorded() -> BalancerState {
    BalancerState { known: Known::Recorded { id: "lb-1".to_owned() }, ..BalancerState::default() }
}

#[test]
fn a_service_is_that_of_the_lease_that_is_on_it() {
    let marked = |lease| [(INSTANCE, lease)];
    for (service, instance, expect) in [
        (shows(false, &[]), None, Whose::Nobodys),
        (shows(true, &[]), None, Whose::Ours),
        (shows(false, &[(ID, "lb-1")]), None, Whose::Ours),
        (shows(true, &marked("kube-system/a")), None, Whose::Anothers),
        (shows(true, &marked("kube-system/a")), Some("kube-system/a"), Whose::Ours),
        (shows(true, &marked("kube-system/a")), Some("lb/a"), Whose::Anothers),
        // Without the annotation the Service belongs to the default Lease.
        (shows(true, &[]), Some("lb/a"), Whose::Anothers),
    ] {
        let service = of_type_cluster_ip(service);
        assert_eq!(classes(instance).whose(&service), expect, "{instance:?} {service:?}");
    }
    // A user copies a manifest with its annotations and sets another class.
    let copy = of_class(OTHER, shows(false, &[(ID, "lb-1")]));
    assert_eq!(classes(None).whose(&copy), Whose::Nobodys);
    assert_eq!(classes(None).whose(&of_class(OTHER, shows(true, &[]))), Whose::Ours);
}

/// The API server has removed the class together with the type.
#[test]
fn what_is_ours_is_released_whatever_its_type_is_by_then() {
    let left = of_type_cluster_ip(shows(true, &[]));
    for service in [left.clone(), Service { deleting: true, ..left }] {
        for state in [BalancerState::default(), there(), absent(false), recorded()] {
            assert_eq!(plan_of(&service, &state, None), Plan::Next(Step::Delete), "{state:?}");
        }
        assert_eq!(plan_of(&service, &absent(true), None), Plan::Next(Step::Release));
    }
    // The Service got a class of another controller while no replica was running, or another
    // service-ccm serves it and has not written its name yet.
    let other = of_class(OTHER, shows(true, &[]));
    assert_eq!(plan_of(&other, &absent(false), None), Plan::NotOurs);
    let released = |view: &mut View<'_>| {
        (view.classes, view.may_release) = (classes(None), true);
    };
    assert_eq!(planned(&other, &there(), 100, released), Plan::Next(Step::Delete));
    assert_eq!(plan_of(&other, &absent(true), None), Plan::Next(Step::Release));
}

#[test]
fn a_setting_takes_no_load_balancer_from_a_service_that_asks_for_one() {
    let why = |service: &Service, state: &BalancerState, released| {
        let mut why = None;
        planned(service, state, 100, |view| {
            (view.classes, view.may_release) = (classes(None), released);
            why = held_release(*view);
        });
        why
    };
    for service in [shows(true, &[]), shows(false, &[]), of_class(OTHER, shows(true, &[]))] {
        assert_eq!(plan_of(&service, &there(), None), Plan::Waits);
        let text = why(&service, &there(), false).expect("held");
        assert!(
            text.contains("lb-1") && text.contains("quartet.dev/release-approved=yes"),
            "{text}"
        );
        assert_eq!(why(&service, &there(), true), None, "a user has released it");
        assert_eq!(why(&service, &absent(true), false), None, "there is none");
        let gone = [of_type_cluster_ip(service.clone()), Service { deleting: true, ..service }];
        for service in gone {
            assert_eq!(plan_of(&service, &there(), None), Plan::Next(Step::Delete));
            assert_eq!(why(&service, &there(), false), None);
        }
    }
    assert_eq!(why(&of_class("example.com/ours", shows(true, &[])), &there(), false), None);
    // Another service-ccm serves it now with another load balancer.
    let annotations = [(INSTANCE, "kube-system/a"), (ID, "lb-2")];
    let moved = of_class(OTHER, shows(true, &annotations));
    assert_eq!(plan_of(&moved, &there(), None), Plan::Waits);
    assert!(why(&moved, &there(), false).is_some_and(|why| why.contains("lb-1")));
    assert_eq!(why(&moved, &there(), true), None, "a user has released it");
}

#[test]
fn the_members_of_a_load_balancer_that_stays_follow_the_nodes() {
    let members = Decision { changes: true, ..Decision::default() };
    let other = of_class(OTHER, shows(true, &[]));
    let plan = |state: &BalancerState| {
        planned_with(&other, state, &members, 100, |view| view.classes = classes(None))
    };
    assert_eq!(plan(&there()), Plan::Next(Step::SetMembers("lb-1".to_owned())));
    let mut failed = LoadBalancer::new("lb-1", "", None);
    failed.phase = Phase::Failed { why: "no host".to_owned(), cure: Cure::Ensure };
    let known = Known::There(Box::new(failed));
    assert_eq!(plan(&BalancerState { known, ..BalancerState::default() }), Plan::Waits);
}

/// If a setting excludes a Service that asks for a load balancer, service-ccm deletes only what the
/// cloud has shown.
#[test]
fn a_service_that_asks_and_is_not_served_keeps_what_only_it_records() {
    let other = of_class(OTHER, shows(true, &[(ID, "lb-1")]));
    assert_eq!(plan_of(&other, &recorded(), None), Plan::NotOurs);
    assert_eq!(plan_of(&other, &BalancerState::default(), None), Plan::NotOurs);
    let gone = Service { deleting: true, ..other };
    assert_eq!(plan_of(&gone, &recorded(), None), Plan::Next(Step::Delete));
}

#[test]
fn without_evidence_nothing_is_touched() {
    let left = of_type_cluster_ip(shows(false, &[]));
    for service in [left.clone(), Service { deleting: true, ..left }] {
        for state in [BalancerState::default(), absent(false)] {
            // Even if the program serves Services without a class: this Service has lost its class.
            let plan = planned(&service, &state, 100, |_| {});
            assert_eq!(plan, Plan::NotOurs, "{state:?}");
            assert_eq!(plan_of(&service, &state, None), Plan::NotOurs, "{state:?}");
        }
        let awaited =
            planned(&service, &BalancerState::default(), 0, |view| view.list = List::Awaited);
        assert_eq!(awaited, Plan::Waits);
        // The cloud shows the owner, or a call of this process has shown it.
        assert_eq!(planned(&service, &there(), 100, |_| {}), Plan::Next(Step::Delete));
        assert_eq!(planned(&service, &absent(true), 100, |_| {}), Plan::Next(Step::Release));
        let change = not_offered(&service, &Classes::default(), "no", None, At::default());
        assert_eq!(change, None, "nor while the provider offers no load balancers");
    }
    // A served class on the Service is evidence.
    let served = of_class("example.com/ours", shows(false, &[]));
    let served = Service { deleting: true, ..served };
    assert_eq!(plan_of(&served, &BalancerState::default(), None), Plan::Next(Step::Delete));
    assert_eq!(plan_of(&served, &absent(true), None), Plan::Next(Step::Release));
}

/// The answer to the removal of the finalizer was lost, or another replica has removed it.
#[test]
fn a_finalizer_that_comes_after_the_marks_have_gone_is_another_controllers() {
    let was_marked = BalancerState { was_marked: true, ..absent(true) };
    let bare = of_class(OTHER, shows(false, &[]));
    for service in [bare.clone(), of_type_cluster_ip(bare)] {
        assert_eq!(plan_of(&service, &was_marked, None), Plan::NotOurs, "{service:?}");
        assert_eq!(plan_of(&service, &absent(true), None), Plan::Next(Step::Release));
    }
    // While the Service shows a mark, no service-ccm has removed the finalizer.
    let named = shows(false, &[(ID, "lb-1")]);
    for service in [
        of_class(OTHER, named.clone()),
        of_type_cluster_ip(named),
        of_type_cluster_ip(shows(true, &[])),
    ] {
        let plan = plan_of(&service, &was_marked, None);
        assert_eq!(plan, Plan::Next(Step::Release), "{service:?}");
    }
}

#[test]
fn of_what_another_service_ccm_has_served_only_the_own_load_balancer_is_deleted() {
    let theirs = shows(true, &[(INSTANCE, "kube-system/a"), (ID, "lb-a")]);
    let left = of_type_cluster_ip(theirs.clone());
    for service in [left.clone(), Service { deleting: true, ..left.clone() }] {
        assert_eq!(plan_of(&service, &BalancerState::default(), None), Plan::NotOurs);
        assert_eq!(plan_of(&service, &there(), None), Plan::Next(Step::Delete));
        assert_eq!(plan_of(&service, &absent(true), None), Plan::NotOurs, "it keeps the finalizer");
    }
    // While the Service asks for one: service-ccm deletes only one that it does not name, and only
    // after an approval.
    let asks = of_class(OTHER, theirs.clone());
    let mut used = of_class(OTHER, theirs);
    used.details.as_mut().expect("details").annotations.insert(ID.into(), "lb-1".into());
    for (service, expect) in [(asks, Plan::Next(Step::Delete)), (used, Plan::NotOurs)] {
        let approved = |view: &mut View<'_>| {
            (view.classes, view.may_release) = (classes(None), true);
        };
        assert_eq!(planned(&service, &there(), 100, approved), expect, "{service:?}");
    }
    // A service-ccm with the default Lease sees another one by its annotation, one with a named
    // Lease by a missing annotation.
    let default = of_type_cluster_ip(shows(true, &[]));
    assert_eq!(plan_of(&default, &BalancerState::default(), Some("lb/a")), Plan::NotOurs);
}

#[test]
fn a_service_that_is_served_from_now_on_says_so_before_the_first_call() {
    let theirs = of_class("example.com/ours", shows(true, &[(INSTANCE, "kube-system/a")]));
    for instance in [None, Some("lb/b")] {
        let Plan::Next(Step::Write(change)) = plan_of(&theirs, &BalancerState::default(), instance)
        else {
            panic!("no write")
        };
        assert_eq!(change.annotations, classes(instance).signature(), "it does not name one");
        assert!(change.conditions.is_empty() && change.ingress.is_none());
        let mut written = theirs.clone();
        let details = written.details.as_mut().expect("details");
        details.annotations =
            instance.map(|lease| (INSTANCE.into(), lease.into())).into_iter().collect();
        let plan = plan_of(&written, &BalancerState::default(), instance);
        assert!(matches!(plan, Plan::Next(Step::Ensure(_))), "{plan:?}");
    }
    // The ID of a load balancer in another cloud is removed; the ID of the existing one stays.
    let mut named = theirs;
    named.details.as_mut().expect("details").annotations.insert(ID.into(), "lb-1".into());
    for (state, goes) in [(absent(false), true), (there(), false), (recorded(), false)] {
        let Plan::Next(Step::Write(change)) = plan_of(&named, &state, None) else {
            panic!("no write")
        };
        assert_eq!(change.annotations.get(ID) == Some(&None), goes, "{state:?}");
    }
}

/// Another client has removed the finalizer and changed the type in one update.
#[test]
fn what_was_written_goes_also_without_the_finalizer() {
    let bare = Service { has_finalizer: false, ..of_type_cluster_ip(shows(true, &[])) };
    for state in [BalancerState::default(), there()] {
        assert_eq!(plan_of(&bare, &state, None), Plan::Next(Step::Release), "{state:?}");
        assert_eq!(plan_of(&bare, &state, Some("lb/a")), Plan::NotOurs, "it is another one's");
    }
    let gone = Service { deleting: true, ..bare.clone() };
    assert_eq!(plan_of(&gone, &BalancerState::default(), None), Plan::NotOurs, "nothing keeps it");
    let asks = Service { is_load_balancer: true, ..bare };
    assert_eq!(plan_of(&asks, &BalancerState::default(), None), Plan::NotOurs);
}

#[test]
fn a_finalizer_of_which_nobody_knows_names_the_command() {
    let why = |service: &Service, list| {
        let mut why = None;
        planned(service, &BalancerState::default(), 100, |view| {
            (view.classes, view.list) = (classes(None), list);
            why = unclaimed(*view, &super::super::plan(*view));
        });
        why
    };
    let left = of_type_cluster_ip(shows(false, &[]));
    let text = why(&left, List::Compared).expect("a text");
    for part in [
        "service.kubernetes.io/load-balancer-cleanup",
        "kubectl patch service -n shop web --type=strategic -p '{\"metadata\":{\"$deleteFromPrimitiveList/finalizers\":[\"service.kubernetes.io/load-balancer-cleanup\"]}}'",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(text.len() < 1024, "an event holds no more: {}", text.len());
    let theirs = of_type_cluster_ip(shows(true, &[(INSTANCE, "kube-system/a")]));
    assert!(why(&theirs, List::Compared).is_some_and(|text| text.contains("kube-system/a")));
    for (service, list) in [
        // The list has not been compared yet.
        (left.clone(), List::Failing),
        (left.clone(), List::Awaited),
        (of_type_cluster_ip(shows(true, &[])), List::Compared),
        (Service { has_finalizer: false, ..left }, List::Compared),
        // The class names the controller.
        (Service { deleting: true, ..of_class(OTHER, shows(false, &[])) }, List::Compared),
    ] {
        assert_eq!(why(&service, list), None, "{list:?} {service:?}");
    }
}

/// An admission policy drops a write, or another service-ccm of the same class undoes it.
#[test]
fn what_does_not_last_is_not_written_without_end() {
    let after = |step: &Step, answer: &Service, mut state: BalancerState| {
        let made = repeated::written(&mut state.repeats, At::default(), step, answer);
        assert!(!made.is_empty(), "the answer does not show it: {step:?}");
        state
    };
    // This is a takeover.
    let of_another = shows(true, &[(INSTANCE, "kube-system/a")]);
    let serves = |state: &BalancerState| planned(&of_another, state, 0, |_| {});
    let plan = serves(&there());
    let Plan::Next(step @ Step::Write(_)) = &plan else { panic!("{plan:?}") };
    assert_ne!(serves(&after(step, &of_another, there())), plan);
    // service-ccm removes a finalizer, or its marks from a Service without a finalizer.
    let left = of_type_cluster_ip(shows(true, &[]));
    let bare = Service { has_finalizer: false, ..left.clone() };
    for service in [left.clone(), bare] {
        let plan = |state: &BalancerState| planned(&service, state, 0, |_| {});
        assert_eq!(plan(&absent(true)), Plan::Next(Step::Release));
        let refused = after(&Step::Release, &left, absent(true));
        assert_eq!(plan(&refused), Plan::Waits);
    }
}

#[test]
fn members_of_a_load_balancer_that_stays_wait_for_the_cloud() {
    let members = Decision { changes: true, ..Decision::default() };
    let other = of_class(OTHER, shows(true, &[]));
    let state = BalancerState { pending: Some(pending(CallKind::Members, 200)), ..there() };
    let plan =
        |now| planned_with(&other, &state, &members, now, |view| view.classes = classes(None));
    assert_eq!(plan(100), Plan::Waits);
    assert_eq!(plan(200), Plan::Next(Step::SetMembers("lb-1".to_owned())));
}

#[test]
fn nothing_is_deleted_before_the_first_list() {
    let leaving = Service { deleting: true, ..of_class("example.com/ours", shows(true, &[])) };
    let plan = |list| planned(&leaving, &BalancerState::default(), 100, |view| view.list = list);
    assert_eq!(plan(List::Awaited), Plan::Waits);
    assert_eq!(plan(List::Compared), Plan::Next(Step::Delete));
}
