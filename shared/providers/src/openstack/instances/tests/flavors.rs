//! The instance type, from wherever it must be taken.

use ccm_cloud::ErrorKind;
use serde_json::json;

use super::*;

async fn kinds(rig: &Rig) -> Vec<Option<String>> {
    let fleet = rig.instances.list(CALL).await.unwrap();
    fleet.instances.into_iter().map(|instance| instance.instance_type).collect()
}

#[expect(clippy::unnecessary_wraps, reason = "it is compared with whole answers")]
fn some(name: &str) -> Option<String> {
    Some(name.to_owned())
}

fn old_cloud() -> Rig {
    let rig = Rig::new(Scripted::with_servers(0..4));
    for number in 0..4 {
        rig.cloud.change(number, "flavor", json!({"id": format!("f{number}"), "links": []}));
    }
    rig.cloud.world.lock().flavors = vec![
        json!({"id": "f0", "name": "m1.tiny"}),
        json!({"id": "f1", "name": "two words"}),
        json!({"id": "f3", "name": "m1.huge"}),
    ];
    rig
}

#[tokio::test]
async fn an_old_nova_is_asked_once_per_flavor() {
    let rig = old_cloud();
    // No usable name, and no such flavor any more: the ID stands for both.
    let expect = [some("m1.tiny"), some("f1"), some("f2"), some("m1.huge")];
    assert_eq!(kinds(&rig).await, expect);
    assert_eq!(rig.cloud.operations().iter().filter(|o| **o == "flavor_get").count(), 4);
    assert_eq!(kinds(&rig).await, expect);
    assert!(!rig.cloud.operations().contains(&"flavor_get"));
}

#[tokio::test]
async fn a_flavor_that_is_refused_has_its_id_and_one_that_fails_none_for_now() {
    for (kind, then) in [
        (ErrorKind::Forbidden, some("f0")),
        (ErrorKind::NotFound, some("f0")),
        (ErrorKind::Unavailable, None),
        (ErrorKind::Throttled, None),
        (ErrorKind::Timeout, None),
    ] {
        let rig = old_cloud();
        let failed = CloudError::new(kind, "no");
        rig.cloud.fail(move |path, _| (path == "/flavors/f0").then(|| Err(failed.clone())));
        assert_eq!(kinds(&rig).await[0], then, "{kind}");
        assert_eq!(found(&rig.look(known(0)).await), "node-00000", "the rest is told");
        rig.cloud.world.lock().fault = None;
        let later = if then.is_some() { then } else { some("m1.tiny") };
        assert_eq!(kinds(&rig).await[0], later, "{kind}");
    }
}

#[tokio::test]
async fn an_embedded_name_is_made_to_fit() {
    let rig = Rig::new(Scripted::with_servers(0..3));
    rig.cloud.change(0, "flavor", json!({"original_name": "Gold (2026)"}));
    rig.cloud.change(1, "flavor", json!({"original_name": "..."}));
    rig.cloud.change(2, "flavor", json!(null));
    assert_eq!(kinds(&rig).await, [some("Gold-2026"), None, None]);
    assert!(!rig.cloud.operations().contains(&"flavor_get"));
}

async fn label(rig: &Rig, number: usize) -> Result<Option<String>, CloudError> {
    let mut fleet = rig.instances.list(CALL).await?;
    Ok(fleet.instances.remove(number).labels.remove("openstack.quartet.dev/flavor-id"))
}

#[tokio::test]
async fn ids_are_looked_up_by_name_if_wanted() {
    let with_ids = |cloud| Rig::shaped(cloud, |shape| shape.labels.flavor_id = true);
    let rig = with_ids(Scripted::with_servers(0..2));
    rig.cloud.change(1, "flavor", json!({"original_name": "gone"}));
    rig.cloud.world.lock().flavors = vec![json!({"id": "42", "name": "m1.large"})];
    let down = CloudError::new(ErrorKind::Unavailable, "no");
    rig.cloud.fail(move |path, _| (path == "/flavors").then(|| Err(down.clone())));
    assert!(label(&rig, 0).await.is_err(), "a label must not come and go");
    rig.cloud.world.lock().fault = None;
    rig.cloud.operations();
    assert_eq!(label(&rig, 0).await, Ok(some("42")));
    assert_eq!(label(&rig, 1).await, Ok(None));
    let lists = rig.cloud.operations().iter().filter(|o| **o == "flavor_list").count();
    assert_eq!(lists, 1, "an unknown flavor is not asked for again at once");

    let refused = with_ids(Scripted::with_servers(0..1));
    let error = CloudError::new(ErrorKind::Forbidden, "no");
    refused.cloud.fail(move |path, _| (path == "/flavors").then(|| Err(error.clone())));
    assert_eq!(label(&refused, 0).await, Ok(None));

    let old = with_ids(Scripted::with_servers(0..1));
    old.cloud.change(0, "flavor", json!({"id": "f0"}));
    assert_eq!(label(&old, 0).await, Ok(some("f0")));
    assert!(!old.cloud.operations().contains(&"flavor_list"));
}
