//! The effects of a change, and what it leaves alone.

use std::sync::Arc;

use ccm_cloud::{ErrorKind, IpFamily, Route, RouteChange, RouteTarget};
use ccm_sim::cloud::{
    SimInstance,
    routes::{RouteWriteKind, SimRoute, TargetKind},
};
use ipnet::IpNet;

use super::world::{Terms, create, delete, hop, kinds, net, node, replace, wanted, wanted_to};
use crate::{
    rig::{Rig, Way},
    suite::call,
};

pub async fn changes_may_be_repeated(way: Way) {
    let rig = Rig::new(way).await;
    let route = rig.made(create(1)).await;
    assert_eq!((route.destination, route.target.clone()), (net(1), Some(hop(1))));
    assert_eq!((&route.owner, &route.defect), (&None, &None));
    assert_eq!(rig.made(create(1)).await, route);
    let table = rig.table().await;
    assert_eq!(table.routes, std::slice::from_ref(&route));
    let moved = replace(&route, wanted_to(2, 1));
    let after = rig.made(moved.clone()).await;
    assert_eq!((after.destination, &after.target), (net(1), &Some(hop(2))));
    assert_eq!(rig.made(moved).await, after);
    for _ in 0..2 {
        assert_eq!(rig.one(delete(&after)).await.unwrap().route, None);
    }
    assert!(rig.sim.router().is_empty());
    let expect = [RouteWriteKind::Create, RouteWriteKind::Delete].repeat(2);
    assert_eq!(rig.route_writes(), expect);
    // Host bits have no meaning.
    let mut odd = wanted(1);
    odd.destination = IpNet::new_assert([10, 244, 1, 7].into(), 24);
    let made = rig.made(RouteChange::Create(Arc::new(odd))).await;
    assert_eq!(made.destination.trunc(), net(1));
    let listed = Route { destination: IpNet::new_assert([10, 244, 1, 9].into(), 24), ..made };
    rig.one(delete(&listed)).await.unwrap();
    assert!(rig.sim.router().is_empty());
}

/// A deletion or a replacement is about the route as it was listed.
pub async fn only_what_was_seen_is_changed(way: Way) {
    for records_owner in [false, true] {
        let rig = Rig::routing(way, |it| it.traits.records_owner = records_owner).await;
        let seen = rig.made(create(1)).await;
        rig.sim.router().update(net(1), |route| route.target = Some(hop(9)));
        rig.route_writes();
        let changes = [delete(&seen), create(1), replace(&seen, wanted_to(2, 1))];
        for (change, kind) in
            changes.into_iter().zip([ErrorKind::Busy, ErrorKind::Conflict, ErrorKind::Busy])
        {
            let error = rig.one(change).await.unwrap_err();
            assert_eq!(error.kind, kind, "{error}");
            assert!(!error.maybe_done && error.message.contains("10.0.0.9"), "{error}");
            assert_eq!(error.subject.as_deref(), Some("10.244.1.0/24"));
        }
        // Another owner is another route, where the cloud records it.
        let target = Some(hop(1));
        rig.sim.router().update(net(1), |route| {
            (route.target, route.owner) = (target, Some(node(7)));
        });
        let answer = rig.one(delete(&seen)).await;
        match records_owner {
            true => assert_eq!(answer.unwrap_err().kind, ErrorKind::Busy),
            false => assert_eq!(answer.unwrap().route, None),
        }
        assert_eq!(rig.sim.router().len(), usize::from(records_owner));
        assert_eq!(rig.route_writes().len(), usize::from(!records_owner));
    }
}

pub async fn a_destination_may_have_several_targets(way: Way) {
    let rig = Rig::routing(way, |it| it.traits.several_targets = true).await;
    assert!(rig.routes().traits().several_targets);
    let first = rig.made(create(1)).await;
    let second = RouteChange::Create(Arc::new(wanted_to(2, 1)));
    let second = rig.made(second).await;
    assert_eq!(rig.table().await.routes, [first.clone(), second.clone()]);
    let error = rig.one(replace(&first, wanted_to(3, 1))).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    rig.one(delete(&first)).await.unwrap();
    assert_eq!(rig.table().await.routes, [second]);
    rig.one(delete(&first)).await.expect("it is gone, and the other one is another route");
    assert_eq!(rig.sim.router().len(), 1);
}

pub async fn a_replacement_is_one_step_where_the_cloud_has_it(way: Way) {
    use RouteWriteKind::{Create, Delete, Replace};
    for (replaces, expect) in [(true, vec![Replace]), (false, vec![Delete, Create])] {
        let rig = Rig::routing(way, |it| it.traits.replaces = replaces).await;
        assert_eq!(rig.routes().traits().replaces, replaces);
        let old = rig.made(create(1)).await;
        rig.route_writes();
        let new = rig.made(replace(&old, wanted_to(2, 1))).await;
        assert_eq!(new.target, Some(hop(2)));
        assert_eq!(rig.route_writes(), expect);
        // If the old one is gone, the new one is created.
        rig.one(delete(&new)).await.unwrap();
        rig.route_writes();
        assert_eq!(rig.made(replace(&new, wanted_to(3, 1))).await.target, Some(hop(3)));
        assert_eq!(rig.route_writes(), [Create]);
        // A destination keeps its place.
        let elsewhere = replace(&new, wanted_to(3, 2));
        assert_eq!(rig.one(elsewhere).await.unwrap_err().kind, ErrorKind::Invalid);
    }
}

pub async fn a_destination_has_one_change_in_a_call(way: Way) {
    let rig = Rig::new(way).await;
    let host_bits = {
        let mut wanted = wanted(1);
        wanted.destination = IpNet::new_assert([10, 244, 1, 200].into(), 24);
        RouteChange::Create(Arc::new(wanted))
    };
    let all = [create(1), create(2), host_bits, RouteChange::Create(Arc::new(wanted_to(3, 2)))];
    let answers = rig.apply(&all).await;
    for (place, answer) in answers.iter().enumerate() {
        let error = answer.as_ref().err().map(|error| (error.kind, error.maybe_done));
        assert_eq!(error, (place > 1).then_some((ErrorKind::Invalid, false)), "{answer:?}");
    }
    assert_eq!(rig.sim.router().to(net(2))[0].target, Some(hop(2)), "the first one counts");
    let other = [delete(&rig.sim.router().to(net(1))[0].describe()), create(1)];
    assert_eq!(kinds(rig.apply(&other).await), [None, Some(ErrorKind::Invalid)]);
    assert_eq!(rig.sim.router().len(), 1);
}

pub async fn owners_are_recorded_and_kept(way: Way) {
    let rig = Rig::routing(way, |it| it.traits.records_owner = true).await;
    assert!(rig.routes().traits().records_owner);
    let made = rig.made(create(1)).await;
    assert_eq!(made.owner, Some(node(1)));
    // An existing route keeps its owner, even if it has no owner.
    rig.sim.router().add(SimRoute::foreign("r", net(2), hop(2)));
    assert_eq!(rig.made(create(2)).await.owner, None);
    let mut theirs = node(3);
    theirs.cluster.uid = "cluster-2".to_owned();
    let foreign =
        SimRoute { owner: Some(theirs.clone()), ..SimRoute::foreign("s", net(3), hop(3)) };
    rig.sim.router().add(foreign);
    assert_eq!(rig.made(create(3)).await.owner, Some(theirs.clone()));
    let owners: Vec<_> = rig.table().await.routes.into_iter().map(|it| it.owner).collect();
    assert_eq!(owners, [Some(node(1)), None, Some(theirs)]);
    rig.route_writes();
    // Another name is not another owner.
    let mut renamed = made.clone();
    renamed.owner.as_mut().unwrap().name = "an old name".to_owned();
    rig.one(delete(&renamed)).await.unwrap();
    assert_eq!(rig.route_writes(), [RouteWriteKind::Delete]);
}

/// A provider selects the target among the node's IDs and addresses.
pub async fn targets_are_of_the_clouds_kind(way: Way) {
    let instance = RouteTarget::Instance("sim://i-1".to_owned().try_into().unwrap());
    for (targets, expect) in [
        (TargetKind::Address, hop(1)),
        (TargetKind::Instance, instance),
        (TargetKind::Node, RouteTarget::Node("node-1".to_owned())),
    ] {
        let rig = Rig::routing(way, |it| it.targets = targets).await;
        rig.sim.add(SimInstance::new("i-1", "node-1"));
        let made = rig.made(create(1)).await;
        assert_eq!(made.target.as_ref(), Some(&expect));
        assert_eq!(rig.table().await.routes, std::slice::from_ref(&made));
        rig.one(delete(&made)).await.unwrap();
        assert!(rig.sim.router().is_empty());
    }
    let rig = Rig::new(way).await;
    let six = |number| {
        let mut wanted = wanted(number);
        wanted.destination = format!("fd00:244:{number}::/64").parse().unwrap();
        wanted
    };
    let made = rig.made(RouteChange::Create(Arc::new(six(1)))).await;
    assert_eq!(made.target, Some(RouteTarget::Address("fd00::1".parse().unwrap())));
    let mut bare = six(2);
    bare.addresses.clear();
    let answers = rig.apply(&[RouteChange::Create(Arc::new(bare)), create(3)]).await;
    let error = answers[0].as_ref().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    assert!(error.message.contains("node-2"), "{error}");
    assert!(answers[1].is_ok(), "the others go on");
    let rig = Rig::routing(way, |it| it.traits.families = vec![IpFamily::V6]).await;
    assert_eq!(rig.routes().traits().families, [IpFamily::V6]);
    assert_eq!(rig.one(create(1)).await.unwrap_err().kind, ErrorKind::Invalid);
}

pub async fn a_former_leader_changes_no_route(way: Way) {
    let sim = ccm_sim::cloud::SimCloud::new();
    sim.router().configure(|it| it.fences = true);
    let gate = Arc::new(Terms::default());
    let rig = Rig::of(sim, way, gate.clone()).await;
    gate.set(2);
    let made = rig.made(create(1)).await;
    gate.set(1);
    for change in [create(2), delete(&made), replace(&made, wanted_to(3, 1))] {
        let error = rig.one(change).await.unwrap_err();
        assert_eq!((error.kind, error.maybe_done), (ErrorKind::Stale, false), "{error}");
    }
    assert_eq!(rig.table().await.routes, [made], "reads have no term");
    gate.set(2);
    let answers = rig.apply_in(&[create(2)], None, call()).await;
    assert_eq!(kinds(answers), [None]);
    let terms = rig.sim.router().writes().into_iter().map(|write| write.term);
    assert_eq!(terms.collect::<Vec<_>>(), [Some(2), Some(2)]);
}
