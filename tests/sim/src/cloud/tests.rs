use std::time::Duration;

use ccm_cloud::{Call, Detail, Instances, Lookup, NodeIdentity};

use super::*;

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
    // The same ID again replaces the whole machine, with its names.
    cloud.add(SimInstance::new("i-00001", "renamed"));
    assert_eq!((cloud.len(), name_of(&cloud, named("node-00001")).await), (1, None));
    cloud.clear();
    assert!(cloud.is_empty());
    assert_eq!(cloud.find("renamed"), None);
}
