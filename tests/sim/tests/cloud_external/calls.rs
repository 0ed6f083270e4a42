//! Calls about load balancers and routes, and their values.

use std::{collections::BTreeMap, sync::Arc};

use ccm_cloud::{
    AddressKind, Answers, AppliedChange, Call, Cloud, CloudError, ClusterId, LoadBalancer, Members,
    NodeAddress, NodeIdentity, Owner, Progress, RouteChange, Unwanted, Wanted, WantedRoute,
};
use ccm_sim::cloud::balancers::{plain_front_end, plain_port};
use futures::StreamExt as _;

pub fn cluster() -> ClusterId {
    ClusterId { name: "c".to_owned(), uid: "c".to_owned() }
}

fn owner(namespace: &str, name: &str) -> Owner {
    let (uid, name) = (name.to_owned(), name.to_owned());
    Owner { cluster: cluster(), uid, namespace: namespace.to_owned(), name }
}

pub fn wanted(name: &str) -> Wanted {
    Wanted {
        front_end: plain_front_end(owner("default", name), vec![plain_port(80, 30080)]).into(),
        members: Members::default(),
        known: None,
        adopt: None,
        shown: Vec::new(),
        may_replace: true,
    }
}

pub fn unwanted(name: &str) -> Unwanted {
    Unwanted {
        owner: owner("default", name),
        known: None,
        duplicate: false,
        settings: Some(BTreeMap::new()),
        address: None,
        service: None,
    }
}

/// Returns the route of a node to 10.244.N.0/24.
pub fn create(number: u16) -> RouteChange {
    let [high, low] = number.to_be_bytes();
    let name = format!("node-{number}");
    RouteChange::Create(Arc::new(WantedRoute {
        owner: owner("", &name),
        destination: format!("10.{}.{low}.0/24", 244 + u32::from(high)).parse().unwrap(),
        node: NodeIdentity::named(&name),
        addresses: vec![NodeAddress::new(AddressKind::InternalIp, format!("10.0.{high}.{low}"))],
    }))
}

/// Returns all answers, in order. Each item must have one.
pub async fn gather<T>(answers: Answers<'_, T>, items: usize) -> Vec<Result<T, CloudError>> {
    let mut answers: Vec<_> = answers.collect().await;
    answers.sort_by_key(|(item, _)| *item);
    assert!(answers.iter().map(|(item, _)| *item).eq(0..items), "one answer for each item");
    answers.into_iter().map(|(_, answer)| answer).collect()
}

pub async fn ensure(
    cloud: &Arc<dyn Cloud>,
    wanted: &[Wanted],
    call: Call,
) -> Vec<Result<Progress<LoadBalancer>, CloudError>> {
    let balancers = cloud.load_balancers().unwrap().unwrap();
    gather(balancers.ensure(wanted, call), wanted.len()).await
}

pub async fn apply(
    cloud: &Arc<dyn Cloud>,
    changes: &[RouteChange],
    base: Option<&str>,
    call: Call,
) -> Vec<Result<AppliedChange, CloudError>> {
    let routes = cloud.routes().unwrap().unwrap();
    gather(routes.apply(&cluster(), changes, base, call), changes.len()).await
}
