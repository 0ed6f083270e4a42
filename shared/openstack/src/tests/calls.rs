//! Tests one call: repetitions, the gate, headers, endpoints.

use std::time::Duration;

use ccm_cloud::{Call, ErrorKind};
use ccm_openstack_client::api::{Api as _, Request, Service};
use serde_json::json;
use tokio::time::{Instant, advance, sleep};

use super::cloud::{Move, Rig};

#[tokio::test(start_paused = true)]
async fn a_get_is_repeated_where_that_may_help() {
    let error = |status| Move::text(status, "{}");
    for (moves, expect) in [
        (vec![error(502), error(503), error(504)], None),
        (vec![Move::Cut, Move::Truncate, error(503)], None),
        (vec![Move::Truncate; 4], Some(ErrorKind::Unavailable)),
        (vec![error(503); 4], Some(ErrorKind::Unavailable)),
    ] {
        let rig = Rig::new();
        rig.get(Service::Network, 10).await.unwrap();
        rig.cloud.next("neutron", moves);
        let outcome = rig.get(Service::Network, 60).await;
        assert_eq!(outcome.err().map(|error| error.kind), expect);
        assert_eq!(rig.cloud.count("neutron", "/"), 1 + 4);
        assert_eq!(rig.cloud.logins(), 1);
    }
    for status in [400, 401, 403, 404, 409, 500, 501, 505] {
        let rig = Rig::new();
        rig.get(Service::Network, 10).await.unwrap();
        rig.cloud.always("neutron", Some(error(status)));
        rig.get(Service::Network, 60).await.unwrap_err();
        let times = if status == 401 { 2 } else { 1 };
        assert_eq!(rig.cloud.count("neutron", "/"), 1 + times, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_holds_over_everything() {
    let rig = Rig::new();
    rig.nova(10).await.unwrap();
    rig.cloud.always("nova", Some(Move::Hang));
    let begin = Instant::now();
    let error = rig.nova(3).await.unwrap_err();
    assert_eq!((error.kind, begin.elapsed().as_secs()), (ErrorKind::Timeout, 3));
    // The time of one request is limited, even if the caller has more time.
    let error = rig.nova(600).await.unwrap_err();
    assert_eq!((error.kind, begin.elapsed().as_secs()), (ErrorKind::Timeout, 63));
    rig.cloud.always("nova", Some(Move::text(503, "")));
    let error = rig.nova(1).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "the cause, not the lack of time");
    assert!(begin.elapsed() < Duration::from_secs(64));
    rig.cloud.always("nova", None);
    rig.client().probe(Service::Compute, Call::waiting(Duration::MAX)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_request_passes_the_gate_and_is_reported() {
    let rig = Rig::new();
    rig.nova(10).await.unwrap();
    rig.cloud.revoke();
    rig.cloud.next("neutron", [Move::text(503, "").with("retry-after", "1"), Move::Cut]);
    rig.get(Service::Network, 30).await.unwrap();
    rig.cloud.always("nova", Some(Move::Hang));
    rig.nova(1).await.unwrap_err();
    let seen: Vec<_> = rig.cloud.seen().iter().map(|seen| seen.host.clone()).collect();
    let hosts = |service| match service {
        "identity" => "keystone",
        "compute" => "nova",
        _ => "neutron",
    };
    let admitted: Vec<_> =
        rig.gate.admitted.lock().iter().map(|class| hosts(class.service)).collect();
    assert_eq!(admitted, seen);
    let reports = rig.gate.reports.lock();
    let told: Vec<_> = reports
        .iter()
        .map(|(class, report)| {
            assert!(!class.write);
            (class.operation, report.error, report.retry_after.map(|wait| wait.as_secs()))
        })
        .collect();
    let expect = [
        ("token_create", None, None),
        ("version_list", None, None),
        ("server_list", None, None),
        ("port_list", Some(ErrorKind::Unavailable), Some(1)),
        ("port_list", Some(ErrorKind::Unavailable), None),
        ("port_list", Some(ErrorKind::Unauthorized), None),
        ("token_create", None, None),
        ("port_list", None, None),
        ("server_list", Some(ErrorKind::Timeout), None),
    ];
    assert_eq!(told, expect);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_is_reported() {
    let rig = Rig::new();
    rig.nova(10).await.unwrap();
    rig.cloud.always("nova", Some(Move::Hang));
    let left = tokio::time::timeout(Duration::from_secs(1), rig.nova(10)).await;
    assert!(left.is_err());
    let (_, report) = *rig.gate.reports.lock().last().unwrap();
    assert_eq!((report.error, report.took.as_secs()), (Some(ErrorKind::Timeout), 1));
    assert_eq!(rig.gate.reports.lock().len(), rig.cloud.seen().len());
}

#[tokio::test(start_paused = true)]
async fn requests_say_who_asks_and_in_which_version() {
    let rig = Rig::new();
    rig.nova(10).await.unwrap();
    rig.get(Service::Network, 10).await.unwrap();
    let seen = rig.cloud.seen();
    let lines: Vec<_> = seen
        .iter()
        .map(|seen| {
            assert_eq!(seen.header("accept"), Some("application/json"));
            assert_eq!(seen.header("user-agent"), Some("cluster/7 node-ccm/1"));
            let (token, version) =
                (seen.header("x-auth-token"), seen.header("openstack-api-version"));
            format!("{} {}{} {token:?} {version:?}", seen.method, seen.host, seen.path)
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    POST keystone/v3/auth/tokens None None
    GET nova/v2.1/ Some("gAAAA-token-1") None
    GET nova/v2.1/p1/servers?limit=1 Some("gAAAA-token-1") Some("compute 2.79")
    GET neutron/v2.0/ports?limit=1 Some("gAAAA-token-1") None
    "#);
    assert_eq!(seen[0].header("content-type"), Some("application/json"));
    assert_eq!(rig.client().microversion().unwrap().to_string(), "2.79");
}

#[tokio::test(start_paused = true)]
async fn an_old_nova_is_asked_in_its_own_words() {
    let rig = Rig::new();
    rig.cloud.set_versions(
        json!({ "version": { "id": "v2.1", "version": "2.25", "min_version": "2.1" } }),
    );
    rig.nova(10).await.unwrap();
    let last = rig.cloud.seen().pop().unwrap();
    assert_eq!(last.header("x-openstack-nova-api-version"), Some("2.25"));
    assert_eq!(last.header("openstack-api-version"), Some("compute 2.25"));
}

#[tokio::test(start_paused = true)]
async fn versions_are_looked_at_with_each_login_and_no_call_waits_for_a_second_look() {
    let rig = Rig::new();
    let looks = |rig: &Rig| rig.cloud.seen().iter().filter(|seen| seen.path == "/v2.1/").count();
    rig.nova(10).await.unwrap();
    for _ in 0..10 {
        advance(Duration::from_mins(5)).await;
        rig.cloud.next("nova", [Move::Cut]);
        rig.nova(10).await.unwrap();
    }
    assert_eq!(looks(&rig), 2, "the token was renewed once");
    rig.cloud.revoke();
    rig.nova(10).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(looks(&rig), 3);
    // A look that fails or takes long keeps the known versions.
    rig.cloud.revoke();
    rig.get(Service::Network, 10).await.unwrap();
    rig.cloud.always("nova", Some(Move::text(500, "")));
    rig.nova(30).await.unwrap_err();
    sleep(Duration::from_secs(1)).await;
    rig.cloud.always("nova", None);
    rig.nova(10).await.unwrap();
    let last = rig.cloud.seen().pop().unwrap();
    assert_eq!(last.header("openstack-api-version"), Some("compute 2.79"));
}

#[tokio::test(start_paused = true)]
async fn a_page_of_maintenance_does_not_take_novas_version_away() {
    let page = "<html><h1>We are back soon</h1></html>";
    for (status, body) in [(404, page), (403, page), (403, "{}"), (200, page), (200, "{}")] {
        let rig = Rig::new();
        rig.nova(10).await.unwrap();
        // Another login causes another look.
        rig.cloud.revoke();
        rig.get(Service::Network, 10).await.unwrap();
        rig.cloud.always("nova", Some(Move::text(status, body)));
        assert_eq!(rig.nova(10).await.is_ok(), status == 200);
        sleep(Duration::from_secs(1)).await;
        rig.cloud.always("nova", None);
        rig.nova(10).await.unwrap();
        let last = rig.cloud.seen().pop().unwrap();
        assert_eq!(last.header("openstack-api-version"), Some("compute 2.79"), "{status} {body}");
        assert_eq!(last.path, "/v2.1/p1/servers?limit=1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_nova_that_told_no_versions_is_asked_again_in_a_minute() {
    let rig = Rig::new();
    rig.cloud.next("nova", [Move::text(403, "{}")]);
    rig.nova(10).await.unwrap();
    let spoken = |rig: &Rig| rig.client().microversion().map(|version| version.to_string());
    assert_eq!(spoken(&rig), None);
    advance(Duration::from_secs(61)).await;
    rig.nova(10).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(spoken(&rig).as_deref(), Some("2.79"));
    assert_eq!(rig.cloud.count("nova", "/"), 4);
}

fn write(revision: Option<u64>) -> Request<'static> {
    let body = json!({ "router": { "routes": [] } });
    Request::put(Service::Network, "router_update", "routers/r1", body).at_revision(revision)
}

#[tokio::test(start_paused = true)]
async fn a_write_says_what_it_is_and_names_the_revision() {
    let rig = Rig::new();
    let call = Call::waiting(Duration::from_secs(10));
    rig.client().send(write(Some(7)), call).await.unwrap();
    let last = rig.cloud.seen().pop().unwrap();
    assert_eq!((last.method.as_str(), &*last.path), ("PUT", "/v2.0/routers/r1"));
    assert_eq!(last.header("if-match"), Some("revision_number=7"));
    assert_eq!(last.header("content-type"), Some("application/json"));
    assert_eq!(&*last.body, br#"{"router":{"routes":[]}}"#);
    let admitted = rig.gate.admitted.lock().clone();
    let writes: Vec<_> = admitted.iter().map(|class| (class.operation, class.write)).collect();
    assert_eq!(writes, [("token_create", false), ("router_update", true)]);
}

/// A request may be sent again if it surely was not done, or if it does no harm. An error says
/// whether the change may have been made.
#[tokio::test(start_paused = true)]
async fn a_write_is_repeated_only_where_that_does_no_harm() {
    let busy = Move::text(429, "{}");
    let nothing =
        Move::text(400, r#"{"NeutronError": {"type": "X", "message": "no", "detail": ""}}"#);
    for (revision, act, times, maybe_done) in [
        (None, Move::Cut, 2, None),
        (None, Move::text(503, ""), 2, None),
        (Some(7), Move::Cut, 1, Some(true)),
        (Some(7), Move::Truncate, 1, Some(true)),
        (Some(7), Move::text(502, "<html>"), 1, Some(true)),
        (Some(7), Move::text(500, "{}"), 1, Some(true)),
        (Some(7), Move::Hang, 1, Some(true)),
        (Some(7), busy, 2, None),
        (Some(7), nothing, 1, Some(false)),
        (Some(7), Move::text(501, "{}"), 1, Some(false)),
    ] {
        let rig = Rig::new();
        rig.get(Service::Network, 10).await.unwrap();
        rig.cloud.next("neutron", [act.clone()]);
        let call = Call::waiting(Duration::from_secs(10));
        let outcome = rig.client().send(write(revision), call).await;
        assert_eq!(outcome.err().map(|error| error.maybe_done), maybe_done, "{act:?}");
        assert_eq!(rig.cloud.count("neutron", "/v2.0/routers"), times, "{revision:?} {act:?}");
    }
    // Without a connection nothing was sent, so even a creation may be repeated.
    let rig = Rig::new();
    rig.get(Service::Network, 10).await.unwrap();
    rig.cloud.refuse_connections(2);
    sleep(Duration::from_secs(1)).await;
    let call = Call::waiting(Duration::from_secs(10));
    rig.client().send(write(Some(7)), call).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_look_at_versions_is_shared() {
    let rig = Rig::new();
    rig.cloud.always("nova", Some(Move::text(500, "")));
    let calls = futures::future::join_all((0..30).map(|_| rig.nova(10)));
    for answer in calls.await {
        assert_eq!(answer.unwrap_err().kind, ErrorKind::Unavailable);
    }
    assert_eq!(rig.cloud.count("nova", "/"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_none_is_an_error() {
    let rig = Rig::new();
    for path in ["servers?name=a b\u{7f}", "servers/..", "servers/./x", "../v2/servers?a=.."] {
        let get = Request::get(Service::Compute, "server_list", path);
        let error =
            rig.client().send(get, Call::waiting(Duration::from_secs(5))).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    }
    assert_eq!(rig.cloud.count("nova", "/v2.1/p1"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_refused_costs_few_logins_though_others_succeed() {
    let rig = Rig::new();
    let flavors = Request::get(Service::Compute, "flavor_list", "flavors");
    rig.cloud.deny("/flavors");
    for _ in 0..60 {
        rig.nova(10).await.unwrap();
        rig.client()
            .send(flavors.clone(), Call::waiting(Duration::from_secs(10)))
            .await
            .unwrap_err();
        sleep(Duration::from_mins(1)).await;
    }
    let logins = rig.cloud.logins();
    assert!((3..=16).contains(&logins), "{logins} logins in an hour");
}
