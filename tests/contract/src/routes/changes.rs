//! The effects of a change, and what it must not touch.

use ccm_cloud::{ErrorKind, Route, RouteChange};
use ipnet::IpNet;

use super::world::{create, creation, delete, hop, kinds, net, node, replace, wanted, wanted_to};
use crate::lab::Place;

pub(crate) async fn changes_may_be_repeated(place: Place) {
    let lab = place.lab().await;
    let route = lab.made(create(1)).await;
    assert_eq!((route.destination, route.target.clone()), (net(1), Some(hop(1))));
    assert_eq!((&route.owner, &route.defect), (&None, &None));
    assert_eq!(lab.made(create(1)).await, route);
    assert_eq!(lab.table().await.routes, std::slice::from_ref(&route));
    let moved = replace(&route, wanted_to(2, 1));
    let after = lab.made(moved.clone()).await;
    assert_eq!((after.destination, &after.target), (net(1), &Some(hop(2))));
    assert_eq!(lab.made(moved).await, after);
    for _ in 0..2 {
        assert_eq!(lab.one(delete(&after)).await.unwrap().route, None);
    }
    assert_eq!(lab.router().table(), []);
    // Host bits have no meaning.
    let mut odd = wanted(1);
    odd.destination = IpNet::new_assert([10, 244, 1, 7].into(), 24);
    let made = lab.made(creation(odd)).await;
    assert_eq!(made.destination.trunc(), net(1));
    let listed = Route { destination: IpNet::new_assert([10, 244, 1, 9].into(), 24), ..made };
    lab.one(delete(&listed)).await.unwrap();
    assert_eq!(lab.router().table(), []);
}

/// A deletion or a replacement is about the listed route. A creation is not.
pub(crate) async fn only_what_was_seen_is_changed(place: Place) {
    let lab = place.lab().await;
    let seen = lab.made(create(1)).await;
    lab.router().retarget(net(1), hop(9));
    lab.router().written();
    for (change, kind) in [
        (delete(&seen), ErrorKind::Busy),
        (create(1), ErrorKind::Conflict),
        (replace(&seen, wanted_to(2, 1)), ErrorKind::Busy),
    ] {
        lab.table().await;
        let answers = lab.apply(&[change, create(3)]).await;
        let error = answers[0].as_ref().unwrap_err();
        assert_eq!((error.kind, error.maybe_done), (kind, false), "{error}");
        assert!(error.message.contains("10.0.0.9"), "{error}");
        assert_eq!(error.subject.as_deref(), Some("10.244.1.0/24"));
        assert!(answers[1].is_ok(), "{answers:?}");
    }
    assert_eq!(lab.router().table(), [(net(1), hop(9)), (net(3), hop(3))]);
}

pub(crate) async fn a_replacement_moves_a_destination(place: Place) {
    let lab = place.lab().await;
    let old = lab.made(create(1)).await;
    lab.router().written();
    let new = lab.made(replace(&old, wanted_to(2, 1))).await;
    assert_eq!(new.target, Some(hop(2)));
    let steps = if lab.routes().traits().replaces { 1 } else { 2 };
    assert_eq!((lab.router().written(), lab.router().table()), (steps, vec![(net(1), hop(2))]));
    // If the old route is gone, the new one is created.
    lab.one(delete(&new)).await.unwrap();
    lab.router().written();
    let new = lab.made(replace(&new, wanted_to(3, 1))).await;
    assert_eq!((new.target.clone(), lab.router().written()), (Some(hop(3)), 1));
    // A destination keeps its place.
    let elsewhere = replace(&new, wanted_to(3, 2));
    assert_eq!(lab.one(elsewhere).await.unwrap_err().kind, ErrorKind::Invalid);
}

pub(crate) async fn a_destination_may_have_several_targets(place: Place) {
    let lab = place.lab().await;
    assert!(lab.routes().traits().several_targets);
    let first = lab.made(create(1)).await;
    let second = lab.made(creation(wanted_to(2, 1))).await;
    assert_eq!(lab.table().await.routes, [first.clone(), second.clone()]);
    let error = lab.one(replace(&first, wanted_to(3, 1))).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    lab.one(delete(&first)).await.unwrap();
    assert_eq!(lab.table().await.routes, [second]);
    lab.one(delete(&first)).await.expect("it is gone, and the other one is another route");
    assert_eq!(lab.router().table().len(), 1);
}

pub(crate) async fn a_destination_has_one_change_in_a_call(place: Place) {
    let lab = place.lab().await;
    let mut host_bits = wanted(1);
    host_bits.destination = IpNet::new_assert([10, 244, 1, 200].into(), 24);
    let all = [create(1), create(2), creation(host_bits), creation(wanted_to(3, 2))];
    let answers = lab.apply(&all).await;
    for (place, answer) in answers.iter().enumerate() {
        let error = answer.as_ref().err().map(|error| (error.kind, error.maybe_done));
        assert_eq!(error, (place > 1).then_some((ErrorKind::Invalid, false)), "{answer:?}");
    }
    let table = [(net(1), hop(1)), (net(2), hop(2))];
    assert_eq!(lab.router().table(), table, "the first one counts");
    let first = answers[0].as_ref().unwrap().route.as_ref().unwrap();
    let both: [RouteChange; 2] = [delete(first), create(1)];
    assert_eq!(kinds(lab.apply(&both).await), [None, Some(ErrorKind::Invalid)]);
    assert_eq!(lab.router().table(), table[1..]);
}

pub(crate) async fn owners_are_recorded_and_kept(place: Place) {
    let lab = place.lab().await;
    let made = lab.made(create(1)).await;
    assert_eq!(made.owner, Some(node(1)));
    // An existing route keeps its owner, even if it has no owner.
    lab.router().add(net(2), hop(2));
    assert_eq!(lab.made(create(2)).await.owner, None);
    let owners: Vec<_> = lab.table().await.routes.into_iter().map(|it| it.owner).collect();
    assert_eq!(owners, [Some(node(1)), None]);
    // Another owner is another route, but another name is not another owner.
    let (mut theirs, mut renamed) = (made.clone(), made);
    theirs.owner.as_mut().unwrap().cluster.uid = "cluster-2".to_owned();
    assert_eq!(lab.one(delete(&theirs)).await.unwrap_err().kind, ErrorKind::Busy);
    renamed.owner.as_mut().unwrap().name = "an old name".to_owned();
    lab.one(delete(&renamed)).await.unwrap();
    assert_eq!(lab.router().table(), [(net(2), hop(2))]);
}

pub(crate) async fn a_former_leader_changes_no_route(place: Place) {
    let lab = place.lab().await;
    lab.rig.lead(2);
    let made = lab.made(create(1)).await;
    lab.rig.lead(1);
    for change in [create(2), delete(&made), replace(&made, wanted_to(3, 1))] {
        let error = lab.one(change).await.unwrap_err();
        assert_eq!((error.kind, error.maybe_done), (ErrorKind::Stale, false), "{error}");
    }
    assert_eq!(lab.table().await.routes, [made], "reads have no term");
    lab.rig.lead(2);
    lab.one(create(2)).await.unwrap();
}
