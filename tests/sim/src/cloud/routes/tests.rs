use std::{sync::Arc, time::Duration};

use ccm_cloud::{
    AddressKind, AppliedChange, Call, CloudError, ClusterId, ErrorKind, NodeAddress, NodeIdentity,
    RouteChange, RouteTraits, Routes, TargetState, WantedRoute,
};
use futures::StreamExt as _;

use super::*;
use crate::{
    cloud::{SimCloud, SimInstance},
    faults::{Fault, FaultEffect, Trouble},
};

fn call() -> Call {
    Call::waiting(Duration::from_secs(30))
}

fn cluster() -> ClusterId {
    ClusterId { name: "c".to_owned(), uid: "c".to_owned() }
}

fn net(number: u8) -> IpNet {
    IpNet::new([10, 244, number, 0].into(), 24).unwrap()
}

fn wanted(number: u8) -> WantedRoute {
    let name = format!("node-{number}");
    let uid = format!("uid of {name}");
    WantedRoute {
        owner: Owner { cluster: cluster(), uid, namespace: String::new(), name: name.clone() },
        destination: net(number),
        node: NodeIdentity::named(name),
        addresses: vec![NodeAddress::new(AddressKind::InternalIp, format!("10.0.0.{number}"))],
    }
}

fn create(number: u8) -> RouteChange {
    RouteChange::Create(Arc::new(wanted(number)))
}

fn hop(number: u8) -> RouteTarget {
    RouteTarget::Address([10, 0, 0, number].into())
}

async fn apply(
    cloud: &SimCloud,
    changes: &[RouteChange],
    base: Option<&str>,
    call: Call,
) -> Vec<Result<AppliedChange, CloudError>> {
    let mut answers: Vec<_> = cloud.apply(&cluster(), changes, base, call).collect().await;
    answers.sort_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

async fn one(cloud: &SimCloud, change: RouteChange) -> Result<AppliedChange, ErrorKind> {
    apply(cloud, &[change], None, call()).await.remove(0).map_err(|error| error.kind)
}

#[tokio::test(start_paused = true)]
async fn a_replacement_is_one_step_where_the_cloud_has_it() {
    for (replaces, kinds) in [
        (true, vec![RouteWriteKind::Replace]),
        (false, vec![RouteWriteKind::Delete, RouteWriteKind::Create]),
    ] {
        let cloud = SimCloud::new();
        cloud.router().configure(|it| it.traits.replaces = replaces);
        cloud.router().add(SimRoute::foreign("r", net(1), hop(9)));
        let old = cloud.router().to(net(1))[0].describe();
        let replace = RouteChange::Replace { old: Box::new(old), new: Arc::new(wanted(1)) };
        for _ in 0..2 {
            let route = one(&cloud, replace.clone()).await.unwrap().route.unwrap();
            assert_eq!(route.target, Some(hop(1)));
        }
        let written = cloud.router().writes();
        assert_eq!(written.iter().map(|write| write.kind).collect::<Vec<_>>(), kinds);
    }
}

#[tokio::test(start_paused = true)]
async fn faults_hit_single_routes() {
    let cloud = SimCloud::new();
    let trouble = |number: u8, trouble| {
        cloud.faults().add(Fault::new(FaultEffect::Routes(vec![net(number).to_string()], trouble)))
    };
    trouble(1, Trouble::Fail(CloudError::new(ErrorKind::Unavailable, "down")));
    trouble(2, Trouble::LoseAnswer);
    trouble(3, Trouble::Hang);
    trouble(4, Trouble::Late(Duration::from_mins(1)));
    let broken = trouble(5, Trouble::Break(Cure::Ensure));
    let answers = apply(&cloud, &[1, 2, 3, 4, 5, 6].map(create), None, call()).await;
    let errors = answers
        .iter()
        .map(|answer| answer.as_ref().err().map(|error| (error.kind, error.maybe_done)));
    let errors: Vec<_> = errors.collect();
    assert_eq!(
        errors,
        [
            Some((ErrorKind::Unavailable, false)),
            Some((ErrorKind::Unavailable, true)),
            Some((ErrorKind::Timeout, true)),
            Some((ErrorKind::Unavailable, true)),
            None,
            None,
        ]
    );
    let there = || cloud.router().all().iter().map(|it| it.destination).collect::<Vec<_>>();
    assert_eq!(there(), [2, 5, 6].map(net));
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(there(), [2, 4, 5, 6].map(net));
    // A creation repairs a defect that can be repaired.
    let defect = |number| cloud.router().to(net(number))[0].describe().defect;
    assert_eq!(defect(5).unwrap(), "the port of 10.0.0.5 does not allow 10.244.5.0/24");
    assert!(cloud.faults().remove(broken));
    assert_eq!(one(&cloud, create(5)).await.unwrap().route.unwrap().defect, None);
    assert_eq!(cloud.router().written(RouteWriteKind::Repair), 1);
    trouble(6, Trouble::Malformed);
    let table = Routes::list(&cloud, &cluster(), call()).await.unwrap();
    assert_eq!((table.routes.len(), table.malformed.len()), (3, 1));
}

/// The table changes between the caller's look and its change.
#[tokio::test(start_paused = true)]
async fn a_change_is_overtaken() {
    for compares_version in [false, true] {
        let cloud = SimCloud::new();
        cloud.router().configure(|it| it.traits.compares_version = compares_version);
        let listed = one(&cloud, create(1)).await.unwrap().route.unwrap();
        let base = cloud.router().version().to_string();
        let names = vec![net(1).to_string(), "node-2".to_owned()];
        cloud.faults().add(Fault::new(FaultEffect::Routes(names, Trouble::Overtake)).times(2));
        let changes = [RouteChange::Delete(Box::new(listed)), create(2), create(3)];
        let answers = apply(&cloud, &changes, Some(&base), call()).await;
        let kinds: Vec<_> =
            answers.into_iter().map(|answer| answer.map_err(|error| error.kind).err()).collect();
        let expect = match compares_version {
            true => [Some(ErrorKind::Busy); 3],
            false => [Some(ErrorKind::Busy), Some(ErrorKind::Conflict), None],
        };
        assert_eq!(kinds, expect);
        for number in [1, 2] {
            let stranger = RouteTarget::Address([192, 0, 2, 1].into());
            assert_eq!(cloud.router().to(net(number))[0].target, Some(stranger));
        }
        assert_eq!(cloud.router().to(net(3)).len(), usize::from(!compares_version));
        assert!(cloud.faults().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn targets_are_instances_or_ports_and_nothing_proves_nothing() {
    let cloud = SimCloud::new();
    let id = |id: &str| RouteTarget::Instance(format!("sim://{id}").try_into().unwrap());
    let all = [hop(1), hop(2), hop(3), id("i-1"), id("i-2"), RouteTarget::Node("n".to_owned())];
    let find = || async {
        let answers: Vec<_> = cloud.find_targets(&all, call()).collect().await;
        answers.into_iter().map(|(_, it)| it.map(|it| it == TargetState::Exists)).collect()
    };
    let answers: Vec<_> = find().await;
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    let mut instance = SimInstance::new("i-1", "n");
    instance.addresses = vec![NodeAddress::new(AddressKind::InternalIp, "10.0.0.1")];
    cloud.add(instance);
    cloud.router().add_port([10, 0, 0, 2].into());
    let answers: Vec<_> = find().await;
    assert_eq!(answers, [true, true, false, true, false, true].map(Ok));
}

#[tokio::test(start_paused = true)]
async fn a_node_needs_what_its_targets_are() {
    for (targets, ids, expect) in [
        (TargetKind::Address, false, Ok(hop(1))),
        (TargetKind::Node, false, Ok(RouteTarget::Node("node-1".to_owned()))),
        (TargetKind::Node, true, Err(ErrorKind::Invalid)),
        (TargetKind::Instance, false, Err(ErrorKind::NotFound)),
    ] {
        let cloud = SimCloud::new();
        cloud.router().configure(|it| {
            it.targets = targets;
            it.traits = RouteTraits { target_ids: ids, ..it.traits.clone() };
        });
        let got = one(&cloud, create(1)).await;
        assert_eq!(got.map(|it| it.route.unwrap().target.unwrap()), expect, "{targets:?}");
    }
    let cloud = SimCloud::new();
    cloud.router().configure(|it| it.traits.families = vec![ccm_cloud::IpFamily::V6]);
    assert_eq!(one(&cloud, create(1)).await, Err(ErrorKind::Invalid));
}
