//! The transport changes no answer.

use std::collections::BTreeSet;

use ccm_cloud::{
    Cloud, CloudError, Detail, ErrorKind, Lookup, LookupResult, NodeIdentity, PowerState,
    ProviderId,
};
use ccm_sim::{
    cloud::SimInstance,
    faults::{Effect, Fault},
};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{
    rig::{Rig, Way},
    suite::call,
};

fn pick(random: &mut StdRng, most: usize) -> String {
    random.random_range(0..most).to_string()
}

/// Few names and UUIDs for many machines, so that all kinds of match occur.
fn instance(random: &mut StdRng, number: usize) -> SimInstance {
    let mut instance = SimInstance::numbered(number);
    instance.name = format!("n{}", pick(random, 30));
    instance.system_uuid = random.random_bool(0.5).then(|| format!("AB-{}", pick(random, 30)));
    instance.zone = random.random_bool(0.5).then(|| format!("zone {}", pick(random, 3)));
    instance.addresses.truncate(random.random_range(0..4));
    instance.labels.insert("k".to_owned(), pick(random, 3));
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
    let rig = Rig::new(Way::Unix).await;
    let mut kinds = BTreeSet::new();
    for seed in 0..40 {
        let mut random = StdRng::seed_from_u64(seed);
        rig.sim.clear();
        for number in 0..random.random_range(0..60) {
            rig.sim.add(instance(&mut random, number));
        }
        let kind = ErrorKind::ALL[usize::try_from(seed).unwrap() % ErrorKind::ALL.len()];
        let error = CloudError::new(kind, format!("words of {seed}")).with_request_id("r");
        rig.sim.faults().clear();
        rig.sim.faults().add(Fault::new(Effect::FailNodes(vec!["n1".into(), "n7".into()], error)));
        let nodes: Vec<_> = (0..50).map(|_| node(&mut random)).collect();
        let direct = rig.sim.instances().unwrap().unwrap();
        let wired = rig.cloud.instances().unwrap().unwrap();
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
