//! Large calls have several messages, and each item has its own answer.

use std::time::Duration;

use ccm_cloud::{
    Call, CloudError, Depth, Detail, ErrorKind, NodeIdentity, Progress, RouteTarget, RouteTraits,
    Scope, TargetState,
};
use ccm_sim::{
    cloud::{
        Operation, RouteCalls, SimCloud, SimInstance, balancers::SimBalancer, routes::SimRoute,
    },
    faults::{Fault, FaultEffect, Trouble},
};
use futures::StreamExt as _;
use ipnet::IpNet;
use tokio::time::Instant;

use crate::{
    calls::{apply, cluster, create, ensure, gather, wanted},
    place::{Wire, call},
};

fn kinds<T>(answers: Vec<Result<T, CloudError>>) -> Vec<Option<ErrorKind>> {
    answers.into_iter().map(|answer| answer.err().map(|error| error.kind)).collect()
}

#[tokio::test]
async fn large_lookups_are_split_and_counted() {
    let wire = Wire::new(SimCloud::new()).await;
    let instances = wire.cloud.instances().unwrap().unwrap();
    let known = wire.sim.add_many(0, 1203);
    let nodes: Vec<_> = known.iter().map(|instance| NodeIdentity::named(&instance.name)).collect();
    wire.sim.reset_calls();
    for (count, calls) in [(1, 1), (500, 1), (501, 2), (1203, 3)] {
        let answers = instances.lookup(&nodes[..count], Detail::Everything, call()).await;
        assert!(answers.len() == count && answers.iter().all(Result::is_ok));
        let counted = wire.sim.reset_calls();
        assert_eq!((counted.lookup, counted.total()), (calls, calls), "{count} nodes");
        assert_eq!(counted.nodes_looked_up, u64::try_from(count).unwrap());
    }
    // One refused part affects only its own nodes.
    let refused = Fault::new(FaultEffect::Unavailable).on(Operation::Lookup).after(1).times(1);
    wire.sim.faults().add(refused);
    let answers = instances.lookup(&nodes, Detail::Everything, call()).await;
    let failed: Vec<_> = answers.iter().map(Result::is_err).collect();
    let parts: Vec<_> =
        failed.chunks(500).map(|part| part.iter().filter(|failed| **failed).count()).collect();
    assert!(parts == [0, 500, 0] || parts == [500, 0, 0] || parts == [0, 0, 203], "{parts:?}");
}

/// An incomplete list is an error.
#[tokio::test]
async fn lists_are_read_page_by_page() {
    let wire = Wire::new(SimCloud::new()).await;
    let instances = wire.cloud.instances().unwrap().unwrap();
    let mut count = 0;
    for (more, pages) in [(0, 1), (499, 1), (1, 1), (1, 2), (1202, 4)] {
        wire.sim.add_many(count, more);
        count += more;
        wire.sim.reset_calls();
        let fleet = instances.list(call()).await.unwrap();
        assert_eq!((fleet.instances.len(), fleet.malformed), (count, Vec::new()));
        let calls = wire.sim.reset_calls();
        assert_eq!((calls.list, calls.total()), (pages, pages), "{count} instances");
    }
    let balancers = wire.cloud.load_balancers().unwrap().unwrap();
    for number in 0..501 {
        let id = format!("lb {number:04}");
        wire.sim.balancers().add(SimBalancer::foreign(id, [10, 0, 0, 1].into(), 80));
    }
    let cluster = cluster();
    let list = || balancers.list(&cluster, Scope::All, Depth::Summary, call());
    assert_eq!(list().await.unwrap().load_balancers.len(), 501);
    assert_eq!(wire.sim.reset_calls().load_balancers.list, 2);
    let routes = wire.cloud.routes().unwrap().unwrap();
    let blocks = IpNet::new_assert([10, 0, 0, 0].into(), 8).subnets(24).unwrap();
    for (number, block) in blocks.take(1_100).enumerate() {
        let target = RouteTarget::Node(format!("n{number}"));
        wire.sim.router().add(SimRoute::foreign(format!("r{number}"), block, target));
    }
    let expect: Vec<_> = wire.sim.router().all().iter().map(SimRoute::describe).collect();
    assert_eq!(routes.list(&cluster, call()).await.unwrap().routes, expect);
    let three = RouteCalls { list: 3, ..RouteCalls::default() };
    assert_eq!(wire.sim.reset_calls().routes, three);
    for pages in 1..3 {
        wire.sim.faults().clear();
        wire.sim.faults().add(Fault::new(FaultEffect::Unavailable).after(pages));
        let error = routes.list(&cluster, call()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
    }
    wire.sim.faults().clear();
    wire.sim.faults().add(Fault::new(FaultEffect::Unavailable).after(1));
    assert_eq!(list().await.unwrap_err().kind, ErrorKind::Unavailable);
    wire.sim.faults().clear();
    wire.sim.faults().add(Fault::new(FaultEffect::Unavailable).after(2));
    assert_eq!(instances.list(call()).await.unwrap_err().kind, ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_batch_is_one_call() {
    let wire = Wire::new(SimCloud::new()).await;
    wire.sim.reset_calls();
    ensure(&wire.cloud, &["a", "b", "c"].map(wanted), call()).await;
    let calls = wire.sim.reset_calls();
    assert_eq!((calls.load_balancers.ensure, calls.load_balancers.items, calls.total()), (1, 3, 1));
    let all: Vec<_> = (0..500).map(create).collect();
    assert!(apply(&wire.cloud, &all, None, call()).await.iter().all(Result::is_ok));
    let calls = wire.sim.reset_calls().routes;
    assert_eq!(calls, RouteCalls { apply: 1, items: 500, ..RouteCalls::default() });
    wire.sim.add(SimInstance::new("i-1", "one"));
    let all: Vec<_> = (0..1_200).map(|number| RouteTarget::Node(format!("n{number}"))).collect();
    let routes = wire.cloud.routes().unwrap().unwrap();
    gather(routes.find_targets(&all, call()), all.len()).await;
    let calls = wire.sim.reset_calls().routes;
    assert_eq!((calls.find_targets, calls.items), (3, 1_200));
}

/// The parts of a large call are sent at the same time: no part sees the items of another one.
#[tokio::test]
async fn an_owner_has_one_item_in_all_parts_of_a_call() {
    let sim = SimCloud::new();
    sim.balancers().configure(|settings| settings.traits.max_batch = 1);
    let wire = Wire::new(sim).await;
    let all = ["web", "api", "web", "db", "api"].map(wanted);
    wire.sim.reset_calls();
    let answers = kinds(ensure(&wire.cloud, &all, call()).await);
    let second = Some(ErrorKind::Invalid);
    assert_eq!(answers, [None, None, second, None, second]);
    assert_eq!(wire.sim.reset_calls().load_balancers.items, 3);
    assert_eq!(wire.sim.balancers().all().len(), 3);
}

/// Each message about routes is compared with the version after the previous one, and a destination
/// has one change in all of them.
#[tokio::test]
async fn a_call_that_is_too_large_has_several_messages() {
    let sim = SimCloud::new();
    sim.router().configure(|it| {
        it.traits = RouteTraits { max_batch: 2, compares_version: true, ..it.traits.clone() };
    });
    let wire = Wire::new(sim).await;
    let version = || wire.sim.router().version().to_string();
    wire.sim.reset_calls();
    let all = [1, 2, 1, 3, 4, 2, 5].map(create);
    let answers = apply(&wire.cloud, &all, Some(&version()), call()).await;
    let invalid = Some(ErrorKind::Invalid);
    assert_eq!(kinds(answers), [None, None, invalid, None, None, invalid, None]);
    let calls = wire.sim.calls().routes;
    assert_eq!((calls.apply, calls.items, wire.sim.router().version()), (3, 5, 3));
    // Others change the table between two messages.
    let names = vec![create(8).destination().to_string()];
    wire.sim.faults().add(Fault::new(FaultEffect::Routes(names, Trouble::Overtake)));
    let answers = apply(&wire.cloud, &[6, 7, 8, 9].map(create), Some(&version()), call()).await;
    let busy = Some(ErrorKind::Busy);
    assert_eq!(kinds(answers), [None, None, busy, busy]);
}

/// An item that is never answered delays no other one.
#[tokio::test]
async fn an_item_that_hangs_affects_no_others() {
    let wire = Wire::new(SimCloud::new()).await;
    let (time, names) = (Duration::from_secs(2), ["a", "b", "c", "d"]);
    let late = Some(ErrorKind::Timeout);
    wire.sim
        .faults()
        .add(Fault::new(FaultEffect::LoadBalancers(vec!["default/b".to_owned()], Trouble::Hang)));
    wire.sim.faults().add(Fault::new(FaultEffect::Routes(
        vec!["10.244.1.0/24".to_owned(), "10.0.0.1".to_owned()],
        Trouble::Hang,
    )));
    let (all, started) = (names.map(wanted), Instant::now());
    let balancers = wire.cloud.load_balancers().unwrap().unwrap();
    let mut answers = balancers.ensure(&all, Call::waiting(time));
    while let Some((item, answer)) = answers.next().await {
        match item {
            1 => {
                let error = answer.unwrap_err();
                assert_eq!((error.kind, error.maybe_done), (ErrorKind::Timeout, true));
            }
            _ => {
                assert!(matches!(answer, Ok(Progress::Done(_))), "{item}: {answer:?}");
                assert!(started.elapsed() < time / 2, "{item} waited");
            }
        }
    }
    let (all, routes) = ([0, 1, 2, 3].map(create), wire.cloud.routes().unwrap().unwrap());
    let answers = apply(&wire.cloud, &all, None, Call::waiting(time / 4)).await;
    assert!(answers[1].as_ref().is_err_and(|error| error.maybe_done), "{answers:?}");
    assert_eq!(kinds(answers), [None, late, None, None]);
    wire.sim.router().add_port([10, 0, 0, 2].into());
    let targets = [0, 1, 2, 3].map(|number| RouteTarget::Address([10, 0, 0, number].into()));
    let answers = gather(routes.find_targets(&targets, Call::waiting(time / 4)), 4).await;
    assert_eq!(answers[2], Ok(TargetState::Exists));
    assert!(answers[1].as_ref().is_err_and(|error| !error.maybe_done), "it is a read");
    assert_eq!(kinds(answers), [None, late, None, None]);
}
