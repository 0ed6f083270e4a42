//! Load balancers that others change or delete, or that fail.

use ccm_cloud::{CloudError, Cure, Depth, ErrorKind, LoadBalancer, Loss, Phase, Progress, Wanted};

use crate::{
    Wish,
    lab::{Lab, Place, addresses, changed, known, members, wanted},
};

pub(crate) async fn repairs_foreign_writes(place: Place) {
    let lab = place.lab().await;
    let web = lab.wishes(&wanted("web"), Wish::Floating);
    let made = lab.settle(&web).await;
    for &harm in lab.side().harms() {
        lab.side().harm(&made.id, harm);
        let seen = lab.shown(&made.id, Depth::Members).await;
        let is_short = seen.members.is_some_and(|members| members.len() < 3);
        assert!(seen.digest.is_none() || is_short, "{harm:?}");
        let after = lab.settle(&web).await;
        assert_eq!(
            (&after.id, after.members.map(|all| all.len())),
            (&made.id, Some(3)),
            "{harm:?}"
        );
        let shown = lab.shown(&made.id, Depth::Members).await;
        assert_eq!(shown.digest, made.digest, "{harm:?}");
        assert_eq!((lab.only("web").ports.len(), lab.side().floating().len()), (2, 1));
    }
    lab.side().remove(&made.id);
    assert_ne!(lab.settle(&web).await.id, made.id, "made again");
}

pub(crate) async fn keeps_the_address_of_what_was_deleted_by_others(place: Place) {
    let lab = place.lab().await;
    let web = lab.wishes(&wanted("web"), Wish::Floating);
    let first = lab.settle(&web).await;
    lab.side().remove(&first.id);
    assert_eq!(lab.side().floating().len(), 1);
    let second = lab.settle(&known(&web, &first)).await;
    assert_ne!(first.id, second.id);
    assert_eq!(addresses(&first), addresses(&second));
    assert_eq!(lab.side().floating().len(), 1);
}

/// Another process can also repair it.
pub(crate) async fn repairs_what_failed_and_keeps_its_addresses(place: Place) {
    for (wish, restarts) in [
        (Wish::Floating, false),
        (Wish::Floating, true),
        (Wish::Internal, false),
        (Wish::Internal, true),
    ] {
        let lab = place.lab().await;
        let web = lab.wishes(&wanted("web"), wish);
        let other = lab.settle(&wanted("other")).await;
        let first = lab.settle(&web).await;
        let before = lab.only("web").addresses;
        // Otherwise it would get the next address.
        lab.side().remove(&other.id);
        lab.side().break_down(&first.id, Cure::Ensure);
        let Phase::Failed { why, cure } = lab.shown(&first.id, Depth::Summary).await.phase else {
            panic!("not failed")
        };
        assert!(why.contains("ERROR") && cure == Cure::Ensure, "{why}");
        lab.set_members(&web, &first.id, members(&[4], &[])).await.unwrap_err();
        let known = known(&web, &first);
        let answer = lab.rested(&known).await;
        assert!(matches!(answer, Ok(Progress::InProgress(_) | Progress::Done(_))), "{answer:?}");
        if restarts {
            lab.restart();
        }
        let second = lab.settle(&known).await;
        assert_eq!(addresses(&second), addresses(&first), "{wish:?} {restarts}");
        assert_eq!((lab.only("web").addresses, second.phase), (before, Phase::Ready));
    }
}

pub(crate) async fn what_needs_a_person_is_left_alone(place: Place) {
    let lab = place.lab().await;
    let id = lab.settle(&wanted("web")).await.id;
    lab.side().break_down(&id, Cure::Person);
    lab.written();
    let phase = lab.shown(&id, Depth::Summary).await.phase;
    assert!(matches!(phase, Phase::Failed { cure: Cure::Person, .. }), "{phase:?}");
    let more = changed(&wanted("web"), |it| it.ports.truncate(1));
    assert_eq!(lab.ensure(&more).await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(lab.written(), 0);
}

/// Returns the loss that a call answers in the end. Nothing is made or deleted.
async fn lost(lab: &Lab, wanted: &Wanted) -> Loss {
    let ids = |lab: &Lab| lab.side().rows().into_iter().map(|row| row.id).collect::<Vec<_>>();
    let before = ids(lab);
    let mut answer: Result<Progress<LoadBalancer>, CloudError> = lab.rested(wanted).await;
    for _ in 0..9 {
        if matches!(answer, Ok(Progress::Lost(_))) {
            break;
        }
        answer = lab.rested(wanted).await;
    }
    assert_eq!(ids(lab), before);
    assert_eq!(lab.preview(wanted).await, Ok(Vec::new()));
    match answer {
        Ok(Progress::Lost(loss)) => loss,
        other => panic!("not lost: {other:?}"),
    }
}

pub(crate) async fn asks_before_it_replaces(place: Place) {
    let lab = place.lab().await;
    assert!(lab.balancers().traits().asks_before_replacing);
    let made = lab.settle(&wanted("web")).await;
    // An existing load balancer is brought up to date as usual.
    let more = changed(&known(&wanted("web"), &made), |it| it.ports.truncate(1));
    let more = Wanted { may_replace: false, ..more };
    assert_eq!(lab.settle(&more).await.id, made.id);
    for is_gone in [false, true] {
        match is_gone {
            true => lab.side().remove(&made.id),
            false => lab.side().break_down(&made.id, Cure::Ensure),
        }
        for _ in 0..2 {
            let loss = lost(&lab, &more).await;
            assert_eq!(loss.is_gone, is_gone, "{loss:?}");
            assert!(loss.why.contains(&made.id), "{loss:?}");
        }
    }
    // A Service without a load balancer gets one, and so does a Service that may have another one.
    lab.settle(&Wanted { may_replace: false, ..wanted("new") }).await;
    let again = lab.settle(&Wanted { may_replace: true, ..more.clone() }).await;
    assert_ne!(again.id, made.id);
    assert_eq!(addresses(&again).len(), 1);
    // The existing load balancer belongs to the owner, even if the Service names another one.
    assert_eq!(lab.settle(&more).await.id, again.id);
}
