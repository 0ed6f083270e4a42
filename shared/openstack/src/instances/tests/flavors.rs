//! Tests the instance type, from all possible sources.

use ccm_cloud::ErrorKind;
use serde_json::json;

use super::*;

async fn kinds(rig: &Rig) -> Vec<Option<String>> {
    rig.refreshed().await.into_iter().map(|instance| instance.instance_type).collect()
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
    // The name is not usable, or the flavor no longer exists: the ID is used in both cases.
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
        assert_eq!(found(&rig.look(known(0)).await), "node-00000", "the rest is returned");
        rig.cloud.world.lock().fault = None;
        let later = if then.is_some() { then } else { some("m1.tiny") };
        assert_eq!(kinds(&rig).await[0], later, "{kind}");
    }
}

/// Returns how often the flavors were listed since the last count of operations.
fn lists(rig: &Rig) -> usize {
    rig.cloud.operations().iter().filter(|operation| **operation == "flavor_list").count()
}

fn refuse(rig: &Rig, what: &'static str, kind: ErrorKind) {
    let error = CloudError::new(kind, "no");
    rig.cloud.fail(move |path, _| path.starts_with(what).then(|| Err(error.clone())));
}

async fn ten_minutes() {
    tokio::time::advance(Duration::from_mins(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_flavor_is_asked_for_again_after_a_while() {
    let rig = old_cloud();
    refuse(&rig, "/flavors/f0", ErrorKind::Forbidden);
    assert_eq!(kinds(&rig).await[0], some("f0"));
    rig.cloud.world.lock().fault = None;
    assert_eq!(kinds(&rig).await[0], some("f0"), "not at once");
    ten_minutes().await;
    refuse(&rig, "/flavors/f0", ErrorKind::Unavailable);
    assert_eq!(kinds(&rig).await[0], some("f0"), "what was known stays");
    rig.cloud.world.lock().fault = None;
    assert_eq!(kinds(&rig).await[0], some("m1.tiny"));
}

/// Returns four servers: the flavor's name is not a label value, the flavor is unknown, no
/// character of the flavor's name fits, and a server without a flavor.
fn embedded() -> Rig {
    let rig = Rig::new(Scripted::with_servers(0..4));
    for (number, name) in [(0, "Gold (2026)"), (1, "not listed"), (2, "...")] {
        rig.cloud.change(number, "flavor", json!({"original_name": name}));
    }
    rig.cloud.change(3, "flavor", json!(null));
    rig.cloud.world.lock().flavors = vec![
        json!({"id": "f-gold", "name": "Gold (2026)"}),
        json!({"id": "f-dots", "name": "..."}),
    ];
    rig
}

#[tokio::test(start_paused = true)]
async fn an_embedded_name_that_does_not_fit_gives_way_to_the_id() {
    let rig = embedded();
    refuse(&rig, "/flavors", ErrorKind::Unavailable);
    assert_eq!(kinds(&rig).await, [None, None, None, None], "not known for now");
    rig.cloud.world.lock().fault = None;
    lists(&rig);
    let expect = [some("f-gold"), some("not-listed"), some("f-dots"), None];
    for _ in 0..3 {
        assert_eq!(kinds(&rig).await, expect);
    }
    assert_eq!(lists(&rig), 1);
    // The flavor is deleted, or refused from now on: the type of a running server stays.
    for _ in 0..2 {
        ten_minutes().await;
        rig.cloud.world.lock().flavors.clear();
        assert_eq!(kinds(&rig).await, expect);
        assert_eq!(lists(&rig), 1);
        refuse(&rig, "/flavors", ErrorKind::Forbidden);
    }
}

#[tokio::test]
async fn where_the_id_is_refused_the_name_is_made_to_fit() {
    let rig = embedded();
    refuse(&rig, "/flavors", ErrorKind::Forbidden);
    for _ in 0..2 {
        assert_eq!(kinds(&rig).await, [some("Gold-2026"), some("not-listed"), None, None]);
    }
    assert_eq!(lists(&rig), 1);
}

#[tokio::test]
async fn names_that_fit_cost_no_list_of_flavors() {
    let rig = Rig::new(Scripted::with_servers(0..3));
    assert_eq!(kinds(&rig).await, [some("m1.large"), some("m1.large"), some("m1.large")]);
    assert_eq!(lists(&rig), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refused_list_takes_no_label_away() {
    for kind in
        [ErrorKind::Forbidden, ErrorKind::NotFound, ErrorKind::Invalid, ErrorKind::Unsupported]
    {
        let rig =
            Rig::shaped(Scripted::with_servers(0..3), |config| config.labels.flavor_id = true);
        rig.cloud.change(2, "flavor", json!({"original_name": "new"}));
        rig.cloud.world.lock().flavors =
            vec![json!({"id": "41", "name": "m1.tiny"}), json!({"id": "42", "name": "m1.large"})];
        rig.cloud.world.lock().page = Some(1);
        assert_eq!(label(&rig, 0).await, Ok(some("42")));
        // The list is refused from the start, then in its middle.
        for what in ["/flavors", "/flavors?marker"] {
            ten_minutes().await;
            refuse(&rig, what, kind);
            lists(&rig);
            assert_eq!(label(&rig, 0).await, Ok(some("42")), "{kind} {what}");
            assert_eq!(label(&rig, 1).await, Ok(some("42")), "{kind} {what}");
            assert!(lists(&rig) <= 2, "one attempt");
        }
        rig.cloud.world.lock().fault = None;
        rig.cloud.world.lock().flavors.push(json!({"id": "43", "name": "new"}));
        assert_eq!(label(&rig, 2).await, Ok(None), "not at once");
        ten_minutes().await;
        assert_eq!(label(&rig, 2).await, Ok(some("43")));
    }
}

async fn label(rig: &Rig, number: usize) -> Result<Option<String>, CloudError> {
    match rig.refresh().await.remove(number)? {
        Lookup::Found(mut instance) => {
            Ok(instance.labels.remove("openstack.quartet.dev/flavor-id"))
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn ids_are_looked_up_by_name_if_wanted() {
    let with_ids = |cloud| Rig::shaped(cloud, |config| config.labels.flavor_id = true);
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
    assert_eq!(lists(&rig), 1, "an unknown flavor is not asked for again at once");

    let refused = with_ids(Scripted::with_servers(0..1));
    let error = CloudError::new(ErrorKind::Forbidden, "no");
    refused.cloud.fail(move |path, _| (path == "/flavors").then(|| Err(error.clone())));
    assert_eq!(label(&refused, 0).await, Ok(None));

    let old = with_ids(Scripted::with_servers(0..1));
    old.cloud.change(0, "flavor", json!({"id": "f0"}));
    assert_eq!(label(&old, 0).await, Ok(some("f0")));
    assert!(!old.cloud.operations().contains(&"flavor_list"));
}
