//! Waiting and waking, with paused time, and the metrics.

use std::{cell::RefCell, collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::queue::{BatchWindow, Priority, QueueConfig, QueueMetrics, WorkQueue};
use ccm_runtime::metrics::Metrics;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn queue() -> WorkQueue<&'static str> {
    let config = QueueConfig { jitter: 0.0, ..QueueConfig::default() };
    WorkQueue::new("Nodes", config, &QueueMetrics::new(&Metrics::new()))
}

#[tokio::test(start_paused = true)]
async fn a_waiting_worker_is_woken_by_an_add() {
    let queue = queue();
    let began = Instant::now();
    let add = async {
        sleep(ms(70)).await;
        queue.add("a", Priority::Routine);
    };
    let (key, ()) = tokio::join!(queue.get(), add);
    assert_eq!((key, began.elapsed()), (Some("a"), ms(70)));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_worker_is_woken_by_time() {
    let queue = queue();
    let began = Instant::now();
    queue.add_after("late", ms(900), Priority::Routine);
    let add = async {
        sleep(ms(10)).await;
        // This key is due before the one that the worker waits for.
        queue.add_after("soon", ms(90), Priority::Routine);
    };
    let (key, ()) = tokio::join!(queue.get(), add);
    assert_eq!((key, began.elapsed()), (Some("soon"), ms(100)));
    assert_eq!((queue.get().await, began.elapsed()), (Some("late"), ms(900)));
}

#[tokio::test(start_paused = true)]
async fn a_key_added_during_its_work_is_returned_afterwards() {
    let queue = queue();
    queue.add("a", Priority::Routine);
    assert_eq!(queue.get().await, Some("a"));
    queue.add("a", Priority::Routine);
    queue.add("a", Priority::Routine);
    assert!(timeout(ms(1000), queue.get()).await.is_err(), "a worker has it");
    queue.done(&"a");
    assert_eq!(queue.get().await, Some("a"));
    queue.done(&"a");
    assert!(timeout(ms(1000), queue.get()).await.is_err(), "two adds are one");
}

/// Fails the key this many times, and returns how long it took to come back each time. The
/// key is in work before and after.
async fn fail(queue: &WorkQueue<&'static str>, key: &'static str, times: usize) -> Vec<u128> {
    let mut waits = Vec::new();
    for _ in 0..times {
        queue.retry(key);
        queue.done(&key);
        let began = Instant::now();
        assert_eq!(queue.get().await, Some(key));
        waits.push(began.elapsed().as_millis());
    }
    waits
}

#[tokio::test(start_paused = true)]
async fn failures_delay_a_key_until_it_is_forgotten() {
    let queue = queue();
    queue.add("a", Priority::Routine);
    assert_eq!(queue.get().await, Some("a"));
    assert_eq!(fail(&queue, "a", 5).await, [5, 10, 20, 40, 80]);
    assert_eq!(queue.failures(&"a"), 5);
    queue.forget(&"a");
    assert_eq!(queue.failures(&"a"), 0);
    assert_eq!(fail(&queue, "a", 2).await, [5, 10]);
    let waits = fail(&queue, "a", 14).await;
    assert_eq!(waits[12..], [60_000, 60_000], "the cap");
}

#[tokio::test(start_paused = true)]
async fn a_key_comes_back_soon_after_a_conflict_until_there_are_many_in_a_row() {
    let queue = queue();
    queue.add("a", Priority::Routine);
    assert_eq!(queue.get().await, Some("a"));
    for _ in 0..2 {
        for wait in [20, 40, 60] {
            assert!(queue.again_after_conflict("a", 3, Priority::Urgent));
            queue.done(&"a");
            let began = Instant::now();
            assert_eq!((queue.get().await, began.elapsed()), (Some("a"), ms(wait)));
        }
        assert!(!queue.again_after_conflict("a", 3, Priority::Urgent));
        assert_eq!(queue.failures(&"a"), 0);
        queue.forget(&"a");
    }
    queue.done(&"a");
    assert!(timeout(ms(1000), queue.get()).await.is_err(), "the last conflict is a failure");
}

#[tokio::test(start_paused = true)]
async fn only_urgent_adds_shorten_a_backoff_and_none_a_retry_after() {
    for (strict, priority, expect) in [
        (false, Priority::Routine, 60_000),
        (false, Priority::Urgent, 1000),
        (true, Priority::Routine, 50_000),
        (true, Priority::Urgent, 50_000),
    ] {
        let queue = queue();
        queue.add("a", Priority::Routine);
        let key = queue.get().await.unwrap();
        fail(&queue, key, 20).await;
        let began = Instant::now();
        if strict {
            queue.retry_after(key, Duration::from_secs(50));
        } else {
            queue.retry(key);
        }
        queue.done(&key);
        for _ in 0..20 {
            queue.add(key, priority);
            queue.add_after(key, ms(1), priority);
            sleep(ms(10)).await;
        }
        assert_eq!(queue.get().await, Some("a"));
        assert_eq!(began.elapsed(), ms(expect), "strict {strict}, {priority:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_key_leaves_no_failure_and_no_wait() {
    let queue = queue();
    for in_work in [false, true] {
        queue.add("a", Priority::Routine);
        assert_eq!(queue.get().await, Some("a"));
        fail(&queue, "a", 20).await;
        queue.retry_after("a", Duration::from_mins(5));
        queue.add_after("a", ms(900), Priority::Routine);
        if in_work {
            queue.remove(&"a");
            queue.done(&"a");
        } else {
            queue.done(&"a");
            queue.remove(&"a");
        }
        assert_eq!(queue.failures(&"a"), 0);
        assert!(timeout(Duration::from_mins(10), queue.get()).await.is_err(), "it is gone");
        queue.add("a", Priority::Routine);
        let began = Instant::now();
        assert_eq!((queue.get().await, began.elapsed()), (Some("a"), ms(0)));
        assert_eq!(fail(&queue, "a", 2).await, [5, 10]);
        queue.remove(&"a");
        queue.done(&"a");
    }
}

#[tokio::test(start_paused = true)]
async fn very_long_delays_are_accepted() {
    let queue = queue();
    let most = QueueConfig::default().max_retry_after;
    assert_eq!(queue.retry_after("a", Duration::MAX), most);
    queue.add_after("b", Duration::MAX, Priority::Urgent);
    let began = Instant::now();
    assert_eq!(queue.get().await, Some("a"));
    assert_eq!(began.elapsed(), most);
}

#[tokio::test(start_paused = true)]
async fn retries_of_all_keys_share_a_rate_limit() {
    let config = QueueConfig { retry_rate: 10.0, retry_burst: 2, ..QueueConfig::default() };
    let queue: WorkQueue<u32> =
        WorkQueue::new("Nodes", config, &QueueMetrics::new(&Metrics::new()));
    (0..12).for_each(|key| queue.retry(key));
    sleep(ms(550)).await;
    assert_eq!(queue.len(), 7, "2 at once and 10/s");
}

#[tokio::test(start_paused = true)]
async fn shutting_down_ends_all_waits() {
    let queue = queue();
    queue.add("in work", Priority::Routine);
    assert_eq!(queue.get().await, Some("in work"));
    let mut batch_window = BatchWindow::default();
    let end = async {
        sleep(ms(5)).await;
        queue.shut_down();
    };
    let ended = tokio::join!(queue.get(), queue.get(), queue.get_batch(10, &mut batch_window), end);
    assert_eq!(ended, (None, None, None, ()));
    queue.add("later", Priority::Urgent);
    assert_eq!((queue.get().await, queue.len()), (None, 0));

    assert!(timeout(ms(100), queue.drained()).await.is_err(), "one key is in work");
    let give_back = async {
        sleep(ms(30)).await;
        queue.done(&"in work");
    };
    let began = Instant::now();
    tokio::join!(queue.drained(), give_back);
    assert_eq!(began.elapsed(), ms(30));
}

#[tokio::test(start_paused = true)]
async fn shutting_down_ends_a_waiting_batch() {
    let queue = queue();
    queue.add("a", Priority::Routine);
    let end = async {
        sleep(ms(5)).await;
        queue.shut_down();
    };
    let mut batch_window = BatchWindow::default();
    assert_eq!(tokio::join!(queue.get_batch(10, &mut batch_window), end).0, None);
}

#[tokio::test(start_paused = true)]
async fn concurrent_workers_never_share_a_key_and_miss_none() {
    let queue =
        WorkQueue::new("Nodes", QueueConfig::default(), &QueueMetrics::new(&Metrics::new()));
    let in_work = RefCell::new(HashSet::new());
    let seen = RefCell::new(HashSet::new());
    let worker = |id: u64| {
        let (queue, in_work, seen) = (queue.clone(), &in_work, &seen);
        async move {
            while let Some(key) = queue.get().await {
                assert!(in_work.borrow_mut().insert(key), "{key} is in work already");
                sleep(ms(1 + (u64::from(key) * 7 + id) % 13)).await;
                in_work.borrow_mut().remove(&key);
                if key % 5 == 0 && queue.failures(&key) < 3 {
                    queue.retry(key);
                } else {
                    queue.forget(&key);
                    seen.borrow_mut().insert(key);
                }
                queue.done(&key);
            }
        }
    };
    let producer = async {
        for round in 0..600_u32 {
            let priority = if round % 3 == 0 { Priority::Urgent } else { Priority::Routine };
            queue.add(round % 40, priority);
            sleep(ms(1)).await;
        }
        sleep(Duration::from_secs(5)).await;
        queue.shut_down();
    };
    tokio::join!(worker(0), worker(1), worker(2), worker(3), producer);
    assert_eq!(seen.borrow().len(), 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_on_several_threads_miss_no_key() {
    const KEYS: u32 = 2000;
    let queue =
        WorkQueue::new("Nodes", QueueConfig::default(), &QueueMetrics::new(&Metrics::new()));
    let done = Arc::new(Mutex::new(HashSet::new()));
    let mut tasks = JoinSet::new();
    for batches in [false, true, false, true] {
        let (queue, done) = (queue.clone(), Arc::clone(&done));
        tasks.spawn(async move {
            let mut batch_window = BatchWindow::default();
            loop {
                let keys = if batches {
                    queue.get_batch(50, &mut batch_window).await
                } else {
                    queue.get().await.map(|key| vec![key])
                };
                let Some(keys) = keys else { return };
                for key in keys {
                    done.lock().insert(key);
                    queue.done(&key);
                }
                if done.lock().len() == KEYS as usize {
                    queue.shut_down();
                }
            }
        });
    }
    for half in 0..2 {
        let queue = queue.clone();
        tasks.spawn(async move {
            for key in (half..KEYS).step_by(2) {
                queue.add(key, Priority::Urgent);
                tokio::task::yield_now().await;
            }
        });
    }
    timeout(Duration::from_secs(20), tasks.join_all()).await.expect("every key is handed out");
}

#[tokio::test(start_paused = true)]
async fn metrics_have_upstreams_names_and_correct_values() {
    let metrics = Metrics::new();
    let queue_metrics = QueueMetrics::new(&metrics);
    let queue: WorkQueue<u32> = WorkQueue::new("Nodes", QueueConfig::default(), &queue_metrics);
    let gone: WorkQueue<u32> = WorkQueue::new("Gone", QueueConfig::default(), &queue_metrics);
    drop(gone);
    (0..4).for_each(|key| queue.add(key, Priority::Routine));
    queue.add(3, Priority::Routine);
    sleep(ms(50)).await;
    assert_eq!((queue.get().await, queue.get().await), (Some(0), Some(1)));
    sleep(ms(200)).await;
    queue.done(&0);
    queue.add_after(9, ms(1000), Priority::Routine);
    sleep(ms(300)).await;

    let text = metrics.encode().unwrap();
    for line in [
        r#"workqueue_depth{name="Nodes"} 2.0"#,
        r#"workqueue_adds_total{name="Nodes"} 4"#,
        r#"workqueue_retries_total{name="Nodes"} 1"#,
        r#"workqueue_unfinished_work_seconds{name="Nodes"} 0.5"#,
        r#"workqueue_longest_running_processor_seconds{name="Nodes"} 0.5"#,
        r#"ccm_workqueue_oldest_age_seconds{name="Nodes"} 0.55"#,
        r#"workqueue_queue_duration_seconds_count{name="Nodes"} 2"#,
        r#"workqueue_queue_duration_seconds_bucket{le="0.1",name="Nodes"} 2"#,
        r#"workqueue_work_duration_seconds_count{name="Nodes"} 1"#,
        r#"workqueue_work_duration_seconds_sum{name="Nodes"} 0.2"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    assert!(!text.contains(r#"workqueue_depth{name="Gone"}"#), "a queue that is gone has no depth");
    let bounds: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("workqueue_work_duration_seconds_bucket{le=\""))
        .filter(|line| line.contains("Nodes"))
        .filter_map(|line| line.split('"').next())
        .collect();
    let bounds: Vec<f64> =
        bounds.iter().map(|bound| bound.parse().unwrap_or(f64::INFINITY)).collect();
    assert_eq!(bounds.len(), 11);
    for (n, bound) in bounds.iter().take(10).enumerate() {
        let expect = 1e-8 * 10_f64.powi(i32::try_from(n).unwrap());
        assert!((bound / expect - 1.0).abs() < 1e-9, "{bound} should be {expect}");
    }
}
