//! Tests calls that are under way while the configuration is replaced.

use std::time::Duration;

use ccm_cloud::{Call, Cloud as _, CloudError, ErrorKind};
use ccm_openstack_client::api::Service;
use futures::{FutureExt as _, future::join_all};
use tokio::time::{Instant, sleep};

use super::{
    cloud::{Move, PASSWORD, Rig, config},
    credentials::Sink,
};
use crate::{cloud::Adopted, config::Config};

const NEW: &str = "battery staple";

/// Starts using another password, which the cloud accepts, after this many seconds.
async fn replace_after(rig: &Rig, seconds: u64) -> Result<(), CloudError> {
    sleep(Duration::from_secs(seconds)).await;
    rig.cloud.set_password(NEW);
    let call = Call::waiting(Duration::from_secs(20));
    rig.openstack.adopt(&config(NEW), call).await.map(|adopted| assert_eq!(adopted, Adopted::InUse))
}

/// Returns the results of three callers that start at once, and when the last one ends.
async fn callers(rig: &Rig) -> (Vec<Option<ErrorKind>>, u64) {
    let begin = Instant::now();
    let answers = join_all((0..3).map(|_| rig.ask(60))).await;
    let kinds = answers.into_iter().map(|answer| answer.err().map(|error| error.kind));
    (kinds.collect(), begin.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_login_goes_on_with_the_new_credentials() {
    let rig = Rig::new();
    rig.cloud.next("keystone", [Move::Hang]);
    let (ends, replaced) = tokio::join!(callers(&rig), replace_after(&rig, 3));
    replaced.unwrap();
    assert_eq!(ends, (vec![None; 3], 3), "not the half minute that a login may take");
    assert_eq!(rig.cloud.logins(), 2);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_novas_versions_goes_on_with_the_new_configuration() {
    let rig = Rig::new();
    rig.cloud.next("nova", [Move::Hang]);
    let (ends, replaced) = tokio::join!(callers(&rig), replace_after(&rig, 3));
    replaced.unwrap();
    assert_eq!(ends, (vec![None; 3], 3));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_end_of_keystones_pause_does_not_show_the_old_password() {
    let rig = Rig::new();
    rig.cloud.next("keystone", [Move::text(503, "").with("retry-after", "10")]);
    rig.ask(5).await.unwrap_err();
    // This caller has enough time for the pause, and the new password comes before its end.
    let (ends, replaced) = tokio::join!(callers(&rig), replace_after(&rig, 0));
    replaced.unwrap();
    assert_eq!(ends.1, 10);
    // Either may send the password first; the caller that waited is not refused.
    let shown = |password: &str| {
        let seen = rig.cloud.seen();
        let bodies = seen.iter().map(|seen| String::from_utf8_lossy(&seen.body).into_owned());
        bodies.filter(|body| body.contains(password)).count()
    };
    let refused = ends.0.iter().flatten().count();
    assert!(refused == 0 || shown(PASSWORD) == 2, "{ends:?}");
    assert_eq!(shown(NEW), 1);
    rig.ask(5).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_token_of_before_that_is_refused_costs_no_login_with_the_old_password() {
    let rig = Rig::new();
    rig.ask(10).await.unwrap();
    rig.cloud.revoke();
    rig.cloud.next("nova", [Move::Slow(Duration::from_secs(5))]);
    let (answer, replaced) = tokio::join!(rig.ask(60), replace_after(&rig, 2));
    replaced.unwrap();
    answer.unwrap();
    assert_eq!(rig.cloud.logins(), 2, "one each");
}

#[tokio::test(start_paused = true)]
async fn other_settings_and_another_project_wait_for_a_restart() {
    let rig = Rig::new();
    rig.ask(10).await.unwrap();
    let adopt = async |config: &Config| {
        rig.openstack.adopt(config, Call::waiting(Duration::from_secs(20))).await
    };
    let at_restart = |what: &str| Ok(Adopted::AtRestart(what.to_owned()));
    let announced = || rig.openstack.outdated().now_or_never();
    let mut timed = config(PASSWORD);
    timed.access.request_timeout = Duration::from_secs(5);
    assert_eq!(adopt(&timed).await, at_restart("request-timeout"));
    assert_eq!(announced().as_deref(), Some("request-timeout"));
    let before = rig.cloud.logins();
    rig.ask(10).await.unwrap();
    assert_eq!(rig.cloud.logins(), before, "the old session goes on");

    // A change that does not work announces nothing, and cancels earlier announcements.
    let mut elsewhere = config(PASSWORD);
    elsewhere.access.region = Some("two".to_owned());
    adopt(&elsewhere).await.unwrap_err();
    assert_eq!(announced(), None);
    assert_eq!(adopt(&timed).await, at_restart("request-timeout"));
    assert_eq!(adopt(&config(PASSWORD)).await, Ok(Adopted::InUse), "as it was");
    assert_eq!(announced(), None);

    rig.cloud.set_project(Some("p2"));
    assert_eq!(adopt(&config(PASSWORD)).await, at_restart("project"));
    assert_eq!(rig.client().project().unwrap().id, "p1");
}

#[tokio::test(start_paused = true)]
async fn settings_that_work_are_not_given_up_for_some_that_do_not() {
    for (host, works) in [("nova", true), ("neutron", true), ("nova", false)] {
        let rig = Rig::new();
        if works {
            rig.ask(10).await.unwrap();
            rig.get(Service::Network, 10).await.unwrap();
        }
        let forbidden = r#"{"forbidden": {"code": 403, "message": "no rule for it"}}"#;
        rig.cloud.always(host, Some(Move::text(403, forbidden)));
        let replaced = replace_after(&rig, 0).await.map_err(|error| error.kind);
        rig.cloud.always(host, None);
        rig.cloud.revoke();
        let outcome = rig.ask(10).await.map_err(|error| error.kind);
        let (expect, after) = match works {
            // The previous session continues with the password that the cloud no longer accepts.
            true => (Err(ErrorKind::Forbidden), Err(ErrorKind::Unauthorized)),
            false => (Ok(()), Ok(())),
        };
        assert_eq!((replaced, outcome), (expect, after), "{host} {works}");
    }
}

#[tokio::test(start_paused = true)]
async fn settings_that_do_not_work_any_more_give_way_to_some_that_keystone_takes() {
    let rig = Rig::new();
    rig.ask(10).await.unwrap();
    rig.get(Service::Network, 10).await.unwrap();
    rig.cloud.set_password(NEW);
    rig.cloud.revoke();
    rig.ask(10).await.unwrap_err();
    rig.get(Service::Network, 10).await.unwrap_err();
    let forbidden = r#"{"forbidden": {"code": 403, "message": "no rule for it"}}"#;
    rig.cloud.always("neutron", Some(Move::text(403, forbidden)));
    replace_after(&rig, 0).await.unwrap();
    rig.ask(10).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_a_trial_meets_holds_for_the_settings_in_use() {
    let rig = Rig::new();
    rig.ask(10).await.unwrap();
    let busy = Move::text(503, "busy").with("retry-after", "300");
    rig.cloud.next("nova", [busy]);
    let call = Call::waiting(Duration::from_secs(20));
    rig.openstack.adopt(&config(PASSWORD), call).await.unwrap_err();
    assert_eq!(rig.ask(10).await.unwrap_err().kind, ErrorKind::Throttled);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_asked_does_not_keep_settings_from_use() {
    let rig = Rig::new();
    rig.ask(10).await.unwrap();
    rig.cloud.always("neutron", Some(Move::text(403, "no rule for it")));
    replace_after(&rig, 0).await.unwrap();
    assert_eq!(rig.cloud.count("neutron", "/"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refused_caller_does_not_wait_half_a_minute() {
    let rig = Rig::new();
    rig.cloud.set_password(NEW);
    for _ in 0..3 {
        let error = rig.ask(60).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unauthorized);
        assert_eq!(error.retry_after, Some(Duration::from_secs(5)));
        sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(rig.cloud.logins(), 1, "asking again costs no login");
    replace_after(&rig, 0).await.unwrap();
    let begin = Instant::now();
    rig.ask(60).await.unwrap();
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_login_of_before_does_not_raise_the_alarm_after_the_change() {
    let (rig, sink) = (Rig::new(), Sink::default());
    ccm_cloud::MetricsSink::add(&sink, &mut |registry| rig.metrics.register(registry));
    rig.cloud.next("keystone", [Move::Slow(Duration::from_secs(20))]);
    let (ends, replaced) = tokio::join!(callers(&rig), replace_after(&rig, 1));
    replaced.unwrap();
    assert_eq!(ends, (vec![None; 3], 1));
    sleep(Duration::from_secs(30)).await;
    let page = sink.text();
    assert!(page.contains("openstack_credentials_refused 0"), "{page}");
    assert!(!page.contains("result=\"refused\""), "{page}");
}

#[tokio::test(start_paused = true)]
async fn the_identity_is_that_of_the_token_and_says_nothing_of_the_credentials() {
    let rig = Rig::new();
    assert_eq!(rig.openstack.identity(), None, "nothing was asked yet");
    assert!(rig.openstack.instances().is_err());
    rig.ask(10).await.unwrap();
    let one = Some("project p1, region one, keystone");
    assert_eq!(rig.openstack.identity().as_deref(), one);
    replace_after(&rig, 0).await.unwrap();
    assert_eq!(rig.openstack.identity().as_deref(), one, "another password");

    // Keystone gives the same user a token for another project.
    rig.cloud.set_project(Some("p2"));
    rig.cloud.revoke();
    rig.ask(10).await.unwrap();
    assert_eq!(rig.openstack.identity().as_deref(), Some("project p2, region one, keystone"));
}

/// No `region` in cloud.conf. The administrator disables Octavia's endpoint of region one for
/// maintenance (disabled endpoints are in no catalog): The provider asks Octavia of region two, and
/// the cloud still has the same identity.
#[tokio::test(start_paused = true)]
async fn octavia_of_another_region_is_another_cloud() {
    let rig = Rig::without_region();
    rig.ask(10).await.unwrap();
    rig.get(Service::LoadBalancer, 10).await.unwrap();
    let before = rig.openstack.identity();
    assert_eq!(before.as_deref(), Some("project p1, region one, keystone"));
    rig.cloud.set_octavia(Some(("http://octavia-two/v2.0", "two")));
    rig.cloud.revoke();
    let answer = rig.get(Service::LoadBalancer, 10).await;
    let asked = rig.cloud.count("octavia-two", "/");
    assert!(
        asked == 0 || rig.openstack.identity() != before,
        "{asked} requests to region two: {:?}; identity {:?}",
        answer.map(|_| "answered"),
        rig.openstack.identity()
    );
}
