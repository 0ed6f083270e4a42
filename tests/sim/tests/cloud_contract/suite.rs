//! The promises, one function each.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{
    AddressKind, Call, Claim, CloudError, Detail, ErrorKind, Fleet, Instance, InstanceTraits,
    Instances, Lookup, NodeAddress, NodeIdentity, OpenGate, PowerState, ProofMethod, ProviderId,
};
use ccm_sim::{
    cloud::{Operation, SimCloud, SimInstance},
    faults::{Effect, Fault},
};
use tokio::time::Instant;

use crate::rig::{Rig, Way};

/// A call with a generous timeout.
pub fn call() -> Call {
    Call::waiting(Duration::from_secs(20))
}

fn instances(rig: &Rig) -> Arc<dyn Instances> {
    rig.cloud.instances().unwrap().expect("instances are offered")
}

async fn look(rig: &Rig, node: NodeIdentity) -> Result<Lookup, CloudError> {
    let mut answers = instances(rig).lookup(&[node], Detail::Everything, call()).await;
    assert_eq!(answers.len(), 1);
    answers.remove(0)
}

#[expect(clippy::unnecessary_wraps, reason = "it is compared with whole answers")]
fn found(instance: &SimInstance) -> Result<Lookup, CloudError> {
    Ok(Lookup::Found(Box::new(instance.describe())))
}

fn with_id(name: &str, id: &str) -> NodeIdentity {
    NodeIdentity { provider_id: Some(id.to_owned()), ..NodeIdentity::named(name) }
}

pub async fn claims_by_scheme(way: Way) {
    let rig = Rig::new(way).await;
    assert_eq!(rig.cloud.schemes(), ["sim"]);
    for (id, expect) in [
        (Some("sim://i-1"), Claim::Ours),
        (Some("aws:///i-1"), Claim::Foreign),
        (Some("simulated://i-1"), Claim::Foreign),
        (Some("node0.aws.12345"), Claim::Foreign),
        (Some(""), Claim::Unclaimed),
        (None, Claim::Unclaimed),
    ] {
        assert_eq!(rig.cloud.claim(id), expect, "{id:?}");
    }
    assert_eq!(rig.cloud.health(call()).await, Ok(()));
}

pub async fn finds_by_id_then_uuid_then_name(way: Way) {
    let rig = Rig::new(way).await;
    let [one, two] = [1, 2].map(SimInstance::numbered);
    let mut spelt = SimInstance::new("i-3", "twin");
    spelt.other_ids = vec![ProviderId::parse("sim:///old-3").unwrap()];
    let twin = SimInstance::new("i-4", "twin");
    for instance in [&one, &two, &spelt, &twin] {
        rig.sim.add(instance.clone());
    }

    let uuid = |name: &str, of: &SimInstance| NodeIdentity {
        system_uuid: of.system_uuid.as_ref().map(|uuid| uuid.to_uppercase()),
        ..NodeIdentity::named(name)
    };
    // The ID decides, whatever name and UUID say.
    let contradicting =
        NodeIdentity { provider_id: Some("sim://i-00002".to_owned()), ..uuid("node-00001", &one) };
    assert_eq!(look(&rig, contradicting).await, found(&two));
    assert_eq!(look(&rig, with_id("renamed", "sim:///old-3")).await, found(&spelt));
    assert_eq!(look(&rig, uuid("renamed", &one)).await, found(&one));
    assert_eq!(look(&rig, uuid("node-00002", &one)).await, found(&one));
    assert_eq!(look(&rig, NodeIdentity::named("node-00002")).await, found(&two));

    for (node, method, what) in [
        (with_id("node-00001", "sim://i-9"), ProofMethod::ById, "sim://i-9"),
        (NodeIdentity::named("node-00009"), ProofMethod::ByName, "node-00009"),
        (NodeIdentity::named("node-0000"), ProofMethod::ByName, "node-0000"),
        (NodeIdentity::named("NODE-00001"), ProofMethod::ByName, "NODE-00001"),
        (uuid("node-00009", &SimInstance::numbered(9)), ProofMethod::ByName, "node-00009"),
    ] {
        let Ok(Lookup::Gone(proof)) = look(&rig, node.clone()).await else {
            panic!("{node:?} is not gone")
        };
        assert_eq!(proof.method, method);
        assert!(proof.evidence.contains(what), "{proof:?}");
    }
    for id in ["aws:///i-00001", "nonsense"] {
        let Ok(Lookup::NotOurs(reason)) = look(&rig, with_id("node-00001", id)).await else {
            panic!("{id} is ours")
        };
        assert!(reason.contains(id), "{reason}");
    }
    let error = look(&rig, NodeIdentity::named("twin")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(error.message.contains("i-3") && error.message.contains("i-4"), "{error}");
    assert_eq!(look(&rig, with_id("twin", "sim://i-4")).await, found(&twin));
}

pub async fn returns_all_fields_of_an_instance(way: Way) {
    let rig = Rig::new(way).await;
    let mut rich = SimInstance::numbered(7);
    rich.other_ids = vec![ProviderId::parse("sim:///7").unwrap()];
    rich.pod_cidrs = ["10.244.7.0/24", "fd00:7::/64"].map(|one| one.parse().unwrap()).to_vec();
    rich.labels = [
        ("topology.example.com/rack".to_owned(), "r-17".to_owned()),
        ("empty".to_owned(), String::new()),
    ]
    .into();
    rich.addresses = [
        (AddressKind::ExternalIp, "2001:db8::7"),
        (AddressKind::InternalIp, "10.0.0.7"),
        (AddressKind::InternalIp, "10.0.0.6"),
        (AddressKind::InternalDns, "seven.internal"),
        (AddressKind::ExternalDns, "seven.example.com"),
        (AddressKind::Hostname, "seven"),
    ]
    .map(|(kind, address)| NodeAddress::new(kind, address))
    .to_vec();
    for power in
        [PowerState::Running, PowerState::Stopped, PowerState::Changing, PowerState::Unknown]
    {
        rich.power = power;
        rig.sim.add(rich.clone());
        let Ok(Lookup::Found(got)) = look(&rig, NodeIdentity::named(&rich.name)).await else {
            panic!("not found")
        };
        let expect = Instance {
            provider_id: ProviderId::parse("sim://i-00007").unwrap(),
            other_ids: rich.other_ids.clone(),
            name: "node-00007".to_owned(),
            instance_type: Some("sim.medium".to_owned()),
            zone: Some("sim-1b".to_owned()),
            region: Some("sim-1".to_owned()),
            addresses: rich.addresses.clone(),
            labels: rich.labels.clone(),
            power,
            pod_cidrs: rich.pod_cidrs.clone(),
            withheld: None,
        };
        assert_eq!(*got, expect);
        assert_eq!(instances(&rig).list(call()).await.unwrap().instances, [expect]);
    }
    // An answer with almost no data is complete, too.
    rig.sim.clear();
    rig.sim.add(SimInstance::new("bare", "bare"));
    assert_eq!(
        look(&rig, NodeIdentity::named("bare")).await,
        found(&SimInstance::new("bare", "bare"))
    );
}

pub async fn answers_each_node_by_itself_and_in_order(way: Way) {
    let rig = Rig::new(way).await;
    let known = rig.sim.add_many(0, 40);
    let error = CloudError::new(ErrorKind::Forbidden, "not this one").with_request_id("req-3");
    rig.sim
        .faults()
        .add(Fault::new(Effect::FailNodes(vec!["node-00003".to_owned()], error.clone())));
    let mut nodes: Vec<_> =
        (0..60).rev().map(|number| NodeIdentity::named(format!("node-{number:05}"))).collect();
    nodes[5].provider_id = Some("aws:///x".to_owned());
    let answers = instances(&rig).lookup(&nodes, Detail::Everything, call()).await;
    assert_eq!(answers.len(), nodes.len());
    for (number, (node, answer)) in (0..60).rev().zip(nodes.iter().zip(answers)) {
        match (number, answer) {
            (3, answer) => assert_eq!(answer, Err(error.clone())),
            (54, answer) => {
                assert!(matches!(answer, Ok(Lookup::NotOurs(_))), "{node:?}: {answer:?}");
            }
            (40.., answer) => {
                assert!(matches!(answer, Ok(Lookup::Gone(_))), "{node:?}: {answer:?}");
            }
            (_, answer) => assert_eq!(answer, found(&known[number])),
        }
    }
    assert_eq!(instances(&rig).lookup(&[], Detail::Everything, call()).await, []);
}

pub async fn large_lookups_are_split_and_counted(way: Way) {
    let rig = Rig::new(way).await;
    let known = rig.sim.add_many(0, 1203);
    let nodes: Vec<_> = known.iter().map(|instance| NodeIdentity::named(&instance.name)).collect();
    rig.sim.reset_calls();
    for (count, calls) in [(1, 1), (500, 1), (501, 2), (1203, 3)] {
        let answers = instances(&rig).lookup(&nodes[..count], Detail::Everything, call()).await;
        assert!(answers.iter().zip(&known).all(|(answer, instance)| *answer == found(instance)));
        assert_eq!(answers.len(), count);
        let counted = rig.sim.reset_calls();
        assert_eq!((counted.lookup, counted.total()), (calls, calls), "{count} nodes");
        assert_eq!(counted.nodes_looked_up, u64::try_from(count).unwrap());
    }
    // One refused part affects only its own nodes.
    let unavailable = Effect::Unavailable;
    rig.sim.faults().add(Fault::new(unavailable.clone()).on(Operation::Lookup).after(1).times(1));
    let answers = instances(&rig).lookup(&nodes, Detail::Everything, call()).await;
    let failed: Vec<_> = answers.iter().map(Result::is_err).collect();
    let parts: Vec<_> =
        failed.chunks(500).map(|part| part.iter().filter(|failed| **failed).count()).collect();
    assert_eq!(parts.iter().filter(|failed| **failed == 0).count(), 2, "{parts:?}");
    assert!(parts == [0, 500, 0] || parts == [500, 0, 0] || parts == [0, 0, 203], "{parts:?}");
}

pub async fn lists_page_by_page(way: Way) {
    let rig = Rig::new(way).await;
    let mut count = 0;
    for (more, pages) in [(499, 1), (1, 1), (1, 2), (1202, 4)] {
        rig.sim.add_many(count, more);
        count += more;
        rig.sim.reset_calls();
        let fleet = instances(&rig).list(call()).await.unwrap();
        assert_eq!(fleet.malformed, [""; 0]);
        let expect: Vec<_> =
            (0..count).map(|number| SimInstance::numbered(number).describe()).collect();
        assert!(fleet.instances == expect, "{count} instances");
        let calls = rig.sim.reset_calls();
        assert_eq!((calls.list, calls.total()), (pages, pages), "{count} instances");
    }
    rig.sim.faults().add(Fault::new(Effect::Unavailable).on(Operation::List).after(2).times(1));
    let error = instances(&rig).list(call()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "an incomplete list is an error");
    assert_eq!(instances(&rig).list(call()).await.unwrap().instances.len(), count);
}

pub async fn a_provider_without_a_list(way: Way) {
    let sim = SimCloud::new();
    sim.set_traits(InstanceTraits { lists: false, ..InstanceTraits::default() });
    sim.add_many(0, 2);
    let rig = Rig::of(sim, way, Arc::new(OpenGate)).await;
    assert!(!instances(&rig).traits().lists);
    let error = instances(&rig).list(call()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert_eq!(rig.sim.calls().list, 0);
    let known = SimInstance::numbered(1);
    assert_eq!(look(&rig, with_id("node-00001", "sim://i-00001")).await, found(&known));
    let Ok(Lookup::Gone(proof)) = look(&rig, with_id("node-00009", "sim://i-00009")).await else {
        panic!("a lookup proves absence without a list")
    };
    assert_eq!(proof.method, ProofMethod::ById);
}

pub async fn a_truncated_list_is_no_proof(way: Way) {
    let rig = Rig::new(way).await;
    rig.sim.add_many(0, 20);
    for (effect, expect) in
        [(Effect::EmptyList, 0), (Effect::TruncatedList(5), 5), (Effect::TruncatedList(90), 20)]
    {
        let id = rig.sim.faults().add(Fault::new(effect));
        assert_eq!(instances(&rig).list(call()).await.unwrap().instances.len(), expect);
        let node = NodeIdentity::named("node-00019");
        assert_eq!(look(&rig, node).await, found(&SimInstance::numbered(19)));
        assert!(rig.sim.faults().remove(id));
    }
}

pub async fn errors_arrive_whole(way: Way) {
    let rig = Rig::new(way).await;
    rig.sim.add_many(0, 2);
    let nodes = [0, 1].map(|number| NodeIdentity::named(format!("node-{number:05}")));
    for kind in ErrorKind::ALL.iter().copied() {
        let bare =
            CloudError::new(kind, format!("the cloud's words about {kind}, ünïcödé included"));
        let rich =
            bare.clone().with_request_id("req-4711").with_retry_after(Duration::from_millis(2500));
        for error in [bare, rich] {
            let id = rig.sim.faults().add(Fault::new(Effect::Error(error.clone())));
            assert_eq!(
                instances(&rig).lookup(&nodes, Detail::Everything, call()).await,
                [Err(error.clone()), Err(error.clone())]
            );
            assert_eq!(instances(&rig).list(call()).await, Err(error.clone()));
            assert_eq!(rig.cloud.health(call()).await, Err(error));
            assert!(rig.sim.faults().remove(id));
        }
    }
    assert_eq!(look(&rig, nodes[0].clone()).await, found(&SimInstance::numbered(0)));
}

pub async fn a_deadline_holds(way: Way) {
    let rig = Rig::new(way).await;
    rig.sim.add_many(0, 600);
    let nodes: Vec<_> =
        (0..600).map(|number| NodeIdentity::named(format!("node-{number:05}"))).collect();
    rig.sim.faults().add(Fault::new(Effect::Hang));
    let hasty = || Call::routine(Duration::from_millis(250));
    let (cloud, instances) = (Arc::clone(&rig.cloud), instances(&rig));
    let is_timeout = |error: CloudError| assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
    let started = Instant::now();
    let answers = instances.lookup(&nodes, Detail::Everything, hasty()).await;
    assert_eq!(answers.len(), nodes.len());
    for answer in answers {
        is_timeout(answer.unwrap_err());
    }
    is_timeout(instances.list(hasty()).await.unwrap_err());
    is_timeout(cloud.health(hasty()).await.unwrap_err());
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    rig.sim.faults().clear();
    // A timeout of zero fails without a call.
    rig.sim.reset_calls();
    is_timeout(cloud.health(Call::waiting(Duration::ZERO)).await.unwrap_err());
    assert_eq!(rig.sim.calls().total(), 0);
    assert_eq!(cloud.health(call()).await, Ok(()), "the next call is not held up");
    assert_eq!(cloud.health(Call::waiting(Duration::MAX)).await, Ok(()));
}

pub async fn a_slow_cloud_is_waited_for(way: Way) {
    let rig = Rig::new(way).await;
    rig.sim.add_many(0, 1);
    rig.sim.faults().add(Fault::new(Effect::Latency(Duration::from_millis(150))));
    rig.sim
        .faults()
        .add(Fault::new(Effect::LatencyBetween(Duration::ZERO, Duration::from_millis(50))));
    let started = Instant::now();
    assert_eq!(
        look(&rig, NodeIdentity::named("node-00000")).await,
        found(&SimInstance::numbered(0))
    );
    assert!(started.elapsed() >= Duration::from_millis(150));
}

pub async fn malformed_instances_affect_no_others(way: Way) {
    let rig = Rig::new(way).await;
    let known = rig.sim.add_many(0, 700);
    let spoilt = "node-00600".to_owned();
    rig.sim.faults().add(Fault::new(Effect::MalformedInstances(vec![spoilt.clone()])));
    let nodes: Vec<_> = known.iter().map(|instance| NodeIdentity::named(&instance.name)).collect();
    for (instance, answer) in
        known.iter().zip(instances(&rig).lookup(&nodes, Detail::Everything, call()).await)
    {
        if instance.name == spoilt {
            assert_eq!(answer.unwrap_err().kind, ErrorKind::Malformed);
        } else {
            assert_eq!(answer, found(instance));
        }
    }
    let fleet = instances(&rig).list(call()).await.unwrap();
    assert_eq!((fleet.instances.len(), fleet.malformed.len()), (699, 1));
    assert!(fleet.malformed[0].contains(&spoilt), "{:?}", fleet.malformed);
}

pub async fn an_empty_cloud_answers(way: Way) {
    let rig = Rig::new(way).await;
    assert_eq!(instances(&rig).list(call()).await, Ok(Fleet::default()));
    assert_eq!(rig.sim.calls().list, 1, "an empty page is a call");
    assert!(matches!(look(&rig, NodeIdentity::named("x")).await, Ok(Lookup::Gone(_))));
}
