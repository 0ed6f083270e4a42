//! How a load balancer reaches its wanted state.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{Depth, Digest, ErrorKind, Phase, Progress, Protocol, Title, Wanted};

use crate::{
    Whose, Wish,
    lab::{Lab, Place, addresses, changed, members, nodes, owner, port, tcp, unwanted, wanted},
};

/// Returns changes of each kind, one after another, each with its own digest.
fn history(lab: &Lab) -> Vec<Wanted> {
    let one = wanted("web");
    let two = changed(&one, |it| {
        it.ports = vec![tcp(80), port(53, Protocol::Udp), tcp(8080)];
        it.affinity = Some(Duration::from_secs(60));
        it.source_ranges = vec!["192.0.2.0/24".parse().unwrap()];
    });
    let mut all = vec![lab.wishes(&one, Wish::Floating), two.clone()];
    all.extend(lab.side().variants(&two));
    all.extend([lab.wishes(&one, Wish::Internal), one]);
    for (wanted, hash) in all.iter_mut().zip(1..) {
        Arc::make_mut(&mut wanted.front_end).digest = Digest { version: 1, hash };
    }
    all
}

pub(crate) async fn finds_before_it_creates(place: Place) {
    let lab = place.lab().await;
    // Names prove nothing: neither a person's load balancer nor another cluster's is taken.
    for whose in [Whose::Person, Whose::Namesake("web")] {
        lab.side().stranger(whose);
    }
    let others = lab.side().rows();
    lab.rig.lose_answers(true);
    assert!(lab.ensure(&wanted("web")).await.unwrap_err().maybe_done);
    for _ in 0..3 {
        lab.restart();
        drop(lab.ensure(&wanted("web")).await);
    }
    lab.rig.lose_answers(false);
    let shown = lab.settle(&wanted("web")).await;
    let row = lab.only("web");
    assert_eq!((&shown.id, &shown.name), (&row.id, &row.name));
    assert_eq!((shown.owner, shown.title), (Some(owner("web")), Title::Ours));
    assert_eq!((shown.phase, shown.digest), (Phase::Ready, Some(Digest { version: 1, hash: 1 })));
    assert_eq!(lab.side().rows().len(), 3);
    assert!(lab.side().rows().starts_with(&others), "the others are as they were");
}

/// Each answer is lost, as if the process had ended, and the next process knows only the cloud.
pub(crate) async fn any_process_continues_after_any_step(place: Place) {
    let lab = place.lab().await;
    for wanted in history(&lab) {
        lab.rig.lose_answers(true);
        for step in 0.. {
            if lab.preview(&wanted).await.unwrap() == [""; 0] {
                break;
            }
            assert!(step < 100, "{:?}", lab.preview(&wanted).await);
            lab.restart();
            if let Err(error) = lab.ensure(&wanted).await {
                assert!(error.maybe_done, "{error}");
            }
        }
        lab.rig.lose_answers(false);
        let done = lab.settle(&wanted).await;
        assert_eq!((done.digest, done.phase), (Some(wanted.front_end.digest), Phase::Ready));
        assert_eq!(lab.preview(&wanted).await.unwrap(), [""; 0]);
        let row = lab.only("web");
        assert_eq!(row.nodes, nodes(&[1, 2, 3]));
        assert_eq!(row.ports.len(), wanted.front_end.ports.len());
        assert_eq!(lab.side().rows().len(), 1, "no second one");
        assert!(lab.side().floating().len() <= 1, "no second address");
    }
}

/// The preview names the changes, and each call makes one of them.
pub(crate) async fn previews_what_it_then_does_by_one_change_per_call(place: Place) {
    let lab = place.lab().await;
    for wanted in history(&lab) {
        let before = lab.side().rows();
        let lines = lab.preview(&wanted).await.unwrap();
        assert_eq!(lab.preview(&wanted).await.unwrap(), lines);
        assert!(!lines.is_empty());
        assert_eq!((lab.side().rows(), lab.written()), (before, 0), "a preview changes nothing");
        let mut made = 0;
        for call in 0.. {
            let answer = lab.ensure(&wanted).await.unwrap();
            let written = lab.side().written();
            assert!(written.balancers <= 1 && call < 100, "{lines:#?}: {written:?}");
            made += written.total();
            match answer {
                Progress::InProgress(waiting) => {
                    assert_ne!(waiting.what, "");
                    assert_eq!(waiting.id, Some(lab.only("web").id));
                    assert_eq!(waiting.changed, written.total() > 0, "{waiting:?}");
                }
                Progress::Done(done) => {
                    assert_eq!(done.digest, Some(wanted.front_end.digest));
                    break;
                }
                other => panic!("neither done nor in progress: {other:?}"),
            }
        }
        assert_eq!(made, lines.len(), "{lines:#?}");
        assert_eq!(lab.preview(&wanted).await.unwrap(), [""; 0]);
    }
}

/// The same where one load balancer needs several writes.
pub(crate) async fn previews_what_it_then_does_step_by_step(place: Place) {
    previews_what_it_then_does_by_one_change_per_call(place).await;
}

pub(crate) async fn another_controllers_are_elsewhere(place: Place) {
    let lab = place.lab().await;
    let elsewhere = lab.wishes(&wanted("web"), Wish::Elsewhere);
    let answer = lab.ensure(&elsewhere).await;
    assert!(matches!(&answer, Ok(Progress::Elsewhere(why)) if !why.is_empty()), "{answer:?}");
    assert_eq!(lab.preview(&elsewhere).await, Ok(Vec::new()));
    assert_eq!((lab.side().rows(), lab.written()), (Vec::new(), 0));
}

pub(crate) async fn the_state_decides_and_not_the_digest(place: Place) {
    let lab = place.lab().await;
    let old = wanted("web");
    let id = lab.settle(&old).await.id;
    lab.written();
    // A digest of another version, or a missing one, does not cause a write until something must
    // change.
    let mut new = changed(&old, |it| it.digest = Digest { version: 2, hash: 99 });
    for stored in [Some(old.front_end.digest), None] {
        if stored.is_none() {
            lab.side().drop_digest(&id);
        }
        let Ok(Progress::Done(shown)) = lab.ensure(&new).await else { panic!("not done") };
        assert_eq!((shown.digest, lab.written()), (stored, 0));
    }
    Arc::make_mut(&mut new.front_end).ports.truncate(1);
    assert_eq!(lab.settle(&new).await.digest, Some(new.front_end.digest));
    assert!(lab.written() > 0, "the digest comes with the change");
    // A digest of the same version shows a difference that the state does not show.
    Arc::make_mut(&mut new.front_end).digest.hash = 100;
    assert_eq!(lab.settle(&new).await.digest, Some(new.front_end.digest));
    assert_eq!(lab.written(), 1);
    // Members are not part of the digest.
    lab.side().drop_digest(&id);
    new.members = members(&[1, 2, 3, 4], &[]);
    assert_eq!(lab.settle(&new).await.digest, None);
    assert_eq!(lab.written(), 1);
}

pub(crate) async fn shows_no_address_before_the_final_one(place: Place) {
    let lab = place.lab().await;
    let floating = lab.wishes(&wanted("web"), Wish::Floating);
    let answer = lab.ensure(&floating).await.unwrap();
    assert!(matches!(answer, Progress::InProgress(_)), "{answer:?}");
    let own = lab.only("web");
    let mut early = Vec::new();
    for _ in 0..3 {
        early.extend(addresses(&lab.shown(&own.id, Depth::Members).await));
    }
    let done = lab.settle(&floating).await;
    assert!(early.iter().all(|address| *address == addresses(&done)[0]), "{early:?}");
    let all = lab.side().floating();
    assert_eq!(all, [(addresses(&done)[0], true)]);
    let internal = lab.wishes(&wanted("web"), Wish::Internal);
    assert_eq!(addresses(&lab.settle(&internal).await), own.addresses);
    assert_eq!(lab.side().floating(), [], "it is released");
}

pub(crate) async fn refuses_what_the_cloud_cannot_be(place: Place) {
    let lab = place.lab().await;
    let good = wanted("web");
    for wrong in [
        changed(&good, |it| it.ports.clear()),
        changed(&good, |it| it.ports.push(tcp(80))),
        changed(&good, |it| it.address = "::1".parse().ok()),
        lab.wishes(&good, Wish::Wrong),
    ] {
        let error = lab.ensure(&wrong).await.unwrap_err();
        assert_eq!((error.kind, error.maybe_done), (ErrorKind::Invalid, false), "{error}");
        assert!(error.subject.is_some(), "{error}");
        assert_eq!(lab.preview(&wrong).await, Err(error));
    }
    assert_eq!((lab.side().rows(), lab.written()), (Vec::new(), 0));
    lab.settle(&good).await;
}

/// While the cloud works, nothing else is written.
pub(crate) async fn nothing_is_changed_while_the_cloud_works(place: Place) {
    let lab = place.lab().await;
    lab.side().hold(true);
    let web = wanted("web");
    let Ok(Progress::InProgress(waiting)) = lab.ensure(&web).await else { panic!("done") };
    assert!(waiting.what.contains("PENDING_CREATE"), "{waiting:?}");
    let (id, made) = (waiting.id.unwrap(), lab.only("web"));
    lab.written();
    assert!(matches!(lab.shown(&id, Depth::Summary).await.phase, Phase::Pending(_)));
    let mut more = changed(&web, |it| it.ports.push(tcp(8080)));
    more.members = members(&[1, 2, 3, 9], &[]);
    let deleting = unwanted(&web, Some(&id));
    for _ in 0..3 {
        assert!(matches!(lab.ensure(&more).await, Ok(Progress::InProgress(_))));
        match lab.set_members(&web, &id, members(&[9], &[])).await {
            Ok(Progress::InProgress(_)) => {}
            other => assert_eq!(other.unwrap_err().kind, ErrorKind::Busy),
        }
        assert!(matches!(lab.delete(&deleting).await, Ok(Progress::InProgress(_))));
    }
    assert_eq!((lab.written(), lab.only("web")), (0, made));
    // The work of the cloud ends, and each change succeeds.
    lab.side().hold(false);
    lab.members_set(&web, &id, members(&[9], &[])).await;
    lab.settle(&more).await;
    lab.side().hold(true);
    assert!(matches!(lab.delete(&deleting).await, Ok(Progress::InProgress(_))));
    let again = lab.ensure(&more).await;
    assert!(matches!(again, Ok(Progress::InProgress(_))), "no second one while it is deleted");
    assert_eq!(lab.only("web").id, id);
}
