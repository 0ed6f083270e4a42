//! Everything crosses the wire unchanged: traits, answers, errors.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ccm_cloud::{
    Call, Cloud, CloudError, Detail, ErrorKind, InstanceTraits, Lookup, LookupResult, NodeIdentity,
    PowerState, Protocol, ProviderId, RouteTarget,
};
use ccm_sim::{
    cloud::{SimCloud, SimInstance, routes::TargetKind},
    faults::{Fault, FaultEffect, Trouble},
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::time::Instant;

use crate::{
    calls::{apply, cluster, create, ensure, gather, unwanted, wanted},
    place::{Wire, call},
};

/// The kinds of errors of all calls: only a change of a route may be `Pending`.
fn usual_kinds() -> Vec<ErrorKind> {
    ErrorKind::ALL.iter().copied().filter(|kind| *kind != ErrorKind::Pending).collect()
}

fn pick(random: &mut StdRng, most: usize) -> String {
    random.random_range(0..most).to_string()
}

/// Returns an instance with one of few names and UUIDs, so that all kinds of match occur.
fn instance(random: &mut StdRng, number: usize) -> SimInstance {
    let mut instance = SimInstance::numbered(number);
    instance.name = format!("n{}", pick(random, 30));
    instance.system_uuid = random.random_bool(0.5).then(|| format!("AB-{}", pick(random, 30)));
    instance.zone = random.random_bool(0.5).then(|| format!("zone {}", pick(random, 3)));
    instance.region = random.random_bool(0.5).then(|| format!("region {}", pick(random, 3)));
    instance.addresses.truncate(random.random_range(0..4));
    instance.labels.insert("k".to_owned(), pick(random, 3));
    if random.random_bool(0.3) {
        instance.pod_cidrs = ["10.244.7.0/24", "fd00:7::/64"].map(|it| it.parse().unwrap()).into();
    }
    let powers =
        [PowerState::Running, PowerState::Stopped, PowerState::Changing, PowerState::Unknown];
    instance.power = powers[random.random_range(0..4)];
    if random.random_bool(0.3) {
        let other = format!("sim:///{}", pick(random, 9));
        instance.other_ids.push(ProviderId::parse(&other).unwrap());
    }
    instance
}

fn node(random: &mut StdRng) -> NodeIdentity {
    let mut node = NodeIdentity::named(format!("n{}", pick(random, 40)));
    let number = pick(random, 60);
    node.provider_id = match random.random_range(0..8) {
        0 => Some(format!("sim://i-{number:0>5}")),
        1 => Some(format!("sim:///{}", pick(random, 9))),
        2 => Some(format!("aws://{number}")),
        3 => Some("nonsense \u{fffd} ü\n".to_owned()),
        4 => Some(String::new()),
        _ => None,
    };
    node.system_uuid = random.random_bool(0.4).then(|| format!("ab-{}", pick(random, 40)));
    node
}

#[tokio::test]
async fn the_transport_does_not_change_answers() {
    let wire = Wire::new(SimCloud::new()).await;
    let mut kinds = BTreeSet::new();
    for seed in 0..40 {
        let mut random = StdRng::seed_from_u64(seed);
        wire.sim.clear();
        for number in 0..random.random_range(0..60) {
            wire.sim.add(instance(&mut random, number));
        }
        let all = usual_kinds();
        let kind = all[usize::try_from(seed).unwrap() % all.len()];
        let error = CloudError::new(kind, format!("words of {seed}")).with_request_id("r");
        wire.sim.faults().clear();
        wire.sim
            .faults()
            .add(Fault::new(FaultEffect::FailNodes(vec!["n1".into(), "n7".into()], error)));
        let nodes: Vec<_> = (0..50).map(|_| node(&mut random)).collect();
        let direct = wire.sim.instances().unwrap().unwrap();
        let wired = wire.cloud.instances().unwrap().unwrap();
        let answers = direct.lookup(&nodes, Detail::Everything, call()).await;
        assert_eq!(wired.lookup(&nodes, Detail::Everything, call()).await, answers, "seed {seed}");
        assert_eq!(wired.list(call()).await, direct.list(call()).await, "seed {seed}");
        kinds.extend(answers.iter().map(kind_of));
    }
    assert_eq!(kinds.len(), 5, "the questions met every kind of answer: {kinds:?}");
}

fn kind_of(answer: &LookupResult) -> &'static str {
    match answer {
        Ok(Lookup::Found(_)) => "found",
        Ok(Lookup::Gone(_)) => "gone",
        Ok(Lookup::NotOurs(_)) => "not ours",
        Err(error) if error.kind == ErrorKind::Conflict => "conflict",
        Err(_) => "error",
    }
}

#[tokio::test]
async fn traits_arrive_whole() {
    let sim = SimCloud::new();
    sim.set_traits(InstanceTraits { lists: false, ..InstanceTraits::default() });
    sim.balancers().configure(|settings| {
        let traits = &mut settings.traits;
        (traits.lists, traits.stores_digest) = (false, false);
        (traits.wants_service, traits.member_ids, traits.max_batch) = (true, true, 1);
        (traits.asks_before_replacing, traits.protocols) = (false, vec![Protocol::Sctp]);
    });
    sim.router().configure(|settings| {
        let traits = &mut settings.traits;
        (traits.replaces, traits.several_targets) = (true, true);
        (traits.compares_version, traits.max_batch) = (true, 7);
    });
    let wire = Wire::new(sim).await;
    let instances = wire.cloud.instances().unwrap().unwrap();
    assert!(!instances.traits().lists);
    assert_eq!(instances.list(call()).await.unwrap_err().kind, ErrorKind::Unsupported);
    let balancers = wire.cloud.load_balancers().unwrap().unwrap();
    assert_eq!(balancers.traits(), wire.sim.balancers().settings().traits);
    let routes = wire.cloud.routes().unwrap().unwrap();
    assert_eq!(routes.traits(), wire.sim.router().settings().traits);
    assert_eq!(wire.sim.calls().list, 0, "a list that does not exist is not asked for");
}

#[tokio::test]
async fn targets_arrive_whole() {
    let instance = RouteTarget::Instance("sim://i-1".to_owned().try_into().unwrap());
    for (targets, expect) in [
        (TargetKind::Instance, instance),
        (TargetKind::Node, RouteTarget::Node("node-1".to_owned())),
    ] {
        let sim = SimCloud::new();
        sim.router().configure(|it| it.targets = targets);
        sim.add(SimInstance::new("i-1", "node-1"));
        let wire = Wire::new(sim).await;
        let made = apply(&wire.cloud, &[create(1)], None, call()).await.remove(0).unwrap();
        assert_eq!(made.route.unwrap().target, Some(expect.clone()));
        let routes = wire.cloud.routes().unwrap().unwrap();
        let found = gather(routes.find_targets(&[expect], call()), 1).await;
        assert_eq!(found, [Ok(ccm_cloud::TargetState::Exists)]);
    }
}

/// An error of a whole call, and of each item.
#[tokio::test]
async fn errors_arrive_whole() {
    let wire = Wire::new(SimCloud::new()).await;
    let instances = wire.cloud.instances().unwrap().unwrap();
    let nodes = [0, 1].map(|number| NodeIdentity::named(format!("node-{number:05}")));
    let web = [wanted("web")];
    for kind in usual_kinds() {
        let bare =
            CloudError::new(kind, format!("the cloud's words about {kind}, ünïcödé included"));
        let rich =
            bare.clone().with_request_id("req-4711").with_retry_after(Duration::from_millis(2500));
        for error in [bare, rich.clone()] {
            let fault = wire.sim.faults().add(Fault::new(FaultEffect::Error(error.clone())));
            let answers = instances.lookup(&nodes, Detail::Everything, call()).await;
            assert_eq!(answers, [Err(error.clone()), Err(error.clone())]);
            assert_eq!(instances.list(call()).await, Err(error.clone()));
            assert_eq!(wire.cloud.health(call()).await, Err(error));
            assert!(wire.sim.faults().remove(fault));
        }
        for error in [rich.clone().about("floatingip"), rich.that_may_be_done()] {
            let trouble = Trouble::Fail(error.clone());
            wire.sim
                .faults()
                .add(Fault::new(FaultEffect::LoadBalancers(Vec::new(), trouble.clone())));
            wire.sim.faults().add(Fault::new(FaultEffect::Routes(Vec::new(), trouble)));
            assert_eq!(ensure(&wire.cloud, &web, call()).await, [Err(error.clone())]);
            let balancers = wire.cloud.load_balancers().unwrap().unwrap();
            let previews = gather(balancers.preview(&web, call()), 1).await;
            assert_eq!(previews, [Err(error.clone())]);
            let deletions = gather(balancers.delete(&[unwanted("web")], call()), 1).await;
            assert_eq!(deletions, [Err(error.clone())]);
            assert_eq!(apply(&wire.cloud, &[create(1)], None, call()).await, [Err(error)]);
            wire.sim.faults().clear();
        }
    }
    let pending = CloudError::new(ErrorKind::Pending, "the cloud works on it");
    let trouble = Trouble::Fail(pending.clone());
    wire.sim.faults().add(Fault::new(FaultEffect::Routes(Vec::new(), trouble)));
    assert_eq!(apply(&wire.cloud, &[create(1)], None, call()).await, [Err(pending)]);
    assert!(wire.sim.balancers().all().is_empty() && wire.sim.router().is_empty());
}

#[tokio::test]
async fn a_deadline_holds() {
    let wire = Wire::new(SimCloud::new()).await;
    let nodes: Vec<_> =
        (0..600).map(|number| NodeIdentity::named(format!("node-{number:05}"))).collect();
    wire.sim.faults().add(Fault::new(FaultEffect::Hang));
    let hasty = || Call::routine(Duration::from_millis(250));
    let (cloud, instances) = (Arc::clone(&wire.cloud), wire.cloud.instances().unwrap().unwrap());
    let is_timeout = |error: CloudError, maybe_done| {
        assert_eq!((error.kind, error.maybe_done), (ErrorKind::Timeout, maybe_done), "{error}");
    };
    let started = Instant::now();
    for answer in instances.lookup(&nodes, Detail::Everything, hasty()).await {
        is_timeout(answer.unwrap_err(), false);
    }
    is_timeout(instances.list(hasty()).await.unwrap_err(), false);
    is_timeout(cloud.health(hasty()).await.unwrap_err(), false);
    let web = [wanted("web")];
    is_timeout(ensure(&cloud, &web, hasty()).await.remove(0).unwrap_err(), true);
    let balancers = cloud.load_balancers().unwrap().unwrap();
    let preview = gather(balancers.preview(&web, hasty()), 1).await.remove(0);
    is_timeout(preview.unwrap_err(), false);
    is_timeout(apply(&cloud, &[create(1)], None, hasty()).await.remove(0).unwrap_err(), true);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    wire.sim.faults().clear();
    // A timeout of zero fails without a call.
    wire.sim.reset_calls();
    is_timeout(cloud.health(Call::waiting(Duration::ZERO)).await.unwrap_err(), false);
    assert_eq!(wire.sim.calls().total(), 0);
    assert_eq!(cloud.health(call()).await, Ok(()), "the next call is not held up");
    assert_eq!(cloud.health(Call::waiting(Duration::MAX)).await, Ok(()));
    let routes = cloud.routes().unwrap().unwrap();
    assert!(routes.list(&cluster(), call()).await.is_ok());
}
