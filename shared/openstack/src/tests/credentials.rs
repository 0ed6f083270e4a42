//! Tests credentials that Keystone refuses.

use std::time::Duration;

use ccm_cloud::{Call, Cloud as _, ErrorKind, MetricsSink};
use ccm_openstack_client::api::{Api as _, Request, Service};
use ccm_testing::Log;
use futures::future::join_all;
use parking_lot::Mutex;
use prometheus_client::{encoding::text, registry::Registry};
use tokio::time::{Instant, advance, sleep};
use tracing::Level;

use super::cloud::{Move, PASSWORD, Rig, config};
use crate::cloud::OpenStackCloud;

/// A page of metrics.
#[derive(Default)]
pub struct Sink(Mutex<Registry>);

impl MetricsSink for Sink {
    fn add(&self, add: &mut dyn FnMut(&mut Registry)) {
        add(&mut self.0.lock());
    }
}

impl Sink {
    pub fn text(&self) -> String {
        let mut shown = String::new();
        text::encode(&mut shown, &self.0.lock()).unwrap();
        shown
    }
}

#[tokio::test(start_paused = true)]
async fn they_are_shown_again_after_half_a_minute_and_then_after_twice_as_long() {
    let rig = Rig::new();
    let sink = Sink::default();
    ccm_cloud::MetricsSink::add(&sink, &mut |registry| rig.metrics.register(registry));
    rig.cloud.set_password("changed");
    for (round, pause) in [(1, 30), (2, 60), (3, 120)] {
        for answer in join_all((0..20).map(|_| rig.nova(60))).await {
            let error = answer.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unauthorized);
            let text = error.to_string();
            for part in [
                "http://keystone/",
                "password of user \"u1\"",
                "refused: HTTP 401 (Keystone's words are in the log)",
            ] {
                assert!(text.contains(part), "{part} in {text}");
            }
            assert!(!text.contains(PASSWORD) && !text.contains("authentication"), "{text}");
        }
        assert_eq!(rig.cloud.logins(), round);
        advance(Duration::from_secs(pause - 1)).await;
        let error = rig.nova(60).await.unwrap_err();
        assert_eq!(error.retry_after, Some(Duration::from_secs(1)));
        assert_eq!(rig.cloud.logins(), round);
        advance(Duration::from_secs(1)).await;
    }
    assert!(sink.text().contains("openstack_credentials_refused 1"), "{}", sink.text());
    assert!(sink.text().contains("openstack_token_renewals_total{result=\"refused\"} 3"));

    rig.cloud.set_password(PASSWORD);
    rig.nova(60).await.unwrap();
    let text = sink.text();
    for line in [
        "openstack_credentials_refused 0",
        "openstack_token_renewals_total{result=\"ok\"} 1",
        "openstack_api_requests_total{request=\"token_create\"} 4",
        "openstack_api_request_errors_total{request=\"token_create\"} 3",
        "openstack_api_requests_total{request=\"version_list\"} 1",
        "openstack_api_requests_total{request=\"server_list\"} 1",
        "openstack_api_request_errors_total{request=\"server_list\"} 0",
        "openstack_api_request_duration_seconds_count{request=\"server_list\"} 1",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_locked_account_is_left_alone_too_and_named() {
    let locked = "{\"error\": {\"message\": \"The account is locked for user: u1.\"}}";
    for (status, kind) in [(401, ErrorKind::Unauthorized), (403, ErrorKind::Forbidden)] {
        let rig = Rig::new();
        rig.cloud.always("keystone", Some(Move::text(status, locked)));
        for _ in 0..5 {
            let error = rig.nova(60).await.unwrap_err();
            assert_eq!(error.kind, kind);
            assert!(error.message.contains("lockout_duration"), "{error}");
            assert!(!error.message.contains("for user: u1."), "{error}");
        }
        assert_eq!(rig.cloud.logins(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_refusals_is_seven_logins() {
    let rig = Rig::new();
    rig.cloud.set_password("changed");
    // An outage in between neither counts nor resets the count.
    rig.cloud.next("keystone", [Move::text(401, "{}"), Move::text(500, "{}")]);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_hours(1) {
        rig.nova(10).await.unwrap_err();
        sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(rig.cloud.logins(), 7 + 1);
    rig.cloud.set_password(PASSWORD);
    sleep(Duration::from_mins(5)).await;
    rig.nova(10).await.unwrap();
    rig.cloud.set_password("changed again");
    rig.cloud.revoke();
    rig.nova(10).await.unwrap_err();
    sleep(Duration::from_secs(30)).await;
    rig.nova(10).await.unwrap_err();
    assert_eq!(rig.cloud.logins(), 8 + 3, "a login that succeeds ends the count");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_refused_does_not_end_the_token_at_hand() {
    let rig = Rig::new();
    rig.cloud.set_life(Duration::from_secs(1000));
    rig.nova(10).await.unwrap();
    rig.cloud.set_password("changed");
    advance(Duration::from_secs(900)).await;
    for _ in 0..5 {
        rig.nova(10).await.unwrap();
    }
    assert_eq!(rig.cloud.logins(), 2);
    advance(Duration::from_secs(101)).await;
    assert_eq!(rig.nova(10).await.unwrap_err().kind, ErrorKind::Unauthorized);
}

#[tokio::test(start_paused = true)]
async fn the_probe_shows_what_is_wrong() {
    let rig = Rig::new();
    let call = Call::routine(Duration::from_secs(5));
    rig.client().probe(Service::Compute, call).await.unwrap();
    rig.cloud.next("nova", [Move::text(200, "{\"hello\": 1}")]);
    assert_eq!(
        rig.client().probe(Service::Compute, call).await.unwrap_err().kind,
        ErrorKind::Malformed
    );
    rig.cloud.set_password("changed");
    rig.cloud.revoke();
    assert_eq!(
        rig.client().probe(Service::Compute, call).await.unwrap_err().kind,
        ErrorKind::Unauthorized
    );
}

/// A Keystone may repeat the secret in another form, which nobody can remove: pages, events and
/// `/plan` must not show it.
#[tokio::test(start_paused = true)]
async fn what_keystone_says_about_a_login_is_in_the_log_alone() {
    let (log, echo) = (Log::new(), "Y29ycmVjdCBob3JzZQ");
    let _listening = log.listen(Level::WARN);
    let body = format!("{{\"error\": {{\"message\": \"bad {echo}\"}}}}");
    for (answer, expect) in [
        (Move::text(401, &body), "refused: HTTP 401 "),
        (Move::text(400, &body), "failed: HTTP 400 "),
        (Move::text(500, &format!("<html>{echo}</html>")), "failed: HTTP 500 "),
        (Move::text(302, "").with("location", echo), "failed: HTTP 302 "),
        (Move::text(201, &format!("[\"{echo}\"]")), "failed: HTTP 201 "),
        (
            Move::text(201, &format!("{{\"token\": \"{echo}\"}}")).with("x-subject-token", "t"),
            "failed: HTTP 201 ",
        ),
        (Move::text(403, &body).with("x-openstack-request-id", echo), "refused: HTTP 403 "),
    ] {
        let rig = Rig::new();
        rig.cloud.always("keystone", Some(answer));
        log.take();
        let error = rig.nova(10).await.unwrap_err();
        let expect = format!("\"p1\" {expect}(Keystone's words are in the log)");
        assert!(error.message.contains(&expect), "{expect} in {error}");
        assert!(!error.to_string().contains(echo), "{error}");
        assert!(log.text().contains("no token from Keystone"), "{}", log.text());
    }
    let rig = Rig::new();
    rig.cloud.always("keystone", Some(Move::text(401, &body)));
    rig.nova(10).await.unwrap_err();
    assert!(log.text().contains(echo), "{}", log.text());
    // A failure without an answer is reported completely.
    let rig = Rig::new();
    rig.cloud.always("keystone", Some(Move::Cut));
    let error = rig.nova(10).await.unwrap_err();
    assert!(!error.message.contains("in the log"), "{error}");
}

/// A catalog can be wrong or come from an attacker: it must not lead the token to a connection
/// without TLS.
#[tokio::test(start_paused = true)]
async fn a_token_had_by_tls_is_not_sent_without() {
    let rig = Rig::new();
    let cloud = |http_endpoints| {
        let mut config = config(PASSWORD);
        config.access.auth_url = "https://keystone".parse().unwrap();
        config.access.http_endpoints = http_endpoints;
        OpenStackCloud::new(rig.clients(), &config).unwrap()
    };
    let strict = cloud(false);
    let ask = async |cloud: &OpenStackCloud| {
        let call = Call::waiting(Duration::from_secs(10));
        let get = Request::get(Service::Compute, "server_list", "servers?limit=1");
        cloud.client().send(get, call).await
    };
    let error = ask(&strict).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert_eq!(
        error.message,
        "the catalog of https://keystone/ names http://nova/v2.1/p1 for compute, where the token would cross the \
         network in clear: correct the catalog, or set [Global] http-endpoints = true"
    );
    assert_eq!((rig.cloud.logins(), rig.cloud.count("nova", "/")), (1, 0));
    assert_eq!(strict.in_clear(), None);
    let lax = cloud(true);
    assert_eq!(lax.in_clear(), None, "nothing is known before a login");
    lax.client().log_in(&[], Call::waiting(Duration::from_secs(10))).await.unwrap();
    assert_eq!(lax.in_clear(), None, "nothing is asked by it");
    ask(&lax).await.unwrap();
    assert_eq!(lax.in_clear().as_deref(), Some("compute at http://nova/v2.1/p1"));
    // The provider does not look for services that nobody asks for.
    rig.cloud.set_octavia(None);
    advance(Duration::from_mins(5)).await;
    lax.in_clear();
    let logins = rig.cloud.logins();
    ask(&lax).await.unwrap();
    assert_eq!(rig.cloud.logins(), logins, "a look costs no login");
    // If Keystone itself has no TLS, the operator has already accepted that.
    rig.nova(10).await.unwrap();
    assert_eq!(rig.openstack.in_clear().as_deref(), Some("Keystone at http://keystone/"));
}
