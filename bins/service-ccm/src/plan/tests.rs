//! The next step for one Service, as a table.

use ccm_cloud::{
    CloudError, ClusterId, ErrorKind, Ingress, IngressAddress, IpMode, LoadBalancer, Owner,
};
use ccm_objects::{ServiceCondition, ServiceDetails, ServicePort};

use super::{eligible::NodeSet, front_end::spec_front_end, reason::Reason, *};

fn at(seconds: u64) -> At {
    At::default() + std::time::Duration::from_secs(seconds)
}

pub(super) fn service() -> Service {
    let port = ServicePort {
        protocol: "TCP".into(),
        port: 80,
        node_port: Some(30080),
        ..ServicePort::default()
    };
    let details = ServiceDetails {
        ports: vec![port],
        allocates_node_ports: true,
        ip_families: vec!["IPv4".into()],
        ..ServiceDetails::default()
    };
    Service {
        key: "shop/web".into(),
        uid: "u-1".into(),
        is_load_balancer: true,
        has_finalizer: true,
        details: Some(Box::new(details)),
        ..Service::default()
    }
}

fn wrong() -> Service {
    let mut service = service();
    service.details.as_mut().expect("details").source_ranges = vec!["nonsense".into()];
    service
}

fn with_class(class: &str) -> Service {
    let mut service = service();
    service.details.as_mut().expect("details").class = Some(class.into());
    service
}

fn classed() -> Service {
    with_class("example.com/other")
}

pub(super) fn cluster() -> ClusterId {
    ClusterId { name: "c".to_owned(), uid: "c-1".to_owned() }
}

fn balancer() -> LoadBalancer {
    let owner = Owner {
        cluster: cluster(),
        uid: "u-1".to_owned(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    };
    let mut balancer = LoadBalancer::new("lb-1", "web", Some(owner));
    balancer.ingress = vec![Ingress {
        address: IngressAddress::Ip([192, 0, 2, 1].into()),
        ip_mode: IpMode::Vip,
        failed_ports: Vec::new(),
    }];
    balancer
}

fn digest_of(service: &Service) -> Digest {
    let spec = spec_front_end(service, &cluster(), &LoadBalancerTraits::default());
    spec.front_end.expect("a front end").digest
}

/// Returns a load balancer that matches its Service.
pub(super) fn there(service: &Service) -> BalancerState {
    BalancerState {
        known: Known::There(Box::new(balancer())),
        configured: Some(digest_of(service)),
        ..BalancerState::default()
    }
}

pub(super) fn pending(call: CallKind, check_at: u64) -> Pending {
    let what = "PENDING_CREATE".to_owned();
    let (check_at, since) = (at(check_at), at(0));
    Pending { call: Some(call), digest: None, members: None, what, check_at, since }
}

/// Returns a call that failed and is made again at 200 s.
pub(super) fn failed(call: CallKind, digest: Option<Digest>, kind: ErrorKind) -> Vec<Failed> {
    let error = CloudError::new(kind, "no");
    let (named, inputs) = (Default::default(), Inputs::default());
    let (retry_at, soonest) = (at(200), at(150));
    vec![Failed { call, digest, named, error, times: 1, retry_at, soonest, inputs }]
}

/// Returns the plan at this time, with members as wanted, and with changes of the view.
pub(super) fn planned(
    service: &Service,
    state: &BalancerState,
    now: u64,
    change: impl FnOnce(&mut View<'_>),
) -> Plan {
    let members = Decision { why_none: NodeSet::default().why_none(), ..Decision::default() };
    planned_with(service, state, &members, now, change)
}

/// Returns the plan with this decision about the members.
pub(super) fn planned_with(
    service: &Service,
    state: &BalancerState,
    members: &Decision,
    now: u64,
    change: impl FnOnce(&mut View<'_>),
) -> Plan {
    let traits = LoadBalancerTraits::default();
    let spec = spec_front_end(service, &cluster(), &traits);
    let served = vec!["example.com/ours".to_owned()];
    let classes = Classes { served, classless: true, instance: None };
    let mut view = View {
        guard: (&shown::ShownRules::default(), &shown::InUse::default()),
        service,
        spec: &spec,
        classes: &classes,
        state,
        members,
        members_known: true,
        members_unread: false,
        adopts: false,
        traits: &traits,
        may_release: false,
        loss: super::losses::LossVerdict::Kept,
        full: None,
        is_limited: false,
        list: List::Compared,
        inputs: Inputs::default(),
        now: at(now),
    };
    change(&mut view);
    plan(view)
}

pub(super) fn step(service: &Service, state: &BalancerState) -> Plan {
    planned(service, state, 100, |_| {})
}

fn is_ensure(plan: &Plan) -> bool {
    matches!(plan, Plan::Next(Step::Ensure(_)))
}

/// Returns the Service with the conditions that this plan writes.
pub(super) fn written(service: &Service, plan: &Plan) -> Service {
    let Plan::Next(Step::Write(change)) = plan else { panic!("{plan:?}") };
    let mut service = service.clone();
    let details = service.details.as_mut().expect("details");
    details.conditions = change
        .conditions
        .iter()
        .map(|condition| ServiceCondition {
            kind: condition.0.condition().into(),
            status: condition.0.status().into(),
            reason: condition.0.as_str().into(),
            message: condition.1.as_str().into(),
            last_transition_time: None,
        })
        .collect();
    service
}

/// Returns the reason that the condition Provisioning gets, if the status is the next step.
fn reason(plan: &Plan) -> Option<Reason> {
    let Plan::Next(Step::Write(change)) = plan else { return None };
    let mut reasons = change.conditions.iter().map(|condition| condition.0);
    reasons.find(|reason| reason.condition() == reason::PROVISIONING)
}

#[test]
fn nothing_is_created_before_the_finalizer_is_there() {
    let bare = Service { has_finalizer: false, ..service() };
    assert_eq!(step(&bare, &BalancerState::default()), Plan::Next(Step::Protect));
    assert!(is_ensure(&step(&service(), &BalancerState::default())));
}

#[test]
fn a_service_that_is_being_deleted_is_never_ensured() {
    let gone = Service { deleting: true, ..service() };
    assert_eq!(step(&gone, &there(&gone)), Plan::Next(Step::Delete));
    let bare = Service { has_finalizer: false, ..gone };
    assert_eq!(step(&bare, &BalancerState::default()), Plan::NotOurs);
}

#[test]
fn the_finalizer_goes_only_after_a_proof() {
    let gone = Service { deleting: true, ..service() };
    for state in [
        BalancerState::default(),
        BalancerState { known: Known::Absent, ..BalancerState::default() },
        BalancerState { pending: Some(pending(CallKind::Delete, 100)), ..there(&gone) },
        BalancerState {
            failed: failed(CallKind::Ensure, None, ErrorKind::Conflict),
            ..there(&gone)
        },
    ] {
        assert_eq!(step(&gone, &state), Plan::Next(Step::Delete), "{state:?}");
    }
    let refused = failed(CallKind::Delete, None, ErrorKind::NotFound);
    let state = BalancerState { failed: refused, ..there(&gone) };
    assert_eq!(reason(&step(&gone, &state)), Some(Reason::DeletionFailed));
    assert_eq!(planned(&gone, &state, 200, |_| {}), Plan::Next(Step::Delete));
    let proved =
        BalancerState { known: Known::Absent, proved_absent: true, ..BalancerState::default() };
    assert_eq!(step(&gone, &proved), Plan::Next(Step::Release));
}

#[test]
fn another_controllers_service_is_left_alone_until_it_changes() {
    let service = service();
    let known = || Known::Elsewhere("why".to_owned());
    let state = BalancerState {
        known: known(),
        configured: Some(digest_of(&service)),
        ..BalancerState::default()
    };
    let first = step(&service, &state);
    assert_eq!(reason(&first), Some(Reason::Elsewhere));
    assert_eq!(step(&written(&service, &first), &state), Plan::Settled);
    assert!(
        is_ensure(&step(&service, &BalancerState { needs_look: true, ..state.clone() })),
        "a rare look"
    );
    let changed =
        BalancerState { configured: Some(Digest { version: 1, hash: 7 }), ..state.clone() };
    assert!(is_ensure(&step(&service, &changed)));
    // It must not prevent the deletion of a Service.
    let gone = Service { deleting: true, ..service };
    assert_eq!(step(&gone, &state), Plan::Next(Step::Delete));
    let answered = BalancerState { proved_absent: true, ..state };
    assert_eq!(step(&gone, &answered), Plan::Next(Step::Release));
}

#[test]
fn a_class_that_is_not_served_is_cleaned_up_only_if_the_load_balancer_is_ours() {
    let other = Service { deleting: true, ..classed() };
    assert_eq!(step(&other, &BalancerState::default()), Plan::NotOurs);
    assert_eq!(step(&other, &there(&service())), Plan::Next(Step::Delete));
    // The Service got a class while no replica was running, or the settings have changed.
    assert_eq!(step(&classed(), &there(&service())), Plan::Waits);
    let plan = planned(&classed(), &there(&service()), 100, |view| view.may_release = true);
    assert_eq!(plan, Plan::Next(Step::Delete));
    let awaited =
        planned(&classed(), &BalancerState::default(), 0, |view| view.list = List::Awaited);
    assert_eq!(awaited, Plan::Waits);
}

#[test]
fn a_known_service_waits_for_the_first_list_and_a_new_one_does_not() {
    let wait = |service: &Service| {
        planned(service, &BalancerState::default(), 0, |view| view.list = List::Awaited)
    };
    assert_eq!(wait(&service()), Plan::Waits);
    assert_eq!(wait(&Service { has_finalizer: false, ..service() }), Plan::Next(Step::Protect));
    // It was protected a moment ago, and the list has not come yet.
    let state = BalancerState { known: Known::Absent, ..BalancerState::default() };
    let plan = planned(&service(), &state, 0, |view| view.list = List::Awaited);
    assert!(is_ensure(&plan));
}

#[test]
fn a_cloud_that_works_is_not_called_before_it_is_time() {
    let service = service();
    let working = |check_at| BalancerState {
        pending: Some(pending(CallKind::Ensure, check_at)),
        ..BalancerState::default()
    };
    assert_eq!(planned(&service, &working(50), 20, |_| {}), Plan::Waits);
    assert!(is_ensure(&planned(&service, &working(20), 20, |_| {})));
    let after_a_minute = planned(&service, &working(90), 60, |_| {});
    assert_eq!(reason(&after_a_minute), Some(Reason::WaitingForCloud));
}

#[test]
fn another_configuration_is_ensured_and_an_equal_one_is_not() {
    let service = service();
    let settled = step(&service, &there(&service));
    assert_eq!(reason(&settled), Some(Reason::Provisioned));
    let other = BalancerState { configured: None, ..there(&service) };
    assert!(is_ensure(&step(&service, &other)));
    let mut broken = balancer();
    broken.phase = Phase::Failed { why: "ERROR".to_owned(), cure: Cure::Ensure };
    let known = Known::There(Box::new(broken.clone()));
    assert!(is_ensure(&step(&service, &BalancerState { known, ..there(&service) })));
    broken.phase = Phase::Failed { why: "ERROR".to_owned(), cure: Cure::Person };
    let known = Known::There(Box::new(broken));
    let plan = step(&service, &BalancerState { known, ..there(&service) });
    assert_eq!(reason(&plan), Some(Reason::LoadBalancerFailed));
}

#[test]
fn what_the_cloud_refuses_is_tried_again_rarely_and_soon_when_something_changes() {
    let service = service();
    let after = |digest, kind| BalancerState {
        failed: failed(CallKind::Ensure, Some(digest), kind),
        known: Known::Absent,
        ..BalancerState::default()
    };
    let (own, other) = (digest_of(&service), Digest { version: 1, hash: 7 });
    let invalid = after(own, ErrorKind::Invalid);
    let nodes = Inputs { nodes: Some(other), ..Inputs::default() };
    let settings = Inputs { revision: 1, ..Inputs::default() };
    for (inputs, now, is_due) in [
        (Inputs::default(), 199, false),
        (Inputs::default(), 200, true),
        (nodes, 149, false),
        (nodes, 150, true),
        (settings, 149, false),
        (settings, 150, true),
    ] {
        let plan = planned(&service, &invalid, now, |view| view.inputs = inputs);
        assert_eq!(is_ensure(&plan), is_due, "{inputs:?} at {now}: {plan:?}");
        assert!(is_due || reason(&plan) == Some(Reason::InvalidConfiguration));
    }
    assert_eq!(invalid.next_look(nodes, at(1)), Some(at(150)));
    assert!(is_ensure(&step(&service, &after(other, ErrorKind::Invalid))));
    // Other calls are repeated when it is time, or when the configuration changes.
    let plan = step(&service, &after(own, ErrorKind::QuotaExceeded));
    assert_eq!(reason(&plan), Some(Reason::QuotaExceeded));
    assert!(is_ensure(&planned(&service, &after(own, ErrorKind::QuotaExceeded), 200, |_| {})));
    assert!(is_ensure(&step(&service, &after(other, ErrorKind::QuotaExceeded))));
}

#[test]
fn a_wrong_service_keeps_its_load_balancer_and_its_members_follow() {
    let (service, state) = (wrong(), there(&service()));
    assert_eq!(reason(&step(&service, &state)), Some(Reason::InvalidConfiguration));
    let changes = Decision { changes: true, ..Decision::default() };
    let with_changes =
        |known| planned_with(&service, &state, &changes, 0, |view| view.members_known = known);
    assert_eq!(with_changes(true), Plan::Next(Step::SetMembers("lb-1".to_owned())));
    let unknown = with_changes(false);
    assert!(
        matches!(unknown, Plan::Next(Step::Write(_))),
        "members that are not known: {unknown:?}"
    );
    // A wrong Service does not create anything.
    let plan = step(&service, &BalancerState { known: Known::Absent, ..BalancerState::default() });
    assert_eq!(reason(&plan), Some(Reason::InvalidConfiguration));
}

#[test]
fn a_second_load_balancer_of_one_owner_is_deleted() {
    let service = service();
    let state = BalancerState { duplicate: Some("lb-2".to_owned()), ..there(&service) };
    let delete = Plan::Next(Step::DeleteDuplicate("lb-2".to_owned()));
    assert_eq!(step(&service, &state), delete);
    // If that fails it is repeated when it is time, and does not delay anything else.
    let failed = failed(CallKind::DeleteDuplicate, None, ErrorKind::Unavailable);
    let state = BalancerState { failed, ..state };
    assert_eq!(reason(&step(&service, &state)), Some(Reason::Provisioned));
    assert_eq!(planned(&service, &state, 200, |_| {}), delete);
    assert!(is_ensure(&step(&service, &BalancerState { configured: None, ..state })));
}

/// A user undoes a change that the cloud has refused, or not finished.
#[test]
fn a_change_that_is_taken_back_is_taken_back_in_the_cloud() {
    let service = service();
    let other = Some(Digest { version: 1, hash: 7 });
    let refused = failed(CallKind::Ensure, other, ErrorKind::Invalid);
    assert!(is_ensure(&step(&service, &BalancerState { failed: refused, ..there(&service) })));
    let begun = Pending { digest: other, ..pending(CallKind::Ensure, 50) };
    assert!(is_ensure(&step(&service, &BalancerState { pending: Some(begun), ..there(&service) })));
}

#[test]
fn another_controllers_load_balancer_is_adopted_only_on_request() {
    let mut service = service();
    let state = BalancerState {
        known: Known::Absent,
        adoptable: Some(("lb-9".to_owned(), "its name".to_owned())),
        ..BalancerState::default()
    };
    assert_eq!(reason(&step(&service, &state)), Some(Reason::WaitingForAdoption));
    // The Service shows it first. Then the cloud is asked what an adoption would change.
    let shown = written(&service, &step(&service, &state));
    let Plan::Next(Step::Preview(front_end)) = step(&shown, &state) else {
        panic!("{:?}", step(&shown, &state));
    };
    let previewed = BalancerState { previewed: Some((front_end.digest, vec![])), ..state.clone() };
    assert_eq!(step(&shown, &previewed), Plan::Settled);
    assert!(is_ensure(&planned(&service, &state, 0, |view| view.adopts = true)));
    let details = service.details.as_mut().expect("details");
    details.annotations.insert(ADOPT.into(), "lb-9".into());
    assert!(is_ensure(&step(&service, &state)));
}

#[test]
fn a_provider_without_list_and_digest_is_not_called_if_the_service_has_the_digest() {
    let mut service = service();
    let known = Known::Recorded { id: "lb-1".to_owned() };
    let state = BalancerState { known, ..BalancerState::default() };
    assert!(is_ensure(&step(&service, &state)));
    let digest = digest_of(&service).to_string();
    let details = service.details.as_mut().expect("details");
    details.annotations.insert(DIGEST.into(), digest.as_str().into());
    assert!(!is_ensure(&step(&service, &state)));
}

#[test]
fn a_new_leader_does_not_call_held_members_serving() {
    let service = service();
    let state = there(&service);
    // The condition as it is written, and what the plan changes of it while the members are not known.
    let change = |shown: Reason| {
        let mut service = service.clone();
        service.details.as_mut().expect("details").conditions = vec![ServiceCondition {
            kind: shown.condition().into(),
            status: shown.status().into(),
            reason: shown.as_str().into(),
            ..ServiceCondition::default()
        }];
        let plan = planned(&service, &state, 100, |view| view.members_known = false);
        let Plan::Next(Step::Write(change)) = plan else { panic!("{plan:?}") };
        change.conditions.iter().any(|one| one.0.condition() == shown.condition())
    };
    for seen in [Reason::MembersHeld, Reason::Serving, Reason::NoMembers] {
        assert!(!change(seen), "{seen:?} was seen by the last leader");
    }
    assert!(change(Reason::NoAddress) && change(Reason::LoadBalancerGone));
}

/// Covers every combination of type, class, finalizer and deletion, without knowledge of a load
/// balancer.
#[test]
fn each_kind_of_service_has_its_plan() {
    let (ensure, protect) = ("ensure", "protect");
    let (delete, none) = ("delete", "not ours");
    for (is_load_balancer, class, bare, protected, deleting, both) in [
        // The columns are type and class. Then follow: neither, with the finalizer, being deleted,
        // both.
        (true, None, protect, ensure, none, delete),
        (true, Some("example.com/ours"), protect, ensure, none, delete),
        (true, Some("example.com/other"), none, none, none, none),
        // The class of the Service is not known.
        (false, None, none, none, none, none),
    ] {
        for (has_finalizer, is_deleting, expect) in [
            (false, false, bare),
            (true, false, protected),
            (false, true, deleting),
            (true, true, both),
        ] {
            let mut service = class.map_or_else(service, with_class);
            service.is_load_balancer = is_load_balancer;
            (service.has_finalizer, service.deleting) = (has_finalizer, is_deleting);
            let found = match step(&service, &BalancerState::default()) {
                Plan::Next(Step::Ensure(_)) => ensure,
                Plan::Next(Step::Protect) => protect,
                Plan::Next(Step::Delete) => delete,
                Plan::NotOurs => none,
                other => panic!("{service:?}: {other:?}"),
            };
            assert_eq!(found, expect, "{service:?}");
        }
    }
    // Services of other types have no details in the store.
    let other = Service { is_load_balancer: false, has_finalizer: false, ..service() };
    assert_eq!(step(&Service { details: None, ..other }, &BalancerState::default()), Plan::NotOurs);
}

#[test]
fn members_that_differ_are_changed_and_nothing_else() {
    let changes = Decision { changes: true, ..Decision::default() };
    let plan = |service: &Service, state: &BalancerState| {
        planned_with(service, state, &changes, 100, |_| {})
    };
    let own = service();
    assert_eq!(plan(&own, &there(&own)), Plan::Next(Step::SetMembers("lb-1".to_owned())));
    // Without a load balancer there is nothing to change.
    let elsewhere = BalancerState {
        known: Known::Elsewhere("why".to_owned()),
        configured: Some(digest_of(&own)),
        ..BalancerState::default()
    };
    let told = written(&own, &plan(&own, &elsewhere));
    assert_eq!(plan(&told, &elsewhere), Plan::Settled);
    let other = Service { is_load_balancer: false, has_finalizer: false, ..service() };
    assert_eq!(plan(&other, &BalancerState::default()), Plan::NotOurs);
    // A failed change is repeated as a change of members, when it is time.
    let failed = failed(CallKind::Members, None, ErrorKind::Unavailable);
    let state = BalancerState { failed, ..there(&own) };
    assert_eq!(reason(&plan(&own, &state)), Some(Reason::CloudUnavailable));
    let later = planned_with(&own, &state, &changes, 200, |_| {});
    assert_eq!(later, Plan::Next(Step::SetMembers("lb-1".to_owned())));
}
