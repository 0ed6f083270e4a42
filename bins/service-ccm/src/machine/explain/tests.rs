use ccm_cloud::{CloudError, ErrorKind};
use ccm_controller::repeats::{Content, Repeats};
use ccm_kube::ApiError;
use ccm_objects::{ServiceCondition, ServiceDetails};
use ccm_runtime::explain::NOTHING;
use strum::VariantArray as _;

use super::*;
use crate::{machine::tests::machine, plan::reason::Reason};

/// Returns a Service that shows this condition.
fn showing(reason: Reason) -> Service {
    let condition = ServiceCondition {
        kind: reason.condition().into(),
        status: reason.status().into(),
        reason: reason.as_str().into(),
        message: "the leader's words".into(),
        last_transition_time: None,
    };
    let details = ServiceDetails { conditions: vec![condition], ..ServiceDetails::default() };
    Service {
        key: "shop/web".into(),
        uid: "uid-1".into(),
        is_load_balancer: true,
        has_finalizer: true,
        details: Some(Box::new(details)),
        ..Service::default()
    }
}

#[test]
fn without_a_memory_the_conditions_count() {
    for reason in Reason::VARIANTS {
        let service = showing(*reason);
        let shown = reasons::shown(&service).unwrap();
        assert_eq!(shown.cause, format!("{}: the leader's words", reason.as_str()));
        assert_ne!(shown.state, ObjectState::Unknown, "{shown:?}");
        let is_fine = shown.state == ObjectState::Fine;
        let is_good =
            matches!(reason, Reason::Provisioned | Reason::PartlyProvisioned | Reason::Serving);
        assert_eq!(is_fine, is_good, "{shown:?}");
        assert_eq!(shown.fix == NOTHING, matches!(reason, Reason::Provisioned | Reason::Serving));
    }
}

/// Before it has decided anything about a Service.
#[test]
fn what_a_process_says_that_has_not_looked_yet() {
    let mut service = showing(Reason::Serving);
    let mut machine = machine();
    let explain = |machine: &Machine, service: &Service| {
        let told = machine.explain("shop/web", Some(service), At::default());
        (told.state, told.cause)
    };
    let standby = explain(&machine, &service);
    assert_eq!(standby, (ObjectState::Fine, "Serving: the leader's words".to_owned()));
    machine.leads = true;
    let (state, cause) = explain(&machine, &service);
    assert_eq!(state, ObjectState::Working, "{cause}");
    assert!(cause.starts_with("the provider offers no load balancers now: "), "{cause}");
    machine.offer = Ok(std::sync::Arc::new(crate::machine::event::Offer {
        traits: ccm_cloud::LoadBalancerTraits::default(),
        selector: ccm_cloud::NodeSelector::default(),
    }));
    let (state, cause) = explain(&machine, &service);
    assert_eq!(state, ObjectState::Working, "{cause}");
    assert!(cause.ends_with("the Service shows Serving: the leader's words"), "{cause}");
    let refused = CloudError::new(ErrorKind::Unauthorized, "the token is over");
    machine.audits.error = Some(refused);
    let (state, cause) = explain(&machine, &service);
    assert_eq!(state, ObjectState::Blocked, "{cause}");
    assert!(cause.contains("unauthorized: the token is over"), "{cause}");
    // Its class changes, and then it is deleted.
    if let Some(details) = &mut service.details {
        details.class = Some("example.com/other".into());
    }
    assert_eq!(explain(&machine, &service).0, ObjectState::Foreign);
    service.deleting = true;
    machine.balancers.list = List::Compared;
    let (state, cause) = explain(&machine, &service);
    assert_eq!(state, ObjectState::Foreign, "{cause}");
    assert!(cause.contains("the controller of the class example.com/other"), "{cause}");
    // The API server does not show a Service with this name.
    assert_eq!(machine.explain("shop/web", None, At::default()).state, ObjectState::Unknown);
}

/// A write that is refused, and what takes it back.
#[test]
fn a_write_that_the_api_server_refuses() {
    let mut machine = machine();
    let service = Service { has_finalizer: true, ..showing(Reason::Creating) };
    machine.leads = true;
    machine.offer = Ok(std::sync::Arc::new(crate::machine::event::Offer {
        traits: ccm_cloud::LoadBalancerTraits::default(),
        selector: ccm_cloud::NodeSelector::default(),
    }));
    let entry = machine.balancers.entry(&service);
    entry.last_plan.is_made = true;
    entry.refused_write =
        Some(Box::new(("status".to_owned(), ApiError::Forbidden("no right".to_owned()))));
    let told = machine.explain("shop/web", Some(&service), At::default());
    assert_eq!(told.state, ObjectState::Blocked, "{told:?}");
    assert!(
        told.cause.contains("the write status: ") && told.cause.contains("no right"),
        "{told:?}"
    );
    assert!(told.fix.contains("give the account of this program the right"), "{told:?}");
    // If the cloud does not keep a change, the cause is not a webhook.
    for (kind, fix) in [
        ("addresses", "an admission webhook or policy"),
        ("ensure", "find in the cloud why it does not last"),
        ("step PENDING_CREATE", "find in the cloud why it does not last"),
    ] {
        let entry = machine.balancers.entry(&service);
        entry.refused_write = None;
        let repeats = &mut entry.state.repeats;
        *repeats = Repeats::default();
        for _ in 0..20 {
            repeats.made(At::default(), kind, Content::digest(&1));
        }
        let told = machine.explain("shop/web", Some(&service), At::default());
        assert!(told.cause.contains(kind) && told.fix.contains(fix), "{told:?}");
        // With growing pauses, as the cause says.
        let next = "the call or the write is made again at 1970-01-01T00:05:00Z";
        assert!(told.next.starts_with(next), "{told:?}");
    }
    // Something else may come earlier.
    let entry = machine.balancers.entry(&service);
    entry.state.pending = Some(crate::plan::Pending {
        call: None,
        digest: None,
        members: None,
        what: "PENDING_UPDATE".to_owned(),
        check_at: At::default() + std::time::Duration::from_secs(30),
        since: At::default(),
    });
    let told = machine.explain("shop/web", Some(&service), At::default());
    assert!(told.next.contains("1970-01-01T00:00:30Z"), "{told:?}");
}
