use std::time::Duration;

use ccm_cloud::{
    Call, CallClass, CallGate, CallReport, Detail, ErrorKind, Instances, Lookup, NodeIdentity,
    Permit,
};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;
use crate::faults::{Effect, Fault};

fn call() -> Call {
    Call::waiting(Duration::from_secs(30))
}

async fn look(cloud: &SimCloud, node: NodeIdentity) -> Result<Lookup, CloudError> {
    cloud.lookup(&[node], Detail::Everything, call()).await.remove(0)
}

async fn name_of(cloud: &SimCloud, node: NodeIdentity) -> Option<String> {
    match look(cloud, node).await {
        Ok(Lookup::Found(instance)) => Some(instance.name),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn indexes_follow_every_change() {
    let cloud = SimCloud::new();
    cloud.add_many(0, 2);
    let by_uuid = |uuid: &str| NodeIdentity {
        system_uuid: Some(uuid.to_owned()),
        ..NodeIdentity::named("other")
    };
    let named = NodeIdentity::named;
    assert!(cloud.update("i-00000", |instance| {
        instance.name = "new".to_owned();
        instance.system_uuid = Some("ABC".to_owned());
        instance.other_ids = vec![ProviderId::parse("sim:///x").unwrap()];
        instance.id = "an ID never changes".to_owned();
    }));
    let by_other_id = NodeIdentity { provider_id: Some("sim:///x".to_owned()), ..named("") };
    for node in [named("new"), by_uuid("abc"), by_other_id.clone()] {
        assert_eq!(name_of(&cloud, node.clone()).await.as_deref(), Some("new"), "{node:?}");
    }
    let old = SimInstance::numbered(0);
    for node in [named(&old.name), by_uuid(old.system_uuid.as_deref().unwrap())] {
        assert_eq!(name_of(&cloud, node.clone()).await, None, "{node:?}");
    }
    assert_eq!(cloud.get("i-00000").unwrap().name, "new");
    assert_eq!(cloud.find("new").unwrap().id, "i-00000");
    assert!(!cloud.update("none", |_| panic!("there is none")));
    assert!(cloud.set_power("i-00000", PowerState::Stopped));
    assert_eq!(cloud.remove("i-00000").unwrap().power, PowerState::Stopped);
    assert_eq!(cloud.remove("i-00000"), None);
    for node in [named("new"), by_uuid("abc"), by_other_id] {
        assert!(matches!(look(&cloud, node).await, Ok(Lookup::Gone(_))));
    }
    // The same ID again replaces the machine, names and all.
    cloud.add(SimInstance::new("i-00001", "renamed"));
    assert_eq!((cloud.len(), name_of(&cloud, named("node-00001")).await), (1, None));
    cloud.clear();
    assert!(cloud.is_empty());
    assert_eq!(cloud.find("renamed"), None);
}

#[test]
fn numbered_instances_have_unique_fields() {
    let all: Vec<_> = (0..6000).map(SimInstance::numbered).collect();
    let unique = |key: fn(&SimInstance) -> String| {
        all.iter().map(key).collect::<std::collections::BTreeSet<_>>().len()
    };
    for key in [
        |instance: &SimInstance| instance.id.clone(),
        |instance: &SimInstance| instance.name.clone(),
        |instance: &SimInstance| instance.system_uuid.clone().unwrap_or_default(),
        |instance: &SimInstance| instance.addresses[0].address.clone(),
        |instance: &SimInstance| instance.addresses[1].address.clone(),
    ] {
        assert_eq!(unique(key), all.len());
    }
    for address in all.iter().flat_map(|instance| &instance.addresses[..2]) {
        assert!(address.address.parse::<std::net::Ipv4Addr>().is_ok(), "{address:?}");
    }
    assert_eq!(SimInstance::numbered(42), SimInstance::numbered(42));
    assert_eq!(SimInstance::new("", "x").provider_id().as_str(), "sim://unnamed");
}

#[tokio::test(start_paused = true)]
async fn refused_calls_count_and_clones_share_the_counts() {
    let cloud = SimCloud::new();
    let view = cloud.clone();
    cloud.faults().add(Fault::new(Effect::Unavailable).times(3));
    view.health(call()).await.unwrap_err();
    view.list(call()).await.unwrap_err();
    look(&view, NodeIdentity::named("x")).await.unwrap_err();
    view.health(call()).await.unwrap();
    let first = cloud.calls();
    let expect = Calls { lookup: 1, list: 1, health: 2, nodes_looked_up: 1, ..Calls::default() };
    assert_eq!(first, expect);
    assert_eq!(first.to_string(), "1 lookups of 1 nodes, 1 list pages, 2 health checks");
    view.list(call()).await.unwrap();
    let since = cloud.calls().since(&first);
    assert_eq!(since, Calls { list: 1, ..Calls::default() });
    assert_eq!(cloud.reset_calls().total(), 5);
    assert_eq!(view.calls(), Calls::default());
}

/// With the credentials of the wrong project, everything looks gone.
#[tokio::test(start_paused = true)]
async fn the_wrong_project_shows_nothing() {
    let cloud = SimCloud::new();
    cloud.add_many(0, 3);
    cloud.faults().add(Fault::new(Effect::WrongProject));
    assert_eq!(cloud.list(call()).await.unwrap().instances, []);
    assert!(matches!(look(&cloud, NodeIdentity::named("node-00001")).await, Ok(Lookup::Gone(_))));
    assert_eq!(cloud.health(call()).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_covers_the_whole_of_a_list() {
    let cloud = SimCloud::new();
    cloud.add_many(0, 1500);
    cloud.faults().add(Fault::new(Effect::Latency(Duration::from_secs(2))));
    let started = Instant::now();
    cloud.list(Call::routine(Duration::from_secs(7))).await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_secs(6), "three pages of 2 s each");
    let started = Instant::now();
    let error = cloud.list(Call::routine(Duration::from_secs(5))).await.unwrap_err();
    assert_eq!((error.kind, started.elapsed()), (ErrorKind::Timeout, Duration::from_secs(5)));
}

#[derive(Default)]
struct Gate {
    seen: Mutex<Vec<(&'static str, Option<ErrorKind>)>>,
    closed: bool,
}

impl CallGate for Gate {
    fn admit(&self, _: CallClass, _: Call) -> BoxFuture<'_, Result<Permit, CloudError>> {
        let refusal = CloudError::new(ErrorKind::Throttled, "closed");
        Box::pin(std::future::ready(if self.closed { Err(refusal) } else { Ok(Permit::default()) }))
    }

    fn report(&self, class: CallClass, report: CallReport) {
        self.seen.lock().push((class.operation, report.error));
    }
}

#[tokio::test(start_paused = true)]
async fn calls_pass_the_gate_of_the_view() {
    let cloud = SimCloud::new();
    cloud.add_many(0, 501);
    let gate = Arc::new(Gate::default());
    let view = cloud.behind(Arc::clone(&gate) as Arc<dyn CallGate>);
    view.list(call()).await.unwrap();
    cloud.faults().add(Fault::new(Effect::Unauthorized).times(1));
    view.health(call()).await.unwrap_err();
    let expect = [
        ("list_instances", None),
        ("list_instances", None),
        ("health", Some(ErrorKind::Unauthorized)),
    ];
    assert_eq!(*gate.seen.lock(), expect);
    cloud.reset_calls();
    let closed = cloud.behind(Arc::new(Gate { closed: true, ..Gate::default() }));
    assert_eq!(closed.list(call()).await.unwrap_err().kind, ErrorKind::Throttled);
    assert_eq!(cloud.calls().total(), 0, "what the gate refuses never reaches the cloud");
}
