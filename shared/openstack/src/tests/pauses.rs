//! Tests pauses that a service asks for.

use std::time::Duration;

use ccm_base::clock;
use ccm_cloud::ErrorKind;
use ccm_openstack_client::api::Service;
use futures::future::join_all;
use jiff::fmt::rfc2822::DateTimePrinter;
use tokio::time::Instant;

use super::cloud::{Move, Rig};

#[tokio::test(start_paused = true)]
async fn retry_after_closes_one_service_for_all_callers() {
    for status in [429, 503] {
        let rig = Rig::new();
        rig.nova(10).await.unwrap();
        let before = rig.cloud.count("nova", "/v2.1/p1");
        rig.cloud.next("nova", [Move::text(status, "{}").with("retry-after", "30")]);
        let begin = Instant::now();
        let error = rig.nova(10).await.unwrap_err();
        assert_eq!((error.kind, begin.elapsed()), (ErrorKind::Throttled, Duration::ZERO));
        assert_eq!(error.retry_after, Some(Duration::from_secs(30)));

        tokio::time::advance(Duration::from_secs(10)).await;
        let error = rig.nova(19).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Throttled);
        assert_eq!(error.retry_after.map(|wait| wait.as_secs()), Some(20));
        assert_eq!(begin.elapsed().as_secs(), 10, "told at once");
        rig.get(Service::Network, 1).await.unwrap();
        assert_eq!(rig.cloud.count("nova", "/v2.1/p1"), before + 1, "Nova is left alone");

        for answer in join_all((0..10).map(|_| rig.nova(60))).await {
            answer.unwrap();
        }
        assert!((30..31).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
        assert_eq!(rig.cloud.count("nova", "/v2.1/p1"), before + 11);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_time_waits_and_succeeds() {
    let rig = Rig::new();
    rig.nova(10).await.unwrap();
    let date = clock::wall() + jiff::SignedDuration::from_secs(20);
    let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&date).unwrap();
    rig.cloud.next("nova", [Move::text(429, "{}").with("retry-after", &date)]);
    let begin = Instant::now();
    rig.nova(60).await.unwrap();
    assert!((18..22).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn keystone_can_ask_for_a_pause_too() {
    let rig = Rig::new();
    rig.cloud.next("keystone", [Move::text(503, "").with("retry-after", "20")]);
    let begin = Instant::now();
    let calls = join_all([5, 10, 40].map(|seconds| rig.nova(seconds)));
    let kinds: Vec<_> =
        calls.await.into_iter().map(|answer| answer.err().map(|error| error.kind)).collect();
    assert_eq!(kinds, [Some(ErrorKind::Throttled), Some(ErrorKind::Throttled), None]);
    assert!((20..22).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    assert_eq!(rig.cloud.logins(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_novas_version_document_asks_for_is_waited_for() {
    for (status, pause) in [(503, "5"), (429, "20"), (429, "1")] {
        let rig = Rig::new();
        let busy = Move::text(status, "{}").with("retry-after", pause);
        rig.cloud.next("nova", [busy.clone(), busy]);
        let begin = Instant::now();
        let calls = join_all([3, 60, 60, 60].map(|seconds| rig.nova(seconds)));
        let kinds: Vec<_> =
            calls.await.into_iter().map(|answer| answer.err().map(|error| error.kind)).collect();
        let seconds: u64 = pause.parse().unwrap();
        let hasty = (2 * seconds > 3).then_some(ErrorKind::Throttled);
        assert_eq!(kinds, [hasty, None, None, None], "{status} {pause}");
        let took = begin.elapsed().as_secs();
        assert!((2 * seconds..=2 * seconds + 1).contains(&took), "{took} s for two of {pause} s");
        let looks = rig.cloud.seen().iter().filter(|seen| seen.path == "/v2.1/").count();
        assert_eq!(looks, 3, "one for all after each pause");
    }
}

#[tokio::test(start_paused = true)]
async fn without_retry_after_the_waits_grow() {
    let rig = Rig::new();
    rig.nova(10).await.unwrap();
    rig.cloud.always("nova", Some(Move::text(429, "{}")));
    let before = rig.cloud.seen().len();
    let error = rig.nova(60).await.unwrap_err();
    assert_eq!((error.kind, error.retry_after), (ErrorKind::Throttled, None));
    let times: Vec<_> = rig.cloud.seen()[before..].iter().map(|seen| seen.at).collect();
    assert_eq!(times.len(), 4);
    for (pair, longest) in times.windows(2).zip([200, 600, 1800]) {
        let wait = (pair[1] - pair[0]).as_millis();
        assert!((longest / 2..=longest + 2).contains(&wait), "{wait} of {longest} ms");
    }
}
