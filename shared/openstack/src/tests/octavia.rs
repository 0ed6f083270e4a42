//! Tests Octavia behind the client: its place, the requests that are sent again, and settings that
//! change.

use std::time::Duration;

use ccm_cloud::{Call, Cloud as _, CloudError, ErrorKind};
use ccm_openstack_client::api::{Answer, Api as _, Request, Service};
use serde_json::{Value, json};
use tokio::time::advance;

use super::cloud::{Move, PASSWORD, Rig, config};
use crate::cloud::Adopted;

const PATH: &str = "/v2.0/lbaas/loadbalancers";

fn call() -> Call {
    Call::waiting(Duration::from_secs(10))
}

async fn post(rig: &Rig) -> Result<Answer, CloudError> {
    let body = json!({ "loadbalancer": {} });
    let request = Request::post(Service::LoadBalancer, "loadbalancer_create", PATH, body);
    rig.client().send(request, call()).await
}

async fn delete(rig: &Rig) -> Result<Answer, CloudError> {
    let path = format!("{PATH}/5");
    let request = Request::delete(Service::LoadBalancer, "loadbalancer_delete", &path);
    rig.client().send(request, call()).await
}

/// Returns the words of Octavia itself.
fn faultstring(status: u16, words: &str) -> Move {
    let body = json!({ "faultcode": "Client", "faultstring": words, "debuginfo": null });
    Move::text(status, &body.to_string()).with("x-openstack-request-id", "req-9")
}

#[tokio::test(start_paused = true)]
async fn its_versions_are_at_its_root_and_the_rest_below() {
    for url in ["http://octavia", "http://octavia/", "http://octavia/v2.0", "http://octavia/v2.0/"]
    {
        let rig = Rig::new();
        rig.cloud.set_octavia(Some((url, "one")));
        rig.get(Service::LoadBalancer, 10).await.unwrap();
        let versions = Request::get(Service::LoadBalancer, "version_list", "");
        rig.client().send(versions, call()).await.unwrap();
        let seen = rig.cloud.seen();
        let paths: Vec<_> = seen.iter().skip(1).map(|seen| seen.path.as_str()).collect();
        assert_eq!(paths, ["/v2.0/lbaas/loadbalancers?limit=1", "/"], "{url}");
        assert_eq!(seen[1].header("openstack-api-version"), None);
    }
    let rig = Rig::new();
    rig.cloud.set_octavia(Some(("http://octavia/load-balancer/v2.0/", "one")));
    rig.get(Service::LoadBalancer, 10).await.unwrap();
    let last = rig.cloud.seen().pop().unwrap();
    assert_eq!(last.path, "/load-balancer/v2.0/lbaas/loadbalancers?limit=1");
}

/// A creation is sent again only if it surely had no effect. Its error says whether it may have had
/// one.
#[tokio::test(start_paused = true)]
async fn a_creation_is_not_repeated_when_its_outcome_is_unknown() {
    for (act, times, maybe_done) in [
        (Move::Cut, 1, Some(true)),
        (Move::Truncate, 1, Some(true)),
        (Move::Hang, 1, Some(true)),
        (Move::text(502, "<html>"), 1, Some(true)),
        (Move::text(503, ""), 1, Some(true)),
        (Move::text(200, "<html>"), 1, Some(true)),
        (faultstring(500, "It broke"), 1, Some(true)),
        (faultstring(503, "Project busy.  Unable to lock the project."), 1, Some(false)),
        (
            faultstring(
                500,
                "Provider 'amphora' reports error: IP address 10.0.0.7 already allocated in \
                 subnet 5",
            ),
            1,
            Some(false),
        ),
        (faultstring(403, "Quota has been met for resources: Load Balancer"), 1, Some(false)),
        (Move::text(429, "{}"), 2, None),
    ] {
        let rig = Rig::new();
        rig.get(Service::LoadBalancer, 10).await.unwrap();
        rig.cloud.next("octavia", [act.clone()]);
        let outcome = post(&rig).await;
        assert_eq!(outcome.err().map(|error| error.maybe_done), maybe_done, "{act:?}");
        assert_eq!(rig.cloud.count("octavia", PATH), 1 + times, "{act:?}");
    }
    // Nothing was sent.
    let rig = Rig::new();
    rig.get(Service::LoadBalancer, 10).await.unwrap();
    rig.cloud.refuse_connections(2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    post(&rig).await.unwrap();
    let classes = rig.gate.admitted.lock().clone();
    let class = classes.last().unwrap();
    assert_eq!(
        (class.operation, class.write, class.repeatable),
        ("loadbalancer_create", true, false)
    );
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_repeated_and_only_octavia_says_that_it_is_done() {
    for (moves, status) in [
        (vec![Move::Cut], Ok(200)),
        // The first one has taken effect.
        (vec![Move::Cut, faultstring(404, "Load Balancer 5 not found.")], Ok(404)),
        (vec![faultstring(404, "Load Balancer 5 not found.")], Ok(404)),
        (vec![Move::text(404, "<html>")], Err(ErrorKind::Malformed)),
        // A page of something in between does not confirm a deletion.
        (vec![Move::text(200, "<html>")], Err(ErrorKind::Malformed)),
        (vec![Move::text(202, "{\"a")], Err(ErrorKind::Malformed)),
        (vec![Move::text(204, "")], Ok(204)),
        (
            vec![Move::text(404, r#"{"faultstring": "Load Balancer 5 not found."}"#)],
            Err(ErrorKind::Malformed),
        ),
        (vec![faultstring(404, "")], Err(ErrorKind::Malformed)),
        (
            vec![faultstring(409, "Invalid state PENDING_DELETE of loadbalancer resource 5")],
            Err(ErrorKind::Busy),
        ),
        (
            vec![faultstring(
                400,
                "Validation failure: Cannot delete Load Balancer 5 - it has children",
            )],
            Err(ErrorKind::Invalid),
        ),
    ] {
        let rig = Rig::new();
        rig.get(Service::LoadBalancer, 10).await.unwrap();
        rig.cloud.next("octavia", moves.clone());
        let outcome = delete(&rig).await;
        let outcome = outcome.map(|answer| answer.status).map_err(|error| error.kind);
        assert_eq!(outcome, status, "{moves:?}");
        assert!(rig.gate.reports.lock().iter().filter(|(class, _)| class.write).count() > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cloud_without_it_is_told_from_one_that_has_it_elsewhere() {
    let offers = async |rig: &Rig| rig.client().offers(Service::LoadBalancer, call()).await;
    let rig = Rig::new();
    assert_eq!(offers(&rig).await, Ok(true));
    for octavia in [None, Some(("http://octavia", "two"))] {
        let rig = Rig::new();
        rig.cloud.set_octavia(octavia);
        assert_eq!(offers(&rig).await, Ok(false));
        let error = rig.get(Service::LoadBalancer, 10).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.message.contains("load-balancer"), "{error}");
        // Octavia is added to the catalog, which is read again after a minute.
        rig.cloud.set_octavia(Some(("http://octavia", "one")));
        assert_eq!(offers(&rig).await, Ok(false));
        advance(Duration::from_secs(61)).await;
        offers(&rig).await.unwrap();
        assert_eq!(offers(&rig).await, Ok(true));
        assert_eq!(rig.cloud.logins(), 2);
    }
    assert_eq!(rig.client().project().unwrap().id, "p1");
    // A cloud that cannot be reached has not answered anything.
    let rig = Rig::new();
    rig.cloud.always("keystone", Some(Move::text(503, "")));
    assert_eq!(offers(&rig).await.unwrap_err().kind, ErrorKind::Unavailable);
}

/// New settings are tried with Octavia, too, once Octavia is in use.
#[tokio::test(start_paused = true)]
async fn changed_settings_are_tried_with_it_where_it_is_used() {
    let adopt = async |rig: &Rig| rig.openstack.adopt(&config(PASSWORD), call()).await;
    let rig = Rig::new();
    rig.nova(10).await.unwrap();
    rig.cloud.set_octavia(None);
    assert_eq!(adopt(&rig).await, Ok(Adopted::InUse), "it is not used here");

    let rig = Rig::new();
    rig.nova(10).await.unwrap();
    rig.get(Service::LoadBalancer, 10).await.unwrap();
    assert_eq!(adopt(&rig).await, Ok(Adopted::InUse));
    assert_eq!(rig.cloud.count("octavia", PATH), 2);
    assert_eq!(rig.cloud.seen().pop().unwrap().path, format!("{PATH}?limit=1&fields=id"));
    let denied = faultstring(403, "Policy does not allow this request to be performed.");
    rig.cloud.always("octavia", Some(denied));
    assert_eq!(adopt(&rig).await.unwrap_err().kind, ErrorKind::Forbidden);
    rig.cloud.always("octavia", None);
    rig.cloud.set_octavia(None);
    assert_eq!(adopt(&rig).await.unwrap_err().kind, ErrorKind::Invalid);
    // The previous settings are in use.
    rig.get(Service::LoadBalancer, 10).await.unwrap();
}

/// service-ccm's credentials may have no right to ask Nova.
#[tokio::test(start_paused = true)]
async fn changed_settings_are_not_tried_with_nova_where_only_load_balancers_are_used() {
    let rig = Rig::new();
    assert!(rig.openstack.load_balancers().is_err());
    rig.get(Service::LoadBalancer, 10).await.unwrap();
    assert_eq!(rig.openstack.adopt(&config(PASSWORD), call()).await, Ok(Adopted::InUse));
    let seen = rig.cloud.seen();
    let count = |host| seen.iter().filter(|seen| seen.host == host).count();
    assert_eq!(count("nova"), 0);
    assert!(count("octavia") > 0);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_another_server_is_no_list() {
    let rig = Rig::new();
    rig.get(Service::LoadBalancer, 10).await.unwrap();
    for body in ["<html>", "{}", "[]", "{\"loadbalancers\": 7}"] {
        rig.cloud.next("octavia", [Move::text(200, body)]);
        let error = rig.client().probe(Service::LoadBalancer, call()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Malformed, "{body}");
    }
    assert_eq!(rig.client().answers(Service::LoadBalancer), Some(true));
    let error: Value = json!({});
    rig.cloud.always("octavia", Some(Move::text(503, &error.to_string())));
    rig.client().probe(Service::LoadBalancer, call()).await.unwrap_err();
    assert_eq!(rig.client().answers(Service::LoadBalancer), Some(false));
}
