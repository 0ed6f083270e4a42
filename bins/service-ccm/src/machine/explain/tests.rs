use ccm_objects::{ServiceCondition, ServiceDetails};
use strum::VariantArray as _;

use super::*;
use crate::machine::tests::machine;

/// A Service that shows this condition.
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
        assert_ne!(shown.fares, Fares::Unknown, "{shown:?}");
        let is_fine = shown.fares == Fares::Fine;
        let is_good =
            matches!(reason, Reason::Provisioned | Reason::PartlyProvisioned | Reason::Serving);
        assert_eq!(is_fine, is_good, "{shown:?}");
        assert_eq!(shown.mend == NOTHING, matches!(reason, Reason::Provisioned | Reason::Serving));
    }
}

#[test]
fn a_mistake_counts_more_than_a_condition_and_the_class_more_than_a_mistake() {
    // Without ports.
    let mut service = showing(Reason::Serving);
    let mut machine = machine();
    let offer = crate::machine::event::Offer {
        traits: ccm_cloud::LoadBalancerTraits::default(),
        selector: ccm_cloud::NodeSelector::default(),
    };
    let explain = |machine: &Machine, service: &Service| {
        machine.explain("shop/web", Some(service), At::default())
    };
    // A standby does not know what the provider offers.
    assert_eq!(explain(&machine, &service).fares, Fares::Fine);
    machine.leads = true;
    let unasked = explain(&machine, &service);
    assert_eq!(unasked.fares, Fares::Working, "{unasked:?}");
    assert!(
        unasked.cause.starts_with("the provider offers no load balancers now: "),
        "{unasked:?}"
    );
    machine.offer = Ok(std::sync::Arc::new(offer));
    let wrong = explain(&machine, &service);
    assert_eq!(wrong.fares, Fares::Blocked, "{wrong:?}");
    assert!(wrong.cause.contains("port"), "{wrong:?}");
    if let Some(details) = &mut service.details {
        details.class = Some("example.com/other".into());
    }
    let unserved = explain(&machine, &service);
    assert_eq!(unserved.fares, Fares::Foreign);
    // Another object of the same name.
    assert_eq!(machine.explain("shop/web", None, At::default()).fares, Fares::Unknown);
}
