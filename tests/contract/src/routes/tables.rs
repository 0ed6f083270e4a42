//! The table as a whole: lists, versions, room.

use ccm_cloud::{ErrorKind, Route, RouteTarget};

use super::world::{create, delete, hop, kinds, net};
use crate::lab::Place;

/// A list shows all routes, and does not decide who owns them.
pub(crate) async fn foreign_routes_are_shown_and_stay(place: Place) {
    let lab = place.lab().await;
    let (wide, dead) = ("192.168.0.0/16".parse().unwrap(), [10, 0, 0, 77].into());
    lab.router().add(wide, RouteTarget::Address(dead));
    lab.router().add(net(9), hop(9));
    let before = lab.router().table();
    let table = lab.table().await;
    assert_eq!(table.malformed, [""; 0]);
    let is_shown = |(net, target): &(_, RouteTarget)| {
        table.routes.iter().any(|it| it.destination == *net && it.target.as_ref() == Some(target))
    };
    assert!(table.routes.len() == 2 && before.iter().all(is_shown), "{table:?}");
    for change in [create(1), create(2)] {
        let made: Route = lab.made(change).await;
        assert!(lab.table().await.routes.contains(&made));
        lab.one(delete(&made)).await.unwrap();
    }
    assert_eq!(lab.router().table(), before);
}

/// Where the cloud compares versions, a table that has changed is not written.
pub(crate) async fn a_table_that_has_changed_is_not_written(place: Place) {
    let lab = place.lab().await;
    let base = lab.table().await.version.unwrap();
    assert!(lab.routes().traits().compares_version);
    let answers = lab.apply_at(&[create(1), create(2)], Some(&base)).await;
    let after = lab.table().await;
    let version = after.version.clone().unwrap();
    assert_ne!(version, base);
    for answer in &answers {
        assert_eq!(answer.as_ref().unwrap().version.as_ref(), Some(&version), "one for a batch");
    }
    // A person writes, so that the seen version is old, if versions exist at all.
    lab.router().add(net(9), hop(9));
    let seen = &after.routes[0];
    for base in [version.as_str(), "nonsense", ""] {
        for answer in lab.apply_at(&[create(3), delete(seen), create(2)], Some(base)).await {
            let error = answer.unwrap_err();
            assert_eq!((error.kind, error.maybe_done), (ErrorKind::Busy, false), "{error}");
        }
    }
    let table = [(net(1), hop(1)), (net(2), hop(2)), (net(9), hop(9))];
    assert_eq!(lab.router().table(), table, "nothing was changed");
    // The change is made with the current version, and without a version, which is not compared.
    let base = lab.table().await.version;
    assert_eq!(kinds(lab.apply_at(&[create(3)], base.as_deref()).await), [None]);
    assert_eq!(kinds(lab.apply(&[create(4)]).await), [None]);
}

pub(crate) async fn a_full_table_takes_what_fits(place: Place) {
    let lab = place.lab().await;
    lab.router().limit(2);
    assert!(lab.table().await.room.is_none_or(|room| room == 2));
    let answers = lab.apply(&[create(1), create(2), create(3), create(4)]).await;
    let mut refused = 0;
    for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        assert_eq!((error.kind, error.maybe_done), (ErrorKind::QuotaExceeded, false), "{error}");
        assert_eq!(error.subject.as_deref(), Some("routes"));
        refused += 1;
    }
    let table = lab.table().await;
    assert_eq!((refused, table.routes.len()), (2, 2));
    assert!(table.room.is_none_or(|room| room == 0));
    // Existing routes do not need room, and deleted ones make room.
    let answers = lab.apply(&[create(1), delete(&table.routes[1]), create(3)]).await;
    assert_eq!(kinds(answers), [None; 3]);
}
