//! Tests of the counts.

use ccm_base::At;
use ccm_cloud::{Cure, Digest, LoadBalancer, Phase};

use super::*;
use crate::machine::tests::machine;

fn shown(change: impl FnOnce(&mut BalancerEntry)) -> ServiceState {
    let mut balancer = LoadBalancer::new("lb-1", "", None);
    balancer.phase = Phase::Ready;
    let mut entry = BalancerEntry::default();
    entry.state.known = Known::There(Box::new(balancer));
    entry.state.configured = Some(Digest { version: 1, hash: 7 });
    change(&mut entry);
    state(&entry)
}

/// Returns two load balancers that exist.
fn two() -> Machine {
    let mut machine = machine();
    for name in ["default/web", "default/api"] {
        let service =
            Service { key: name.into(), uid: format!("uid-{name}").into(), ..Service::default() };
        let balancer = LoadBalancer::new(format!("lb-{name}"), "", None);
        let known = Known::There(Box::new(balancer));
        machine.balancers.entry(&service).state.known = known;
    }
    machine
}

#[test]
fn the_line_names_how_many_fail_and_why() {
    let mut machine = two();
    let passed = |text: &str| Verdict::Passed(text.to_owned());
    assert_eq!(machine.provisioning(), passed("2 Services, 0 failing"));
    let web = machine.balancers.named("default/web").expect("an entry");
    web.state.failed = vec![crate::plan::Failed {
        call: CallKind::Ensure,
        digest: None,
        named: Default::default(),
        error: ccm_cloud::CloudError::new(ccm_cloud::ErrorKind::Unauthorized, "no"),
        times: 1,
        retry_at: At::default(),
        soonest: At::default(),
        inputs: crate::plan::Inputs::default(),
    }];
    machine.balancers.named("default/api").expect("an entry").is_wrong = true;
    let text = "2 of 2 Services: unauthorized 1, wrong Service 1";
    assert_eq!(machine.provisioning(), Verdict::Failed(text.to_owned()));
}

#[test]
fn what_needs_a_person_is_counted_as_failing() {
    assert_eq!(shown(|_| {}), ServiceState::Provisioned);
    let in_first_call = |known| {
        shown(|entry| {
            entry.state.known = known;
            entry.state.configured = None;
        })
    };
    assert_eq!(in_first_call(Known::Absent), ServiceState::Pending);
    assert_eq!(in_first_call(Known::Nothing), ServiceState::Unknown);
    assert_eq!(shown(|entry| entry.is_wrong = true), ServiceState::Failing);
    let broken = |cure| {
        move |entry: &mut BalancerEntry| {
            if let Known::There(balancer) = &mut entry.state.known {
                balancer.phase = Phase::Failed { why: "no capacity".to_owned(), cure };
            }
        }
    };
    let elsewhere = shown(|entry| {
        entry.is_wrong = true;
        entry.state.known = Known::Elsewhere("an ingress controller".to_owned());
    });
    assert_eq!(elsewhere, ServiceState::Elsewhere, "its mistake is another controller's");
    for cure in [Cure::Person, Cure::Ensure] {
        assert_eq!(shown(broken(cure)), ServiceState::Failing);
    }
    let unreadable = shown(|entry| entry.state.unreadable = Some("no digest".to_owned()));
    assert_eq!(unreadable, ServiceState::Failing);
}
