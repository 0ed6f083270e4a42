//! Errors, lost answers and defects.

use ccm_cloud::{CloudError, ErrorKind};

use super::world::{create, creation, delete, hop, kinds, net, wanted};
use crate::lab::{Place, call, cluster};

pub(crate) async fn a_lost_answer_may_be_done(place: Place) {
    let lab = place.lab().await;
    lab.rig.lose_answers(true);
    assert!(lab.one(create(1)).await.unwrap_err().maybe_done);
    lab.rig.lose_answers(false);
    let made = lab.made(create(1)).await;
    assert_eq!(lab.router().table(), [(net(1), hop(1))], "it may be repeated");
    lab.rig.lose_answers(true);
    assert!(lab.one(delete(&made)).await.unwrap_err().maybe_done);
    lab.rig.lose_answers(false);
    lab.one(delete(&made)).await.unwrap();
    assert_eq!(lab.router().table(), []);
    // A refusal changes nothing, and says so.
    lab.rig.refuse(Some(CloudError::new(ErrorKind::Throttled, "not now")));
    let error = lab.one(create(3)).await.unwrap_err();
    assert_eq!((error.kind, error.maybe_done), (ErrorKind::Throttled, false));
    let error = lab.routes().list(&cluster(), call()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Throttled);
    assert_eq!(lab.router().table(), []);
}

pub(crate) async fn a_route_affects_no_others(place: Place) {
    let lab = place.lab().await;
    let mut bare = wanted(2);
    bare.addresses.clear();
    let mut other_family = wanted(3);
    other_family.addresses.truncate(1);
    let all = [create(1), creation(bare), creation(other_family), create(4)];
    let answers = lab.apply(&all).await;
    let invalid = Some(ErrorKind::Invalid);
    assert!(answers[1].as_ref().unwrap_err().message.contains("node-2"), "{answers:?}");
    assert_eq!(kinds(answers), [None, invalid, invalid, None]);
    assert_eq!(lab.router().table(), [(net(1), hop(1)), (net(4), hop(4))]);
}

/// A route that carries no traffic is listed with its defect.
pub(crate) async fn defects_are_shown_and_repaired(place: Place) {
    let lab = place.lab().await;
    lab.router().break_new(true);
    drop(lab.one(create(1)).await);
    let why = "the port of 10.0.0.1 does not allow 10.244.1.0/24";
    let shown = lab.table().await.routes;
    assert_eq!((shown.len(), shown[0].defect.as_deref()), (1, Some(why)));
    lab.router().break_new(false);
    assert_eq!(lab.made(create(1)).await.defect, None);
    assert_eq!(lab.table().await.routes[0].defect, None);
}
