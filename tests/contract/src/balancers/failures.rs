//! Errors, and answers that are lost.

use ccm_cloud::{CloudError, Depth, ErrorKind, Progress, Scope};

use crate::{
    cluster,
    lab::{Place, call, members, nodes, unwanted, wanted},
};

pub(crate) async fn lost_answers_say_that_they_may_be_done(place: Place) {
    let lab = place.lab().await;
    let web = wanted("web");
    lab.rig.lose_answers(true);
    assert!(lab.ensure(&web).await.unwrap_err().maybe_done);
    lab.rig.lose_answers(false);
    let id = lab.settle(&web).await.id;
    assert_eq!(lab.side().rows().len(), 1, "it was done");
    lab.rig.lose_answers(true);
    let change = members(&[4], &[]);
    assert!(lab.set_members(&web, &id, change.clone()).await.unwrap_err().maybe_done);
    lab.rig.lose_answers(false);
    lab.members_set(&web, &id, change).await;
    assert_eq!(lab.only("web").nodes, nodes(&[1, 2, 3, 4]));
    lab.rig.lose_answers(true);
    assert!(lab.delete(&unwanted(&web, None)).await.unwrap_err().maybe_done);
    for _ in 0..9 {
        lab.restart();
        drop(lab.delete(&unwanted(&web, None)).await);
    }
    lab.rig.lose_answers(false);
    lab.deleted(&unwanted(&web, None)).await;
    assert_eq!(lab.side().rows(), []);
}

/// A refusal changes nothing, says so, and nothing follows from it.
pub(crate) async fn an_error_proves_nothing(place: Place) {
    let lab = place.lab().await;
    let web = wanted("web");
    let id = lab.settle(&web).await.id;
    lab.written();
    for kind in [ErrorKind::Unavailable, ErrorKind::Throttled, ErrorKind::Forbidden] {
        lab.rig.refuse(Some(CloudError::new(kind, "not now")));
        let list = lab.balancers().list(&cluster(), Scope::All, Depth::Summary, call()).await;
        for error in [
            lab.ensure(&web).await.unwrap_err(),
            lab.ensure(&wanted("new")).await.unwrap_err(),
            lab.set_members(&web, &id, members(&[4], &[])).await.unwrap_err(),
            lab.delete(&unwanted(&web, Some(&id))).await.unwrap_err(),
            lab.delete(&unwanted(&wanted("new"), None)).await.unwrap_err(),
            list.unwrap_err(),
        ] {
            assert_eq!((error.kind, error.maybe_done), (kind, false), "{error}");
        }
        assert_eq!((lab.side().rows().len(), lab.written()), (1, 0));
    }
    lab.rig.refuse(None);
    assert!(matches!(lab.ensure(&web).await, Ok(Progress::Done(_))));
}
