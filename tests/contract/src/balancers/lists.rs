//! Lists.

use std::time::Duration;

use ccm_cloud::{Depth, Progress, Scope, Title, are_shown_as};

use crate::{
    Whose,
    lab::{Place, known, unwanted, wanted},
};

pub(crate) async fn lists_by_scope_and_depth(place: Place) {
    let lab = place.lab().await;
    let web = lab.settle(&wanted("web")).await;
    let api = lab.settle(&wanted("api")).await;
    let [person, older, theirs, shared] =
        [Whose::Person, Whose::Older("old"), Whose::Namesake("db"), Whose::Shared("b", "c")]
            .map(|whose| lab.side().stranger(whose));
    let of = |names: &[&String]| Scope::Ids(names.iter().map(|&name| name.clone()).collect());
    let none = "none".to_owned();
    for (scope, mut expect) in [
        (Scope::All, vec![&web.id, &api.id, &person, &older, &theirs, &shared]),
        (Scope::Cluster, vec![&web.id, &api.id, &shared]),
        (of(&[&older, &none, &api.id]), vec![&api.id, &older]),
        (of(&[]), vec![]),
    ] {
        for depth in [Depth::Summary, Depth::Members] {
            let list = lab.list(scope.clone(), depth).await;
            assert_eq!(list.malformed, [""; 0]);
            let mut found: Vec<_> = list.load_balancers.iter().map(|it| &it.id).collect();
            found.sort_unstable();
            expect.sort_unstable();
            assert_eq!(found, expect, "{scope:?}");
            for shown in &list.load_balancers {
                assert_eq!(shown.members.is_some(), depth == Depth::Members);
                let is_right = match &shown.title {
                    Title::Ours => [&web.id, &api.id].contains(&&shown.id),
                    // Load balancers from before a rebuild of the cluster have the names of this
                    // cluster.
                    Title::Adoptable { .. } => [&older, &theirs].contains(&&shown.id),
                    Title::Shared { others } => shown.id == shared && *others == 1,
                    Title::Foreign => [&person, &theirs].contains(&&shown.id),
                };
                assert!(is_right, "{shown:?}");
            }
        }
    }
    let shown = lab.shown(&web.id, Depth::Members).await;
    let members = shown.members.as_ref().expect("a deep look shows members");
    assert!(are_shown_as(&wanted("web").members.present, members.iter()), "{members:?}");
    assert!(shown.cost.is_some() && shown.age.is_some_and(|age| age < Duration::MAX));
    let mut as_done = web.clone();
    as_done.age = shown.age;
    // If members are as wanted, the answer may share the request's list.
    let done = std::mem::replace(&mut as_done.members, shown.members.clone());
    assert!(are_shown_as(&done.expect("an answer shows members"), members.iter()));
    assert_eq!(shown, as_done, "an ensured load balancer is shown as a list shows it");
}

pub(crate) async fn malformed_entries_affect_no_others(place: Place) {
    let lab = place.lab().await;
    for name in ["a", "b", "c"] {
        lab.settle(&wanted(name)).await;
    }
    let spoilt = lab.only("b").id;
    lab.side().spoil(&spoilt, true);
    let list = lab.list(Scope::Cluster, Depth::Members).await;
    assert_eq!((list.load_balancers.len(), list.malformed.len()), (2, 1));
    assert!(list.malformed[0].contains(&spoilt), "{:?}", list.malformed);
    lab.side().spoil(&spoilt, false);
    assert_eq!(lab.list(Scope::Cluster, Depth::Members).await.load_balancers.len(), 3);
}

/// The list lies: a load balancer that it lacks is found nevertheless, and is not gone.
pub(crate) async fn a_list_that_lacks_one_proves_nothing(place: Place) {
    let lab = place.lab().await;
    let web = wanted("web");
    let made = lab.settle(&web).await;
    lab.side().hide(true);
    assert_eq!(lab.list(Scope::All, Depth::Summary).await.load_balancers, []);
    let answer = lab.ensure(&known(&web, &made)).await;
    assert!(matches!(answer, Ok(Progress::Done(_))), "{answer:?}");
    assert_eq!(lab.side().rows().len(), 1);
    for _ in 0..3 {
        // No answer proves that an existing load balancer is gone.
        if let Ok(Progress::Done(_)) = lab.delete(&unwanted(&web, Some(&made.id))).await {
            assert_eq!(lab.side().rows(), []);
        }
    }
    lab.side().hide(false);
    lab.deleted(&unwanted(&web, Some(&made.id))).await;
    assert_eq!(lab.side().rows(), []);
}
