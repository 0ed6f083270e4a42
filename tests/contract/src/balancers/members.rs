//! Members are not removed by mistake.

use std::sync::Arc;

use ccm_cloud::{Depth, ErrorKind, Member, Members, Progress, Wanted};

use crate::{
    Harm, Wish,
    lab::{Place, changed, homeless, member, members, nodes, wanted},
};

pub(crate) async fn a_thin_view_removes_no_member(place: Place) {
    let lab = place.lab().await;
    let all = Wanted { members: members(&[1, 2, 3, 4, 5], &[]), ..wanted("web") };
    let id = lab.settle(&all).await.id;
    lab.written();
    for thin in [members(&[], &[]), members(&[2], &[]), members(&[4, 5], &[9])] {
        assert!(!lab.members_set(&all, &id, thin.clone()).await.changed);
        let answer = lab.ensure(&Wanted { members: thin, ..all.clone() }).await;
        assert!(matches!(answer, Ok(Progress::Done(_))), "{answer:?}");
        assert_eq!((lab.only("web").nodes, lab.written()), (nodes(&[1, 2, 3, 4, 5]), 0));
    }
    // A named member leaves, and a member that is in both lists stays.
    lab.members_set(&all, &id, members(&[1, 6], &[1, 2, 3])).await;
    assert_eq!(lab.only("web").nodes, nodes(&[1, 4, 5, 6]));
    assert!(lab.written() <= 2, "one write for each pool at most");
}

pub(crate) async fn the_last_member_stays(place: Place) {
    let lab = place.lab().await;
    let mut web = wanted("web");
    let id = lab.settle(&web).await.id;
    let none = members(&[], &[1, 2, 3]);
    lab.members_set(&web, &id, none.clone()).await;
    let last = lab.only("web").nodes;
    assert_eq!(last.len(), 1);
    lab.written();
    lab.members_set(&web, &id, none.clone()).await;
    web.members = none;
    assert!(matches!(lab.ensure(&web).await, Ok(Progress::Done(_))));
    assert_eq!((lab.only("web").nodes, lab.written()), (last, 0));
    // The last member leaves when another one comes. A member that cannot be added does not count.
    let unusable = Members { present: [homeless(7)].into(), ..members(&[], &[1, 2, 3]) };
    lab.members_set(&web, &id, unusable).await;
    assert_eq!(lab.only("web").nodes.len(), 1);
    lab.members_set(&web, &id, members(&[8], &[1, 2, 3])).await;
    assert_eq!(lab.only("web").nodes, nodes(&[8]));
    // The same holds for a call about everything.
    web.members = members(&[], &[8]);
    lab.settle(&web).await;
    assert_eq!(lab.only("web").nodes, nodes(&[8]));
}

pub(crate) async fn members_follow_while_the_configuration_is_wrong(place: Place) {
    let lab = place.lab().await;
    let web = wanted("web");
    let made = lab.settle(&web).await;
    let before = lab.only("web");
    let wrong = lab.wishes(&web, Wish::Wrong);
    assert_eq!(lab.ensure(&wrong).await.unwrap_err().kind, ErrorKind::Invalid);
    lab.written();
    lab.members_set(&wrong, &made.id, members(&[4], &[1])).await;
    let after = lab.only("web");
    assert_eq!(after.nodes, nodes(&[2, 3, 4]));
    assert_eq!((after.ports, after.rest), (before.ports, before.rest));
    assert!(lab.written() <= 2, "one write for each pool at most");
    assert_eq!(lab.shown(&made.id, Depth::Summary).await.digest, made.digest);
    // A configuration that waits to be applied is not applied with the members.
    let held = changed(&web, |front_end| front_end.ports.truncate(1));
    lab.members_set(&held, &made.id, members(&[5], &[])).await;
    assert_eq!(lab.only("web").ports.len(), 2);
}

pub(crate) async fn a_bad_member_affects_no_others(place: Place) {
    let lab = place.lab().await;
    let web = wanted("web");
    let id = lab.settle(&web).await.id;
    let moved = Member { addresses: member(33).addresses, ..member(3) };
    let present = [homeless(1), member(2), moved.clone(), homeless(4), member(5)];
    lab.members_set(&web, &id, Members { present: Arc::new(present), ..Members::default() }).await;
    assert_eq!(lab.only("web").nodes, nodes(&[1, 2, 3, 5]));
    let shown = lab.shown(&id, Depth::Members).await.members.unwrap();
    let of = |number: usize| shown.iter().find(|it| it.node == member(number).node).unwrap();
    assert!(member(1).is_shown_as(of(1)), "one without an address stays as it was");
    assert!(moved.is_shown_as(of(3)), "one with another address is replaced");
}

/// The audit compares versions, so it must know the version of our own write.
pub(crate) async fn a_change_of_members_answers_with_its_version(place: Place) {
    let lab = place.lab().await;
    let web = wanted("web");
    let created = lab.settle(&web).await;
    let id = created.id.as_str();
    let set = lab.members_set(&web, id, members(&[4], &[1])).await;
    let shown = async || lab.shown(id, Depth::Summary).await.version;
    assert!(set.version.is_some() && set.version != created.version, "{set:?}");
    assert_eq!(shown().await, set.version);
    lab.written();
    let again = lab.members_set(&web, id, members(&[4], &[1])).await;
    assert_eq!((again.version, lab.written()), (set.version.clone(), 0), "nothing had to change");
    // Another client's write changes the version, so it differs from the known one.
    lab.side().harm(id, Harm::Members);
    assert_ne!(shown().await, set.version);
}
