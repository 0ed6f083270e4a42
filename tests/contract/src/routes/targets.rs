//! Checks whether the targets of routes exist.

use ccm_cloud::{CloudError, ErrorKind, RouteTarget, TargetState};

use super::world::{hop, kinds};
use crate::lab::Place;

pub(crate) async fn a_target_is_gone_with_a_proof(place: Place) {
    let lab = place.lab().await;
    let all = [hop(1), hop(50), hop(2), RouteTarget::Address("fd00::1".parse().unwrap())];
    for (target, answer) in all.iter().zip(lab.find(&all).await) {
        match answer {
            Ok(TargetState::Exists) => assert!([hop(1), hop(2)].contains(target), "{target}"),
            Ok(TargetState::Gone(proof)) => {
                assert!(![hop(1), hop(2)].contains(target), "{target}");
                assert!(proof.evidence.contains(&target.to_string()), "{proof:?}");
            }
            Err(error) => panic!("{target}: {error}"),
        }
    }
    assert!(lab.find(&[]).await.is_empty());
}

/// Routes are deleted because a target is gone.
pub(crate) async fn an_empty_answer_proves_no_target_gone(place: Place) {
    let lab = place.lab().await;
    for kind in [ErrorKind::Unauthorized, ErrorKind::Unavailable, ErrorKind::Throttled] {
        lab.rig.refuse(Some(CloudError::new(kind, "not now")));
        assert_eq!(kinds(lab.find(&[hop(1), hop(50)]).await), [Some(kind); 2]);
    }
    lab.rig.refuse(None);
    lab.router().clear_targets();
    let answers = lab.find(&[hop(1), hop(50)]).await;
    assert!(answers.iter().all(Result::is_err), "a cloud without anything: {answers:?}");
}

/// Targets are looked up in any number.
pub(crate) async fn many_targets_are_asked_in_parts(place: Place) {
    let lab = place.lab().await;
    let address = |number: u16| {
        let [high, low] = number.to_be_bytes();
        RouteTarget::Address([10, 7, high, low].into())
    };
    let all: Vec<_> =
        (0..1_200).map(|number| if number == 700 { hop(1) } else { address(number) }).collect();
    for (number, answer) in lab.find(&all).await.iter().enumerate() {
        assert_eq!(answer == &Ok(TargetState::Exists), number == 700, "{number}: {answer:?}");
    }
}
