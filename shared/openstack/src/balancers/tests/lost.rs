//! Tests a load balancer that no list shows: the provider asks for it by its ID before it creates
//! another one.

use ccm_cloud::{CloudError, ErrorKind, LoadBalancer, Loss, Progress, Wanted};
use ccm_openstack_client::scripted::{answer, uuid};
use serde_json::json;

use super::rig::{Rig, changed, wanted};

/// Returns a Service that has this load balancer.
fn known(id: &str, may_replace: bool) -> Wanted {
    Wanted { known: Some(id.to_owned()), may_replace, ..wanted("web") }
}

/// Returns a load balancer that is as wanted.
async fn made(rig: &Rig) -> LoadBalancer {
    let made = rig.settle(&wanted("web")).await;
    rig.cloud.operations();
    made
}

fn gone(answer: &Result<Progress<LoadBalancer>, CloudError>) -> &Loss {
    match answer {
        Ok(Progress::Lost(loss @ Loss { is_gone: true, .. })) => loss,
        other => panic!("not gone: {other:?}"),
    }
}

#[tokio::test]
async fn what_lists_lack_is_found_by_its_id() {
    for may_replace in [false, true] {
        let rig = Rig::new();
        let id = made(&rig).await.id;
        rig.cloud.world.lock().octavia.unlisted.insert(id.clone());
        let more = changed(&known(&id, may_replace), |it| it.ports.truncate(1));
        assert!(rig.preview(&more).await.unwrap()[0].starts_with("delete the pool"));
        let done = rig.settle(&more).await;
        assert_eq!((&*done.id, rig.rows("balancers").len()), (&*id, 1), "{may_replace}");
        assert_eq!(rig.rows("listeners").len(), 1, "it is brought up to date");
        // A load balancer that belongs to another owner by now is not touched.
        rig.cloud.world.lock().octavia.balancers[0]["tags"] = json!([]);
        rig.writes();
        assert_eq!(rig.ensure(&more).await.unwrap_err().kind, ErrorKind::Conflict);
        assert_eq!(rig.writes(), [""; 0]);
    }
}

#[tokio::test]
async fn a_deleted_one_that_is_still_shown_is_gone() {
    let rig = Rig::new();
    let id = made(&rig).await.id;
    rig.cloud.world.lock().octavia.balancers[0]["provisioning_status"] = json!("DELETED");
    gone(&rig.ensure(&known(&id, false)).await);
    assert_ne!(rig.settle(&known(&id, true)).await.id, id);
}

#[tokio::test]
async fn another_answer_proves_nothing() {
    let failures = [
        (ErrorKind::Malformed, "HTTP 404 without an OpenStack error, but with an HTML page"),
        (ErrorKind::Forbidden, "HTTP 403"),
        (ErrorKind::Unavailable, "HTTP 503"),
    ];
    for (kind, words) in failures {
        for may_replace in [false, true] {
            let rig = Rig::new();
            let id = made(&rig).await.id;
            rig.remove(&id);
            rig.cloud.refuse(move |request| {
                (request.operation == "loadbalancer_get").then(|| CloudError::new(kind, words))
            });
            let error = rig.ensure(&known(&id, may_replace)).await.unwrap_err();
            assert_eq!(error.kind, kind, "{error}");
            assert_eq!((rig.writes(), rig.rows("balancers").len()), (vec![], 0));
        }
    }
    // The answer denies another load balancer.
    let rig = Rig::new();
    let id = made(&rig).await.id;
    rig.remove(&id);
    let keep = known(&id, false);
    rig.cloud.fail(move |path, _| {
        let words = format!("Load Balancer {} not found.", uuid(8));
        let denial = json!({ "faultcode": "Client", "faultstring": words });
        path.ends_with(&format!("loadbalancers/{id}")).then(|| Ok(answer(404, &denial)))
    });
    assert_eq!(rig.ensure(&keep).await.unwrap_err().kind, ErrorKind::Malformed);
}

/// A text in place of an ID, which Octavia cannot have assigned.
#[tokio::test]
async fn what_is_no_id_is_not_asked_for() {
    let rig = Rig::new();
    for text in ["../listeners", "x?y"] {
        gone(&rig.ensure(&known(text, false)).await);
    }
    assert!(!rig.cloud.operations().contains(&"loadbalancer_get"));
    rig.settle(&known("../listeners", true)).await;
}

#[tokio::test]
async fn the_question_costs_nothing_where_lists_answer() {
    let rig = Rig::new();
    let id = made(&rig).await.id;
    rig.ensure(&known(&id, false)).await.unwrap();
    rig.ensure(&wanted("new")).await.unwrap();
    // Another load balancer of the owner exists.
    rig.ensure(&known(&uuid(9), false)).await.unwrap();
    let asked = rig.cloud.operations();
    assert!(!asked.contains(&"loadbalancer_get"), "{asked:?}");
    rig.remove(&id);
    rig.ensure(&known(&id, false)).await.unwrap();
    assert_eq!(
        rig.cloud.operations(),
        ["loadbalancer_get", "loadbalancer_list", "loadbalancer_list"]
    );
}
