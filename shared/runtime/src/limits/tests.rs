//! Tests of waiting at buckets, with paused time.

use std::{cell::RefCell, time::Duration};

use ccm_cloud::Priority;
use ccm_kube::client::{RequestClass, RequestLimiter};
use prometheus_client::metrics::histogram::Histogram;
use proptest::prelude::*;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::*;
use crate::metrics::Metrics;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn bucket(per_second: f64, burst: u32) -> TokenBucket {
    TokenBucket::new(Rate::new(per_second, burst), Histogram::new([1.0]))
}

async fn take(bucket: &TokenBucket, count: usize) {
    for _ in 0..count {
        bucket.admit(Priority::Waiting).await;
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_get_their_turns_at_the_rate() {
    let bucket = bucket(10.0, 5);
    let began = Instant::now();
    take(&bucket, 5).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(
        bucket.admit(Priority::Waiting).await.as_millis(),
        101,
        "timers have whole milliseconds"
    );
    take(&bucket, 50).await;
    assert!((5_090..5_120).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn first_come_first_served_within_a_priority_and_the_waiting_first() {
    let bucket = bucket(10.0, 1);
    take(&bucket, 1).await;
    let order = RefCell::new(Vec::new());
    let waiter = |id: &'static str, after: u64, priority| {
        let (bucket, order) = (bucket.clone(), &order);
        async move {
            sleep(ms(after)).await;
            bucket.admit(priority).await;
            order.borrow_mut().push(id);
        }
    };
    tokio::join!(
        waiter("r1", 1, Priority::Routine),
        waiter("r2", 2, Priority::Routine),
        waiter("w1", 3, Priority::Waiting),
        waiter("w2", 4, Priority::Waiting),
        waiter("w3", 150, Priority::Waiting),
    );
    assert_eq!(*order.borrow(), ["w1", "w2", "w3", "r1", "r2"]);
}

#[tokio::test(start_paused = true)]
async fn routine_does_not_starve() {
    let bucket = bucket(100.0, 1);
    let crowd = async {
        loop {
            tokio::join!(take(&bucket, 10), take(&bucket, 10), take(&bucket, 10));
        }
    };
    let routine = async {
        let began = Instant::now();
        for _ in 0..10 {
            bucket.admit(Priority::Routine).await;
        }
        began.elapsed()
    };
    let took = tokio::select! {
        took = routine => took,
        () = crowd => unreachable!("it never ends"),
    };
    assert!((ms(700)..ms(1100)).contains(&took), "one turn in nine: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_has_taken_nothing() {
    let bucket = bucket(10.0, 1);
    take(&bucket, 1).await;
    let began = Instant::now();
    let patient = async {
        take(&bucket, 10).await;
        began.elapsed().as_millis()
    };
    let impatient = async {
        for _ in 0..40 {
            assert!(timeout(ms(20), bucket.admit(Priority::Waiting)).await.is_err());
        }
    };
    let (took, ()) = tokio::join!(patient, impatient);
    assert!((1000..1030).contains(&took), "{took} ms");
    assert_eq!(bucket.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_new_rate_holds_for_those_who_wait() {
    let bucket = bucket(0.01, 1);
    take(&bucket, 1).await;
    let began = Instant::now();
    let change = async {
        sleep(ms(500)).await;
        bucket.configure(Rate::new(10.0, 1));
    };
    tokio::join!(take(&bucket, 2), change);
    assert!((690..710).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());

    let lift = async {
        sleep(ms(10)).await;
        bucket.configure(Rate::UNLIMITED);
    };
    let began = Instant::now();
    tokio::join!(take(&bucket, 100), lift);
    assert_eq!(began.elapsed(), ms(10));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_cannot_be_met_fails_at_once() {
    let bucket = bucket(10.0, 1);
    take(&bucket, 1).await;
    let now = Instant::now();
    let by = |millis: u64| bucket.admit_by(Priority::Waiting, now + ms(millis));
    assert_eq!(by(50).await, Err(Refused::NoTurn));
    let third = async {
        sleep(ms(99)).await;
        (by(290).await, now.elapsed())
    };
    let fourth = async {
        sleep(ms(99)).await;
        (by(310).await, now.elapsed())
    };
    let (first, second, third, fourth) = tokio::join!(by(250), by(250), third, fourth);
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(third, (Err(Refused::NoTurn), ms(99)), "the third turn is after 300 ms");
    assert!(fourth.0.is_ok(), "now the third turn is free");

    bucket.close_for(ms(5000));
    let now = Instant::now();
    assert_eq!(
        bucket.admit_by(Priority::Waiting, now + ms(4999)).await,
        Err(Refused::Closed { left: ms(5000) })
    );
    assert_eq!(now.elapsed(), Duration::ZERO);
    assert_eq!(bucket.admit_by(Priority::Waiting, now + ms(5001)).await, Ok(ms(5000)));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_others_take_away_fails_in_time() {
    let bucket = bucket(10.0, 1);
    take(&bucket, 1).await;
    let now = Instant::now();
    let routine = bucket.admit_by(Priority::Routine, now + ms(300));
    let crowd = async {
        sleep(ms(1)).await;
        tokio::join!(take(&bucket, 3), take(&bucket, 3), take(&bucket, 1));
    };
    let refused = async { (routine.await, now.elapsed()) };
    let ((result, after), ()) = tokio::join!(refused, crowd);
    assert_eq!(result, Err(Refused::NoTurn));
    assert!(after <= ms(300), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn closing_holds_those_who_wait() {
    let bucket = bucket(10.0, 1);
    take(&bucket, 1).await;
    let began = Instant::now();
    let close = async {
        sleep(ms(10)).await;
        bucket.close_for(ms(2000));
    };
    tokio::join!(take(&bucket, 1), close);
    assert_eq!(began.elapsed(), ms(2010));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The bucket admits exactly as many requests as the rate allows, also if they wait, give up or
    /// return.
    #[test]
    fn the_rate_is_used_up_and_kept(
        waiters in prop::collection::vec((0..2000_u64, any::<bool>(), prop::option::of(1..3000_u64)), 1..60),
        per_second in 5.0..200.0,
        burst in 1..10_u32,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let patient = waiters.iter().filter(|(_, _, patience)| patience.is_none()).count();
        let mut granted = runtime.block_on(async {
            let bucket = bucket(per_second, burst);
            let start = Instant::now();
            let all = waiters.into_iter().map(async |(after, urgent, patience)| {
                sleep_until(start + ms(after)).await;
                let priority = if urgent { Priority::Waiting } else { Priority::Routine };
                let patience = patience.map_or(Duration::from_hours(1), ms);
                timeout(patience, bucket.admit(priority)).await.ok().map(|_| (patience, start.elapsed()))
            });
            futures::future::join_all(all).await.into_iter().flatten().collect::<Vec<_>>()
        });
        prop_assert!(granted.iter().filter(|(patience, _)| *patience == Duration::from_hours(1)).count() == patient);
        granted.sort_by_key(|(_, at)| *at);
        for (n, (_, from)) in granted.iter().enumerate() {
            for (count, (_, to)) in (1_u32..).zip(&granted[n..]) {
                let allowed = f64::from(burst) + per_second * to.saturating_sub(*from).as_secs_f64() + 1e-6;
                prop_assert!(f64::from(count) <= allowed);
            }
        }
        let last = granted.last().map_or(Duration::ZERO, |(_, at)| *at);
        let slowest = ms(2000).as_secs_f64() + (granted.len() as f64 / per_second) + 0.002 * granted.len() as f64;
        prop_assert!(last.as_secs_f64() <= slowest, "{last:?} is later than {slowest}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_on_several_threads_are_all_served() {
    let bucket = bucket(20_000.0, 10);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..20 {
        let bucket = bucket.clone();
        tasks.spawn(async move {
            for _ in 0..50 {
                if task % 4 == 0 {
                    // The request gives up almost at once, often during its turn.
                    _ = timeout(Duration::from_micros(50), bucket.admit(Priority::Waiting)).await;
                } else {
                    let priority =
                        if task % 2 == 0 { Priority::Waiting } else { Priority::Routine };
                    bucket.admit(priority).await;
                }
            }
        });
    }
    timeout(Duration::from_secs(20), tasks.join_all()).await.expect("every task ends");
    assert_eq!(bucket.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn requests_to_the_api_server_pay_by_class() {
    let metrics = Metrics::new();
    let limits = Limits::new(Rates::each(Rate::new(1.0, 2)), &metrics);
    let began = Instant::now();
    for class in [RequestClass::Read, RequestClass::Write, RequestClass::Event] {
        limits.admit(class).await;
        limits.admit(class).await;
    }
    assert_eq!(began.elapsed(), Duration::ZERO, "no limiter takes from another");

    limits.configure(Rates::each(Rate::new(100.0, 100)));
    limits.report_answer(RequestClass::Write, Some(429), Some(ms(3000)));
    limits.report_answer(RequestClass::Read, Some(404), Some(ms(3000)));
    limits.report_answer(RequestClass::Event, None, None);
    limits.admit(RequestClass::Read).await;
    limits.admit(RequestClass::Event).await;
    assert!(began.elapsed() < ms(20), "only a refusal closes, and only its class");
    limits.admit(RequestClass::Write).await;
    assert_eq!(began.elapsed(), ms(3000));
    limits.report_answer(RequestClass::Read, Some(503), Some(ms(1000)));
    limits.admit(RequestClass::Read).await;
    assert_eq!(began.elapsed(), ms(4000));

    let text = metrics.encode().unwrap();
    for line in [
        r#"ccm_limiter_rate{api="apiserver",class="write"} 50.0"#,
        r#"ccm_limiter_rate{api="apiserver",class="read"} 100.0"#,
        r#"ccm_limiter_configured_rate{api="apiserver",class="write"} 100.0"#,
        r#"ccm_limiter_throttled_total{api="apiserver",class="write"} 1"#,
        r#"ccm_limiter_closed_seconds{api="apiserver",class="write"} 0.0"#,
        r#"ccm_limiter_waiting{api="apiserver",class="write"} 0.0"#,
        r#"ccm_limiter_wait_seconds_count{api="apiserver",class="write"} 3"#,
        r#"ccm_limiter_wait_seconds_bucket{le="4.0",api="apiserver",class="write"} 3"#,
        r#"ccm_limiter_wait_seconds_bucket{le="2.0",api="apiserver",class="write"} 2"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn services_of_a_cloud_have_buckets_of_their_own() {
    let metrics = Metrics::new();
    let rates = |read, write| Rates {
        cloud_reads: Rate::new(read, 1),
        cloud_writes: Rate::new(write, 1),
        ..Rates::each(Rate::UNLIMITED)
    };
    let limits = Limits::new(rates(10.0, 5.0), &metrics);
    assert_eq!(limits.bucket("compute", RequestClass::Read).in_force(), Some(10.0));
    assert_eq!(limits.bucket("compute", RequestClass::Write).in_force(), Some(5.0));
    limits.bucket("compute", RequestClass::Read).refused();
    assert_eq!(
        limits.bucket("compute", RequestClass::Read).in_force(),
        Some(5.0),
        "the same bucket"
    );
    assert_eq!(limits.bucket("network", RequestClass::Read).in_force(), Some(10.0), "another one");
    limits.configure(rates(20.0, 0.0));
    assert_eq!(limits.bucket("compute", RequestClass::Read).in_force(), Some(10.0));
    assert_eq!(limits.bucket("compute", RequestClass::Write).in_force(), None);
    assert_eq!(
        limits.bucket("volume", RequestClass::Read).in_force(),
        Some(20.0),
        "one that comes later"
    );
    let text = metrics.encode().unwrap();
    for name in ["ccm_limiter_rate", "ccm_limiter_configured_rate", "ccm_limiter_burst"] {
        assert!(text.contains(&format!(r#"{name}{{api="compute",class="write"}} inf"#)), "{text}");
    }
}
