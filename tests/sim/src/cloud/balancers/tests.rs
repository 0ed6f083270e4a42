use std::{sync::Arc, time::Duration};

use ccm_cloud::{
    Call, ClusterId, Cure, Depth, IpFamily, LoadBalancers, Members, Owner, Phase, Progress, Scope,
    Unwanted, Wanted,
};
use futures::StreamExt as _;

use super::*;
use crate::{
    cloud::SimCloud,
    faults::{Fault, FaultEffect, Trouble},
};

fn call() -> Call {
    Call::waiting(Duration::from_secs(30))
}

fn wanted(name: &str) -> Wanted {
    let owner = Owner {
        cluster: ClusterId { name: "c".to_owned(), uid: "c".to_owned() },
        uid: name.to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
    };
    let front_end = plain_front_end(owner, vec![plain_port(80, 30080)]);
    let front_end = Arc::new(front_end);
    Wanted {
        front_end,
        members: Members::default(),
        known: None,
        adopt: None,
        shown: Vec::new(),
        may_replace: true,
    }
}

async fn ensure(cloud: &SimCloud, wanted: &Wanted) -> Progress<ccm_cloud::LoadBalancer> {
    let answers: Vec<_> = cloud.ensure(std::slice::from_ref(wanted), call()).collect().await;
    answers.into_iter().next().unwrap().1.unwrap()
}

async fn phase(cloud: &SimCloud) -> Phase {
    let cluster = wanted("a").front_end.owner.cluster.clone();
    let list = LoadBalancers::list(cloud, &cluster, Scope::All, Depth::Summary, call()).await;
    list.unwrap().load_balancers.remove(0).phase
}

#[tokio::test(start_paused = true)]
async fn work_takes_its_configured_time() {
    let cloud = SimCloud::new();
    let (thirty, five) = (Duration::from_secs(30), Duration::from_secs(5));
    cloud.balancers().configure(|settings| {
        settings.times = Times { create: thirty, delete: five, ..Times::default() };
    });
    let web = wanted("a");
    assert!(matches!(ensure(&cloud, &web).await, Progress::InProgress(_)));
    tokio::time::advance(thirty - Duration::from_millis(1)).await;
    assert!(matches!(phase(&cloud).await, Phase::Pending(_)));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(phase(&cloud).await, Phase::Ready);
    let Progress::Done(balancer) = ensure(&cloud, &web).await else { panic!("not done") };
    assert_eq!(balancer.age, Some(thirty));
    let unwanted = [Unwanted {
        owner: web.front_end.owner.clone(),
        known: None,
        duplicate: false,
        settings: Some(BTreeMap::new()),
        address: None,
        service: None,
    }];
    let delete = || async { cloud.delete(&unwanted, call()).next().await.unwrap().1.unwrap() };
    assert!(matches!(delete().await, Progress::InProgress(_)));
    tokio::time::advance(five).await;
    assert_eq!(cloud.balancers().all(), []);
    assert!(matches!(delete().await, Progress::Done(_)));
    let kinds: Vec<_> = cloud.balancers().writes().into_iter().map(|write| write.kind).collect();
    assert_eq!(kinds, [WriteKind::Create, WriteKind::Delete]);
}

#[tokio::test(start_paused = true)]
async fn a_stuck_load_balancer_stays_pending_and_a_broken_one_fails_after_its_time() {
    let cloud = SimCloud::new();
    cloud.balancers().configure(|settings| settings.times.create = Duration::from_secs(10));
    let trouble = |trouble| Fault::new(FaultEffect::LoadBalancers(Vec::new(), trouble));
    cloud.faults().add(trouble(Trouble::Stick).times(1));
    ensure(&cloud, &wanted("a")).await;
    tokio::time::advance(Duration::from_hours(24)).await;
    assert!(matches!(phase(&cloud).await, Phase::Pending(_)));
    cloud.balancers().remove("lb-00001");
    cloud.faults().add(trouble(Trouble::Break(Cure::Person)).times(1));
    ensure(&cloud, &wanted("b")).await;
    assert!(matches!(phase(&cloud).await, Phase::Pending(_)));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(matches!(phase(&cloud).await, Phase::Failed { cure: Cure::Person, .. }));
}

#[tokio::test(start_paused = true)]
async fn addresses_are_unique_and_of_the_wanted_families() {
    let cloud = SimCloud::new();
    cloud.balancers().configure(|settings| settings.traits.dual_stack = true);
    let mut seen = BTreeSet::new();
    for number in 0..300 {
        let mut one = wanted(&number.to_string());
        Arc::make_mut(&mut one.front_end).families = vec![IpFamily::V6, IpFamily::V4];
        ensure(&cloud, &one).await;
        let balancer = cloud.balancers().of(&one.front_end.owner).remove(0);
        assert_eq!(balancer.families(), [IpFamily::V6, IpFamily::V4]);
        seen.extend(balancer.addresses);
    }
    assert_eq!(seen.len(), 600);
    // A family goes, and the address of the other stays.
    let mut one = wanted("7");
    let before = cloud.balancers().of(&one.front_end.owner).remove(0).addresses;
    Arc::make_mut(&mut one.front_end).families = vec![IpFamily::V4];
    ensure(&cloud, &one).await;
    assert_eq!(cloud.balancers().of(&one.front_end.owner)[0].addresses, before[1..]);
    cloud.balancers().configure(|settings| settings.hostnames = true);
    let Progress::Done(balancer) = ensure(&cloud, &one).await else { panic!("not done") };
    let name = ccm_cloud::IngressAddress::Hostname(format!("{}.sim.example", balancer.id));
    assert_eq!(balancer.ingress[0].address, name);
}

/// A frozen leader's creation arrives after its successor's.
#[tokio::test(start_paused = true)]
async fn a_late_write_finds_another_world() {
    for (fences, count) in [(false, 2), (true, 1)] {
        let cloud = SimCloud::new();
        cloud.balancers().configure(|settings| settings.fences = fences);
        let minute = Duration::from_secs(60);
        let late = FaultEffect::LoadBalancers(Vec::new(), Trouble::Late(minute));
        cloud.faults().add(Fault::new(late).times(1));
        let web = wanted("a");
        let ensure_in = async |term| {
            let call = call().in_term(Some(term));
            cloud.ensure(std::slice::from_ref(&web), call).next().await.unwrap().1
        };
        assert!(ensure_in(1).await.unwrap_err().maybe_done);
        assert_eq!(cloud.balancers().all(), []);
        assert!(matches!(ensure_in(2).await, Ok(Progress::Done(_))));
        tokio::time::advance(minute - Duration::from_millis(1)).await;
        assert_eq!(cloud.balancers().all().len(), 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(cloud.balancers().written(WriteKind::Create), count);
        let terms: Vec<_> = cloud.balancers().writes().iter().map(|write| write.term).collect();
        assert_eq!(terms, [Some(2), Some(1)][..count]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_ensure_overlooks_is_made_again_unless_the_call_names_it_or_the_cloud_refuses() {
    for (by_id, names_it, fences, expect) in [
        (false, false, false, 2),
        (false, true, false, 1),
        (true, true, false, 2),
        (true, true, true, 1),
    ] {
        let cloud = SimCloud::new();
        cloud.balancers().configure(|settings| settings.fences = fences);
        let mut web = wanted("a");
        ensure(&cloud, &web).await;
        web.known = names_it.then(|| cloud.balancers().all()[0].id.clone());
        let overlook = FaultEffect::LoadBalancers(Vec::new(), Trouble::Overlook { by_id });
        cloud.faults().add(Fault::new(overlook).times(1));
        for _ in 0..2 {
            ensure(&cloud, &web).await;
        }
        assert_eq!(cloud.balancers().all().len(), expect, "{by_id} {names_it} {fences}");
    }
}
