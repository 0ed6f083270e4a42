//! Tests lookups that only ask which instances exist.

use ccm_cloud::PowerState;
use serde_json::json;

use super::*;

fn instance(answer: LookupResult) -> ccm_cloud::Instance {
    match answer {
        Ok(Lookup::Found(instance)) => *instance,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_lookup_costs_nova_alone() {
    let rig = Rig::new(Scripted::with_servers(0..20));
    rig.cloud.change(1, "status", json!("SHUTOFF"));
    for (count, expect) in [(2, vec!["server_get"; 2]), (20, vec!["server_list"])] {
        let nodes: Vec<_> = (0..count).map(known).collect();
        let answers = rig.instances.lookup(&nodes, Detail::Presence, call()).await;
        assert_eq!(rig.cloud.operations(), expect);
        let powers: Vec<_> = answers.into_iter().map(|answer| instance(answer).power).collect();
        assert_eq!(powers.len(), count);
        for (number, power) in powers.into_iter().enumerate() {
            let off = if number == 1 { PowerState::Stopped } else { PowerState::Running };
            assert_eq!(power, off, "server {number}");
        }
    }
}

#[tokio::test]
async fn a_list_is_the_short_one() {
    let rig = Rig::new(Scripted::with_servers(0..5));
    rig.cloud.take_cell_down(3);
    let fleet = rig.instances.list(call()).await.unwrap();
    let calls = rig.cloud.world.lock().calls.clone();
    assert_eq!(calls, [("server_list", "/servers".to_owned())]);
    let whole: Vec<_> =
        rig.refresh().await.into_iter().filter(Result::is_ok).map(instance).collect();
    let ids = |instances: &[ccm_cloud::Instance]| -> Vec<_> {
        instances.iter().map(|i| (i.provider_id.clone(), i.other_ids.clone())).collect()
    };
    assert_eq!(ids(&fleet.instances), ids(&whole));
    assert_eq!(fleet.instances.len(), 4);
    let [line] = &fleet.malformed[..] else { panic!("{:?}", fleet.malformed) };
    assert!(line.contains(&uuid(3)), "whose node it is must be seen: {line}");
}

#[tokio::test]
async fn neutron_is_not_needed_for_it() {
    let rig = Rig::new(Scripted::with_servers(0..5));
    rig.cloud.fail(|path, _| {
        let down = || CloudError::new(ccm_cloud::ErrorKind::Unavailable, "Neutron is down");
        path.starts_with("/ports").then(|| Err(down()))
    });
    assert_eq!(rig.instances.list(call()).await.unwrap().instances.len(), 5);
    instance(rig.instances.lookup(&[known(1)], Detail::Presence, call()).await.remove(0));
    rig.look(known(1)).await.unwrap_err();
}
