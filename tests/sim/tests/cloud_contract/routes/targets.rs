//! Checks whether the targets of routes exist.

use ccm_cloud::{
    AddressKind, Call, CloudError, ErrorKind, NodeAddress, ProofMethod, ProviderId, RouteTarget,
    TargetState,
};
use ccm_sim::{
    cloud::SimInstance,
    faults::{Effect, Fault, Trouble},
};
use futures::StreamExt as _;

use super::world::{hop, kinds};
use crate::rig::{Rig, Way};

fn id(id: &str) -> RouteTarget {
    RouteTarget::Instance(ProviderId::parse(&format!("sim://{id}")).unwrap())
}

fn named(name: &str) -> RouteTarget {
    RouteTarget::Node(name.to_owned())
}

fn one() -> SimInstance {
    let mut instance = SimInstance::new("i-1", "one");
    instance.addresses = vec![NodeAddress::new(AddressKind::InternalIp, "10.0.0.1")];
    instance
}

pub async fn a_target_is_gone_with_a_proof(way: Way) {
    let rig = Rig::new(way).await;
    rig.sim.add(one());
    rig.sim.router().add_port([10, 0, 0, 2].into());
    let there = [hop(1), hop(2), id("i-1"), named("one")];
    let gone = [hop(3), id("i-2"), named("two"), RouteTarget::Address("fd00::1".parse().unwrap())];
    let all: Vec<_> = there.iter().chain(&gone).cloned().collect();
    let answers = rig.find(&all).await;
    for answer in &answers[..there.len()] {
        assert_eq!(answer, &Ok(TargetState::Exists));
    }
    for (target, answer) in gone.iter().zip(&answers[there.len()..]) {
        let Ok(TargetState::Gone(proof)) = answer else { panic!("{target}: {answer:?}") };
        let by_id = matches!(target, RouteTarget::Instance(_));
        let method = if by_id { ProofMethod::ById } else { ProofMethod::ByName };
        assert_eq!(proof.method, method);
        assert!(proof.evidence.contains(&target.to_string()), "{proof:?}");
    }
    assert!(rig.find(&[]).await.is_empty());
}

/// Routes are deleted because a target is gone.
pub async fn an_empty_answer_proves_no_target_gone(way: Way) {
    let rig = Rig::new(way).await;
    let all = [hop(1), id("i-1"), named("one")];
    let not_found = [Some(ErrorKind::NotFound); 3];
    assert_eq!(kinds(rig.find(&all).await), not_found, "a cloud without anything");
    rig.sim.add(one());
    rig.sim.faults().add(Fault::new(Effect::EmptyList));
    assert_eq!(kinds(rig.find(&all).await), not_found);
    rig.sim.faults().clear();
    for (effect, kind) in [
        (Effect::Unauthorized, ErrorKind::Unauthorized),
        (Effect::Unavailable, ErrorKind::Unavailable),
        (Effect::Throttle { retry_after: None }, ErrorKind::Throttled),
    ] {
        rig.sim.faults().add(Fault::new(effect).times(1));
        assert_eq!(kinds(rig.find(&all).await), [Some(kind); 3]);
    }
}

pub async fn a_target_affects_no_others(way: Way) {
    let rig = Rig::new(way).await;
    rig.sim.add(one());
    let only = |name: &str, trouble| Fault::new(Effect::Routes(vec![name.to_owned()], trouble));
    let down = CloudError::new(ErrorKind::Unavailable, "the port service is down");
    rig.sim.faults().add(only("10.0.0.2", Trouble::Fail(down)));
    rig.sim.faults().add(only("10.0.0.3", Trouble::Hang));
    let targets = [1, 2, 3, 4].map(hop);
    let (routes, soon) = (rig.routes(), Call::waiting(std::time::Duration::from_millis(800)));
    let mut answers: Vec<_> = routes.find_targets(&targets, soon).collect().await;
    assert_eq!(answers.last().unwrap().0, 2, "it delays no other");
    answers.sort_by_key(|(place, _)| *place);
    let answers: Vec<_> = answers.into_iter().map(|(_, answer)| answer).collect();
    assert_eq!(answers[0], Ok(TargetState::Exists));
    assert!(matches!(answers[3], Ok(TargetState::Gone(_))));
    let late = answers[2].as_ref().unwrap_err();
    assert_eq!((late.kind, late.maybe_done), (ErrorKind::Timeout, false), "it is a read");
    assert_eq!(answers[1].as_ref().unwrap_err().message, "the port service is down");
}

/// Targets are looked up in any number.
pub async fn many_targets_are_asked_in_parts(way: Way) {
    let rig = Rig::new(way).await;
    rig.sim.add(one());
    let name = |number| if number == 700 { named("one") } else { named(&format!("n{number}")) };
    let all: Vec<_> = (0..1_200).map(name).collect();
    rig.sim.reset_calls();
    let answers = rig.find(&all).await;
    for (number, answer) in answers.iter().enumerate() {
        assert_eq!(answer == &Ok(TargetState::Exists), number == 700, "{number}: {answer:?}");
    }
    let calls = rig.sim.calls().routes;
    assert_eq!((calls.find_targets, calls.items), (3, 1_200));
}
