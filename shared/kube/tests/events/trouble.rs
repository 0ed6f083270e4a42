//! Events that cannot be written.

use std::time::Duration;

use ccm_kube::events::{EventKind, EventMetrics, EventRecorder};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::time::{Instant, sleep};

use crate::bench::{Bench, Fault, about};

#[test]
fn a_muted_recorder_counts_what_it_drops() {
    let (metrics, mut registry) = (EventMetrics::default(), Registry::default());
    metrics.register(&mut registry);
    let recorder = EventRecorder::muted(metrics);
    for _ in 0..2 {
        recorder.record(&about("node-1"), EventKind::Normal, "Synced", "not written");
    }
    let mut page = String::new();
    encode(&mut page, &registry).unwrap();
    assert!(page.contains("ccm_events_dropped_total{reason=\"observing\"} 2\n"), "{page}");
}

#[tokio::test(start_paused = true)]
async fn what_the_server_refuses_is_tried_once() {
    for code in [400, 401, 403, 404, 422, 500] {
        let bench = Bench::start();
        bench.server.fail([Some(Fault::Status(code))]);
        bench.record("node-1", "refused");
        bench.record("node-2", "taken");
        sleep(Duration::from_mins(5)).await;
        assert_eq!(bench.server.requests().len(), 2, "{code}");
        assert_eq!((bench.sent(), bench.dropped("failed")), (1, 1), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_server_does_not_take_is_tried_twelve_times() {
    let overloaded = [429, 503, 504].map(Fault::Status);
    for fault in [Fault::Unreachable, Fault::Nonsense].into_iter().chain(overloaded) {
        let bench = Bench::start();
        bench.server.fail(vec![Some(fault.clone()); 12]);
        bench.record("node-1", "lost");
        bench.record("node-2", "taken");
        sleep(Duration::from_mins(5)).await;
        let times = bench.server.times();
        assert_eq!(times.len(), 13, "{fault:?}");
        let waits: Vec<_> = times[..12].windows(2).map(|pair| pair[1] - pair[0]).collect();
        let step = Duration::from_secs(10);
        assert!(waits[0] <= step, "{waits:?}");
        assert!(waits[1..].iter().all(|wait| *wait >= step && *wait < step * 2), "{waits:?}");
        assert_eq!((bench.sent(), bench.dropped("failed")), (1, 1), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_that_succeeds_is_the_last() {
    let bench = Bench::start();
    bench.server.fail([Some(Fault::Unreachable)]);
    bench.record("node-1", "once");
    sleep(Duration::from_mins(5)).await;
    assert_eq!(bench.server.requests().len(), 2);
    assert_eq!((bench.sent(), bench.dropped("failed")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_answer_was_lost_is_not_written_twice() {
    let bench = Bench::start();
    bench.server.fail([Some(Fault::AnswerLost), None, Some(Fault::AnswerLost)]);
    bench.record("node-1", "same");
    bench.record("node-1", "same");
    sleep(Duration::from_mins(1)).await;
    let events = bench.server.events();
    assert_eq!((events.len(), &events[0]["count"]), (1, &serde_json::json!(2)));
    assert_eq!(bench.sent(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_was_never_written_is_created_when_it_happens_again() {
    let bench = Bench::start();
    bench.server.fail([Some(Fault::Status(500))]);
    bench.record("node-1", "same");
    bench.record("node-1", "same");
    bench.a_moment().await;
    let events = bench.server.events();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["count"], 2, "it did happen twice");
}

#[tokio::test(start_paused = true)]
async fn a_stuck_server_holds_up_events_for_two_minutes_and_recording_not_at_all() {
    let bench = Bench::start();
    bench.server.fail_always(Some(Fault::Stuck));
    let start = Instant::now();
    for number in 0..1500 {
        bench.record(&format!("node-{number}"), "message");
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(bench.dropped("queue_full"), 500);
    sleep(Duration::from_secs(119)).await;
    assert_eq!(bench.dropped("failed"), 0);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(bench.dropped("failed"), 1);
    bench.server.fail_always(None);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(bench.sent() + bench.dropped("failed"), 1000, "what waited is written");
    assert!(bench.sent() >= 998, "{}", bench.sent());
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_written_before_the_end() {
    let mut bench = Bench::start();
    for number in 0..500 {
        bench.record(&format!("node-{number}"), "message");
    }
    assert!(bench.stopped().await < Duration::from_millis(100));
    assert_eq!(bench.server.events().len(), 500);
    bench.record("node-1", "too late");
    assert_eq!((bench.sent(), bench.dropped("shutdown"), bench.dropped("queue_full")), (500, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_end_does_not_wait_for_a_stuck_server() {
    let mut bench = Bench::start();
    bench.server.fail_always(Some(Fault::Stuck));
    for number in 0..10 {
        bench.record(&format!("node-{number}"), "message");
    }
    sleep(Duration::from_secs(3)).await;
    assert_eq!(bench.stopped().await, Duration::from_secs(2));
    assert_eq!(bench.dropped("shutdown"), 10);
    assert_eq!(bench.server.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_tried_a_second_time_once_the_end_has_come() {
    let mut bench = Bench::start();
    bench.server.fail_always(Some(Fault::Unreachable));
    bench.record("node-1", "in the middle of its tries");
    bench.record("node-2", "waiting");
    sleep(Duration::from_secs(15)).await;
    let tries = bench.server.requests().len();
    assert!((2..=3).contains(&tries), "{tries}");
    assert_eq!(bench.stopped().await, Duration::ZERO);
    assert_eq!(bench.server.requests().len(), 1, "the other one gets one try");
    assert_eq!(bench.dropped("failed"), 2);
}
