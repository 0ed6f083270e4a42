//! Tests one token for all callers.

use std::time::Duration;

use ccm_cloud::{Call, Capability, Claim, Cloud as _, ErrorKind};
use ccm_openstack_client::api::Service;
use futures::future::join_all;
use tokio::time::{Instant, advance, sleep};

use super::cloud::{Move, PASSWORD, Rig, config};
use crate::{cloud::OpenStackCloud, config::Config};

#[tokio::test(start_paused = true)]
async fn a_revoked_token_costs_one_login_however_many_call() {
    let rig = Rig::new();
    rig.nova(10).await.unwrap();
    rig.get(Service::Network, 10).await.unwrap();
    rig.cloud.revoke();
    assert_eq!(rig.client().project().unwrap().id, "p1");
    let services = [Service::Compute, Service::Network].into_iter().cycle();
    let answers = join_all(services.take(50).map(|service| rig.get(service, 10))).await;
    for answer in answers {
        assert_eq!(answer.unwrap().status, 200);
    }
    assert_eq!(rig.cloud.logins(), 2);
    assert_eq!(rig.cloud.count("nova", "/v2.1/p1/servers"), 1 + 2 * 25);
    assert_eq!(rig.cloud.count("neutron", "/v2.0/ports"), 1 + 2 * 25);
    let versions = rig.cloud.seen().iter().filter(|seen| seen.path == "/v2.1/").count();
    assert!(versions <= 2, "{versions} looks: one with each login");
}

#[tokio::test(start_paused = true)]
async fn the_first_callers_share_one_login_and_one_look_at_versions() {
    let rig = Rig::new();
    for answer in join_all((0..50).map(|_| rig.nova(10))).await {
        answer.unwrap();
    }
    assert_eq!((rig.cloud.logins(), rig.cloud.seen().len()), (1, 52));
}

#[tokio::test(start_paused = true)]
async fn each_waiter_has_its_own_deadline_and_the_login_goes_on() {
    let rig = Rig::new();
    rig.cloud.next("keystone", [Move::Slow(Duration::from_secs(5))]);
    let begin = Instant::now();
    let timed = |seconds: u64| {
        let rig = &rig;
        async move { (rig.nova(seconds).await, begin.elapsed().as_secs()) }
    };
    let ends = join_all([1, 2, 3, 10, 20].map(timed)).await;
    let kinds: Vec<_> = ends
        .iter()
        .map(|(outcome, at)| (outcome.as_ref().err().map(|error| error.kind), *at))
        .collect();
    let late = Some(ErrorKind::Timeout);
    assert_eq!(kinds, [(late, 1), (late, 2), (late, 3), (None, 5), (None, 5)]);
    assert_eq!(rig.cloud.logins(), 1);
    let error = ends[0].0.as_ref().unwrap_err().to_string();
    assert!(
        error.contains("http://keystone/") && error.contains("password of user \"u1\""),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_keystone_that_hangs_delays_no_caller() {
    let rig = Rig::new();
    rig.cloud.always("keystone", Some(Move::Hang));
    let begin = Instant::now();
    for answer in join_all((0..20).map(|_| rig.nova(7))).await {
        assert_eq!(answer.unwrap_err().kind, ErrorKind::Timeout);
    }
    assert_eq!(begin.elapsed().as_secs(), 7);
    assert_eq!(rig.cloud.logins(), 1);
    // The login that hangs is given up in time, and then logins work again.
    rig.cloud.always("keystone", None);
    rig.nova(60).await.unwrap();
    assert_eq!((begin.elapsed().as_secs(), rig.cloud.logins()), (30, 2));
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_before_its_end_and_no_request_waits() {
    let rig = Rig::new();
    rig.cloud.set_life(Duration::from_secs(1000));
    rig.nova(10).await.unwrap();
    advance(Duration::from_secs(799)).await;
    rig.nova(10).await.unwrap();
    assert_eq!(rig.cloud.logins(), 1);
    advance(Duration::from_secs(2)).await;
    rig.cloud.next("keystone", [Move::Slow(Duration::from_secs(3))]);
    let begin = Instant::now();
    join_all((0..10).map(|_| async { rig.nova(10).await.unwrap() })).await;
    assert!(begin.elapsed() < Duration::from_secs(1), "no caller waits");
    sleep(Duration::from_secs(4)).await;
    rig.nova(10).await.unwrap();
    assert_eq!(rig.cloud.logins(), 2);
    let last = rig.cloud.seen().pop().unwrap();
    assert_eq!(last.header("x-auth-token"), Some("gAAAA-token-2"));
}

#[tokio::test(start_paused = true)]
async fn a_token_past_its_end_is_not_shown() {
    let rig = Rig::new();
    rig.cloud.set_life(Duration::from_secs(1000));
    rig.nova(10).await.unwrap();
    advance(Duration::from_secs(1001)).await;
    rig.nova(10).await.unwrap();
    assert_eq!(
        (rig.cloud.logins(), rig.cloud.count("nova", "/v2.1/p1")),
        (2, 2),
        "no 401 in between"
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_that_refuses_every_token_does_not_cause_a_login_per_call() {
    let rig = Rig::new();
    rig.get(Service::Network, 10).await.unwrap();
    rig.cloud.always("nova", Some(Move::text(401, "{}")));
    for _ in 0..20 {
        assert_eq!(rig.nova(10).await.unwrap_err().kind, ErrorKind::Unauthorized);
    }
    assert_eq!(rig.cloud.logins(), 2, "one at the start, one because of Nova");
    rig.cloud.always("nova", None);
    rig.nova(10).await.unwrap();
    rig.cloud.revoke();
    rig.nova(10).await.unwrap();
    assert_eq!(rig.cloud.logins(), 3, "a good answer restores trust");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_goes_on_refusing_tokens_causes_ever_fewer_logins() {
    let rig = Rig::new();
    rig.nova(10).await.unwrap();
    rig.cloud.always("neutron", Some(Move::text(401, "{}")));
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_hours(1) {
        for answer in join_all((0..3).map(|_| rig.get(Service::Network, 4))).await {
            assert_eq!(answer.unwrap_err().kind, ErrorKind::Unauthorized);
        }
        rig.nova(10).await.unwrap();
        sleep(Duration::from_secs(4)).await;
    }
    // At once, then 5 s, 10 s, ... 320 s and 10 min after the one before.
    assert_eq!(rig.cloud.logins(), 1 + 12);
    rig.cloud.always("neutron", None);
    rig.get(Service::Network, 4).await.unwrap();
    rig.cloud.revoke();
    rig.get(Service::Network, 4).await.unwrap();
    assert_eq!(rig.cloud.logins(), 1 + 12 + 1, "a good answer restores trust");
}

#[tokio::test(start_paused = true)]
async fn a_look_at_versions_with_an_old_token_does_not_cost_the_new_one() {
    let rig = Rig::new();
    rig.get(Service::Network, 10).await.unwrap();
    rig.cloud.revoke();
    rig.cloud.next("nova", [Move::Slow(Duration::from_secs(5))]);
    let later = |seconds, service| {
        let rig = &rig;
        async move {
            sleep(Duration::from_secs(seconds)).await;
            rig.get(service, 30).await.map(|answer| answer.status)
        }
    };
    let (compute, network) = (Service::Compute, Service::Network);
    let answers = tokio::join!(later(0, compute), later(1, network), later(2, compute));
    assert_eq!(answers, (Ok(200), Ok(200), Ok(200)));
    assert_eq!(rig.cloud.logins(), 2, "the second token was good all the time");
}

#[tokio::test(start_paused = true)]
async fn a_failing_keystone_is_not_asked_per_caller() {
    let rig = Rig::new();
    rig.cloud.always("keystone", Some(Move::text(503, "busy")));
    for answer in join_all((0..50).map(|_| rig.nova(60))).await {
        assert_eq!(answer.unwrap_err().kind, ErrorKind::Unavailable);
    }
    let logins = rig.cloud.logins();
    assert!((2..=4).contains(&logins), "{logins} logins for 50 callers with 3 repetitions each");
}

#[tokio::test(start_paused = true)]
async fn another_configuration_is_used_only_if_it_works() {
    let rig = Rig::new();
    rig.nova(10).await.unwrap();
    let replace = async |password: &str, region: &str| {
        let call = Call::waiting(Duration::from_secs(10));
        let mut config = config(password);
        config.access.region = Some(region.to_owned());
        rig.openstack.adopt(&config, call).await
    };
    let error = replace("wrong", "one").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unauthorized);
    let error = replace(PASSWORD, "two").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(rig.client().lies_in("one"));
    let before = rig.cloud.logins();
    rig.nova(10).await.unwrap();
    assert_eq!(rig.cloud.logins(), before, "the old session goes on");

    rig.cloud.set_password("new");
    replace("new", "one").await.unwrap();
    rig.cloud.revoke();
    rig.nova(10).await.unwrap();
    assert_eq!(rig.client().project().unwrap().id, "p1");
}

/// Returns a cloud with these settings besides the required ones, once it has answered.
async fn answering(rig: &Rig, region: Option<&str>, regional_ids: bool) -> OpenStackCloud {
    let mut config = Config { regional_ids, ..config(PASSWORD) };
    config.access.region = region.map(str::to_owned);
    let cloud = OpenStackCloud::new(rig.clients(), &config).unwrap();
    cloud.health(Call::waiting(Duration::from_secs(10))).await.unwrap();
    cloud
}

#[tokio::test(start_paused = true)]
async fn a_provider_id_of_the_region_in_use_is_ours_in_every_spelling() {
    let rig = Rig::new();
    let id = "0f0e0d0c-1111-2222-3333-00000000abcd";
    let (plain, regional) = (format!("openstack:///{id}"), format!("openstack://one/{id}"));
    for (region, regional_ids, expect) in [
        (None, false, &plain),
        (None, true, &plain),
        (Some("one"), false, &plain),
        (Some("one"), true, &regional),
    ] {
        let cloud = answering(&rig, region, regional_ids).await;
        for spelt in [
            plain.clone(),
            regional.clone(),
            format!("openstack:///{}", id.to_uppercase()),
            format!("/{id}"),
            format!("one/{id}"),
        ] {
            assert_eq!(cloud.claim(Some(&spelt)), Claim::Ours, "{spelt} in {region:?}");
            assert_eq!(cloud.canonical_id(&spelt), **expect, "{spelt} in {region:?}");
        }
        for other in [format!("openstack://two/{id}"), format!("aws:///{id}")] {
            assert_eq!(cloud.claim(Some(&other)), Claim::Foreign, "{other} in {region:?}");
            assert_eq!(cloud.canonical_id(&other), other);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_region_that_is_not_known_yet_is_not_ours() {
    let rig = Rig::new();
    let mut config = config(PASSWORD);
    config.access.region = None;
    let cloud = OpenStackCloud::new(rig.clients(), &config).unwrap();
    let id = "openstack://one/0f0e0d0c-1111-2222-3333-00000000abcd";
    assert_eq!(cloud.claim(Some(id)), Claim::Foreign, "before the first login");
}

#[tokio::test(start_paused = true)]
async fn a_login_for_no_project_finds_no_server_gone() {
    let rig = Rig::new();
    rig.cloud.set_project(None);
    let error = rig.nova(10).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains("no project"), "{error}");
    assert_eq!(rig.cloud.count("nova", "/"), 0);
}

/// A node of another region has the scheme of this provider.
#[tokio::test(start_paused = true)]
async fn what_is_foreign_is_told_by_what_differs() {
    let rig = Rig::new();
    let other = "openstack://two/0f0e0d0c-1111-2222-3333-00000000abcd";
    for (region, expect) in [
        (
            Some("one"),
            "names the region two, and this provider serves one (cloud.conf [Global] region)",
        ),
        (
            None,
            "names the region two, and this provider serves one (cloud.conf [Global] region in the catalog)",
        ),
    ] {
        let cloud = answering(&rig, region, false).await;
        assert_eq!(cloud.why_foreign(other), expect, "{region:?}");
        assert_eq!(cloud.why_foreign("aws:///i-1"), "has no scheme of this provider (openstack)");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_capability_has_its_cause() {
    let rig = Rig::new();
    let config = |change: fn(&mut Config)| {
        let mut config = config(PASSWORD);
        change(&mut config);
        config
    };
    let off = config(|config| config.load_balancer.enabled = false);
    let cloud = OpenStackCloud::new(rig.clients(), &off).unwrap();
    let why = |cloud: &OpenStackCloud, of| cloud.why_not_offered(of).unwrap_or_default();
    assert_eq!(why(&cloud, Capability::LoadBalancers), "[LoadBalancer] enabled is false");
    assert_eq!(why(&cloud, Capability::Routes), "[Route] router-id is not set");
    for (octavia, expect) in [
        (None, "the catalog of region one has no load-balancer endpoint (it has compute, network)"),
        (
            Some(("http://octavia", "two")),
            "the catalog of region one has no load-balancer endpoint (it has one in two)",
        ),
        (Some(("http://octavia", "one")), ""),
    ] {
        rig.cloud.set_octavia(octavia);
        let cloud = OpenStackCloud::new(rig.clients(), &config(|_| ())).unwrap();
        assert_eq!(why(&cloud, Capability::LoadBalancers), "", "nothing is known before a login");
        cloud.load_balancers().ok();
        cloud.health(Call::waiting(Duration::from_secs(10))).await.ok();
        assert_eq!(why(&cloud, Capability::LoadBalancers), expect, "{octavia:?}");
    }
}

/// The message says who logs in, for what and where, because readers ask these questions first. It
/// never shows the secret.
#[tokio::test(start_paused = true)]
async fn a_refused_login_names_user_project_and_url() {
    let rig = Rig::new();
    rig.cloud.set_password("another one");
    let error = rig.nova(10).await.unwrap_err();
    let expect =
        "login at http://keystone/ by password of user \"u1\" for project \"p1\" refused: ";
    assert!(error.message.starts_with(expect), "{error}");
    assert!(!error.message.contains(PASSWORD), "{error}");
}
