//! Only load balancers of the owner are changed, and an owner has one.

use std::{sync::Arc, time::Duration};

use ccm_base::RetryClass;
use ccm_cloud::{CloudError, Depth, ErrorKind, ProofMethod, Scope, Title, Unwanted, Wanted};

use crate::{
    Whose, Wish,
    lab::{Lab, Place, call, gather, known, members, namesake, owner, unwanted, wanted},
};

pub(crate) async fn changes_only_what_is_its_owners(place: Place) {
    let lab = place.lab().await;
    let web = wanted("web");
    let kinds = [
        Whose::Person,
        Whose::Older("web"),
        Whose::Namesake("web"),
        Whose::Neighbour("api"),
        Whose::Shared("web", "api"),
    ];
    let ids = kinds.map(|whose| (whose, lab.side().stranger(whose)));
    let before = lab.side().rows();
    for (whose, id) in &ids {
        let hinted = Wanted { known: Some(id.clone()), ..web.clone() };
        let duplicate = Unwanted { duplicate: true, ..unwanted(&web, Some(id)) };
        let mut errors = vec![
            lab.ensure(&hinted).await.unwrap_err(),
            lab.preview(&hinted).await.unwrap_err(),
            lab.delete(&unwanted(&web, Some(id))).await.unwrap_err(),
            lab.delete(&duplicate).await.unwrap_err(),
        ];
        if !matches!(whose, Whose::Shared(..)) {
            errors.push(lab.set_members(&web, id, members(&[9], &[])).await.unwrap_err());
        }
        for error in errors {
            assert_eq!(error.kind, ErrorKind::Conflict, "{whose:?}: {error}");
            assert!(error.subject.as_deref().is_some_and(|it| it.contains(id)), "{error}");
        }
    }
    // The owner has a part of a shared load balancer, and does not get a second one beside it.
    assert_eq!(lab.ensure(&web).await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!((lab.side().rows(), lab.written()), (before.clone(), 0));
    // Without the hint they are ignored.
    lab.side().remove(&ids[4].1);
    let own = lab.settle(&web).await;
    lab.deleted(&unwanted(&web, None)).await;
    let left = lab.side().rows();
    assert!(left.iter().all(|row| row.id != own.id));
    assert_eq!(left, before[..4]);
}

pub(crate) async fn two_clusters_of_one_name_have_one_each(place: Place) {
    let lab = place.lab().await;
    let ours = lab.settle(&wanted("web")).await;
    let mut theirs = wanted("web");
    Arc::make_mut(&mut theirs.front_end).owner = namesake("web");
    let other = lab.settle(&theirs).await;
    assert_ne!(ours.id, other.id);
    assert_eq!(ours.name, other.name);
    // No owner takes or deletes another owner's load balancer by its ID.
    assert_eq!(lab.ensure(&known(&theirs, &ours)).await.unwrap_err().kind, ErrorKind::Conflict);
    let error = lab.delete(&unwanted(&theirs, Some(&ours.id))).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    lab.deleted(&unwanted(&theirs, None)).await;
    assert_eq!(lab.only("web").id, ours.id);
}

/// Lets two processes look, find nothing, and create. Returns true if both succeed.
async fn race(lab: &Lab, wanted: &Wanted) -> bool {
    let processes = [lab.rig.process(), lab.rig.process()];
    let [one, other] = processes.map(|it| it.load_balancers().unwrap().unwrap());
    lab.rig.slow(Duration::from_millis(200));
    let items = std::slice::from_ref(wanted);
    let both =
        tokio::join!(gather(one.ensure(items, call()), 1), gather(other.ensure(items, call()), 1));
    lab.rig.slow(Duration::ZERO);
    both.0[0].is_ok() && both.1[0].is_ok()
}

pub(crate) async fn two_of_one_owner_are_listed_and_one_is_deleted(place: Place) {
    let lab = place.lab().await;
    let web = lab.wishes(&wanted("web"), Wish::Internal);
    assert!(race(&lab, &web).await);
    let list = lab.list(Scope::Cluster, Depth::Summary).await.load_balancers;
    assert_eq!(list.len(), 2, "{list:?}");
    for shown in &list {
        assert_eq!((&shown.title, &shown.owner), (&Title::Ours, &Some(owner("web"))));
    }
    // The load balancer that the Service names is brought up to date, otherwise the oldest. The
    // other one stays unchanged.
    let older = lab.settle(&web).await;
    let younger = list.iter().find(|shown| shown.id != older.id).unwrap();
    let named = Wanted { known: Some(younger.id.clone()), ..web.clone() };
    assert_eq!(lab.settle(&named).await.id, younger.id);
    assert_eq!(lab.settle(&web).await.id, older.id);
    let kept = lab.row(&younger.id);
    let duplicate = Unwanted { duplicate: true, ..unwanted(&web, Some(&older.id)) };
    let proof = lab.deleted(&duplicate).await;
    assert_eq!(proof.method, ProofMethod::ById);
    assert!(proof.evidence.contains(&older.id), "{proof:?}");
    assert_eq!(lab.only("web"), kept);
    // The last load balancer is not a duplicate.
    let only = Unwanted { duplicate: true, ..unwanted(&web, Some(&younger.id)) };
    assert_eq!(lab.delete(&only).await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(lab.settle(&web).await.id, younger.id);
    // When the Service ends, everything that it has is deleted.
    assert!(race(&lab, &wanted("api")).await);
    assert_eq!(lab.rows_of("api").len(), 2);
    lab.deleted(&unwanted(&wanted("api"), None)).await;
    assert_eq!(lab.rows_of("api"), []);
}

pub(crate) async fn a_second_one_of_an_owner_is_refused(place: Place) {
    let lab = place.lab().await;
    race(&lab, &wanted("web")).await;
    lab.only("web");
}

pub(crate) async fn a_former_leader_is_refused(place: Place) {
    let lab = place.lab().await;
    lab.rig.lead(2);
    let id = lab.settle(&wanted("web")).await.id;
    lab.written();
    lab.rig.lead(1);
    let errors = [
        lab.ensure(&wanted("api")).await.unwrap_err(),
        lab.set_members(&wanted("web"), &id, members(&[9], &[])).await.unwrap_err(),
        lab.delete(&unwanted(&wanted("web"), None)).await.unwrap_err(),
    ];
    for error in &errors {
        assert_eq!((error.kind, error.subject.as_deref()), (ErrorKind::Stale, Some("term")));
        assert_eq!(CloudError::class(error), RetryClass::Permanent, "another one leads");
    }
    assert_eq!(lab.written(), 0);
    // It may read, and the next leader may write.
    lab.list(Scope::All, Depth::Members).await;
    lab.rig.lead(3);
    lab.settle(&wanted("web")).await;
    lab.settle(&wanted("api")).await;
    // A Lease belongs to one cluster.
    lab.rig.lead(1);
    let mut other = wanted("web");
    Arc::make_mut(&mut other.front_end).owner = namesake("web");
    lab.settle(&other).await;
}
