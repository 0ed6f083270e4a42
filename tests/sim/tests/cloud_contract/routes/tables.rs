//! The table as a whole: lists, versions, quotas.

use std::sync::Arc;

use ccm_cloud::{ErrorKind, OpenGate, RouteChange, RouteTarget, RouteTraits};
use ccm_sim::{
    cloud::{RouteCalls, SimCloud, routes::SimRoute},
    faults::{Effect, Fault, Trouble},
};
use ipnet::IpNet;

use super::world::{create, delete, hop, kinds, net, node, wanted};
use crate::{
    rig::{Rig, Way},
    suite::call,
};

/// A list shows all routes, and does not decide whose they are.
pub async fn foreign_routes_are_shown(way: Way) {
    let rig = Rig::routing(way, |it| it.traits.records_owner = true).await;
    let mut theirs = node(5);
    theirs.cluster.uid = "cluster-2".to_owned();
    let six: IpNet = "fd00:244::/64".parse().unwrap();
    let all = [
        SimRoute::foreign("default", "0.0.0.0/0".parse().unwrap(), hop(254)),
        SimRoute::foreign("dropped", net(7), None),
        SimRoute { owner: Some(theirs), ..SimRoute::foreign("theirs", net(8), hop(5)) },
        SimRoute::foreign("odd", IpNet::new_assert([10, 244, 9, 9].into(), 24), hop(9)),
        SimRoute::foreign("six", six, RouteTarget::Node("one".to_owned())),
    ];
    for route in all.clone() {
        rig.sim.router().add(route);
    }
    let table = rig.table().await;
    assert_eq!(table.routes, all.each_ref().map(SimRoute::describe));
    assert_eq!((table.malformed, table.room), (Vec::new(), None));
    assert_eq!(table.version, Some("5".to_owned()));
    let error = rig.one(create(7)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "a route that drops packets is a route: {error}");
    rig.sim.router().configure(|it| it.versions = false);
    assert_eq!(rig.table().await.version, None);
}

pub async fn tables_are_read_page_by_page(way: Way) {
    let rig = Rig::new(way).await;
    let empty = rig.table().await;
    assert_eq!((empty.routes.len(), empty.version.as_deref()), (0, Some("0")));
    let blocks = IpNet::new_assert([10, 0, 0, 0].into(), 8).subnets(24).unwrap();
    for (number, block) in blocks.take(1_100).enumerate() {
        let target = RouteTarget::Node(format!("n{number}"));
        rig.sim.router().add(SimRoute::foreign(format!("r{number}"), block, target));
    }
    rig.sim.reset_calls();
    let table = rig.table().await;
    let expect: Vec<_> = rig.sim.router().all().iter().map(SimRoute::describe).collect();
    assert_eq!(table.routes, expect);
    assert_eq!(rig.sim.calls().routes, RouteCalls { list: 3, ..RouteCalls::default() });
    // Entries that cannot be read affect no others.
    let names = vec!["10.0.0.0/24".to_owned(), "10.4.75.0/24".to_owned()];
    let odd = rig.sim.faults().add(Fault::new(Effect::Routes(names, Trouble::Malformed)));
    let table = rig.table().await;
    assert_eq!((table.routes.len(), table.malformed.len()), (1_098, 2));
    assert!(table.malformed.iter().any(|line| line.contains("10.4.75.0/24")), "{table:?}");
    rig.sim.faults().remove(odd);
    // A list that fails is an error, on whatever page.
    rig.sim.faults().add(Fault::new(Effect::Unavailable).after(2));
    let error = rig.routes().list(&super::world::cluster(), call()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
}

/// Where the cloud compares versions, a table that has changed is not written.
pub async fn a_table_that_has_changed_is_not_written(way: Way) {
    let rig = Rig::routing(way, |it| it.traits.compares_version = true).await;
    assert!(rig.routes().traits().compares_version);
    let base = rig.table().await.version.unwrap();
    let answers = rig.apply_in(&[create(1), create(2)], Some(&base), call()).await;
    let after = rig.table().await.version;
    for answer in &answers {
        assert_eq!(answer.as_ref().unwrap().version, after, "one version for a batch");
    }
    let after = after.unwrap();
    assert_ne!(after, base);
    let seen = rig.table().await.routes;
    for base in [base.as_str(), "nonsense", ""] {
        let changes = [create(3), delete(&seen[0]), create(2)];
        for answer in rig.apply_in(&changes, Some(base), call()).await {
            let error = answer.unwrap_err();
            assert_eq!((error.kind, error.maybe_done), (ErrorKind::Busy, false), "{error}");
        }
    }
    assert_eq!(rig.table().await.routes, seen, "nothing was changed");
    // A change that changes nothing leaves the version, and no base compares nothing.
    let answer = rig.apply_in(&[create(1)], Some(&after), call()).await.remove(0);
    assert_eq!(answer.unwrap().version.as_ref(), Some(&after));
    rig.sim.router().add(SimRoute::foreign("r", net(9), hop(9)));
    assert_eq!(kinds(rig.apply(&[create(3)]).await), [None]);
    // Without the trait a base is ignored.
    let rig = Rig::new(way).await;
    assert_eq!(kinds(rig.apply_in(&[create(1)], Some("7"), call()).await), [None]);
}

pub async fn a_full_table_takes_what_fits(way: Way) {
    let rig = Rig::routing(way, |it| it.quota = Some(2)).await;
    assert_eq!(rig.table().await.room, Some(2));
    let answers = rig.apply(&[create(1), create(2), create(3), create(4)]).await;
    assert!(answers[0].is_ok() && answers[1].is_ok());
    for answer in &answers[2..] {
        let error = answer.as_ref().unwrap_err();
        assert_eq!((error.kind, error.maybe_done), (ErrorKind::QuotaExceeded, false), "{error}");
        assert_eq!(error.subject.as_deref(), Some("routes"));
    }
    let table = rig.table().await;
    assert_eq!((table.room, table.routes.len()), (Some(0), 2));
    // Existing routes need no room, and deleted ones make some.
    let answers = rig.apply(&[create(1), delete(&table.routes[1]), create(3)]).await;
    assert_eq!(kinds(answers), [None; 3]);
}

pub async fn a_batch_is_one_call(way: Way) {
    let sim = SimCloud::new();
    let rig = Rig::of(sim, way, Arc::new(OpenGate)).await;
    let traits = rig.routes().traits();
    assert_eq!(traits, rig.sim.router().settings().traits);
    assert_eq!(traits.max_batch, 500);
    let change = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let mut wanted = wanted(low);
        wanted.destination = IpNet::new_assert([10, high, low, 0].into(), 24);
        RouteChange::Create(Arc::new(wanted))
    };
    let all: Vec<_> = (0..500).map(change).collect();
    rig.sim.reset_calls();
    assert!(rig.apply(&all).await.iter().all(Result::is_ok));
    let calls = rig.sim.reset_calls().routes;
    assert_eq!(calls, RouteCalls { apply: 1, items: 500, ..RouteCalls::default() });
    assert_eq!((rig.sim.router().len(), rig.sim.router().version()), (500, 1));
}

/// Over the protocol a call that is too large has several messages. Each one is compared with the
/// version after the one before, and a destination has one change in all of them.
#[tokio::test]
async fn a_call_that_is_too_large_has_several_messages() {
    let sim = SimCloud::new();
    sim.router().configure(|it| {
        it.traits = RouteTraits { max_batch: 2, compares_version: true, ..it.traits.clone() };
    });
    let rig = Rig::of(sim, Way::Unix, Arc::new(OpenGate)).await;
    let base = rig.table().await.version;
    rig.sim.reset_calls();
    let all = [1, 2, 1, 3, 4, 2, 5].map(create);
    let answers = rig.apply_in(&all, base.as_deref(), call()).await;
    let invalid = Some(ErrorKind::Invalid);
    assert_eq!(kinds(answers), [None, None, invalid, None, None, invalid, None]);
    assert_eq!((rig.sim.calls().routes.apply, rig.sim.calls().routes.items), (3, 5));
    assert_eq!(rig.sim.router().version(), 3);
    // The table is changed by others between two messages.
    let names = vec![net(8).to_string()];
    rig.sim.faults().add(Fault::new(Effect::Routes(names, Trouble::Overtake)));
    let base = rig.table().await.version;
    let answers = rig.apply_in(&[6, 7, 8, 9].map(create), base.as_deref(), call()).await;
    let busy = Some(ErrorKind::Busy);
    assert_eq!(kinds(answers), [None, None, busy, busy]);
}
