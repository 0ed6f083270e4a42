//! The number of calls for a burst of keys, and the wait of a single key.

use std::time::Duration;

use ccm_base::Backoff;
use tokio::time::{Instant, sleep, sleep_until};

use crate::queue::{BatchWindow, Priority, QueueConfig, QueueMetrics, WorkQueue};
use ccm_runtime::metrics::Metrics;

const MAX: usize = 500;

fn queue() -> WorkQueue<u32> {
    WorkQueue::new("Nodes", QueueConfig::default(), &QueueMetrics::new(&Metrics::new()))
}

/// Takes this many keys in batches. Each key costs `1 / rate` seconds before the next batch is
/// taken. Returns the sizes of the batches.
async fn consume(queue: &WorkQueue<u32>, count: usize, rate: f64) -> Vec<usize> {
    let mut batch_window = BatchWindow::default();
    let mut sizes = Vec::new();
    while sizes.iter().sum::<usize>() < count {
        let batch = queue.get_batch(MAX, &mut batch_window).await.unwrap();
        sizes.push(batch.len());
        sleep(Duration::from_secs_f64(batch.len() as f64 / rate)).await;
        for key in &batch {
            queue.done(key);
        }
    }
    sizes
}

/// Adds this many keys evenly over this time.
async fn produce(queue: &WorkQueue<u32>, count: u32, over: Duration) {
    let start = Instant::now();
    for key in 0..count {
        sleep_until(start + over * key / count).await;
        queue.add(key, Priority::Urgent);
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_thousands_costs_few_batches() {
    for seconds in [17, 30, 40] {
        for rate in [150.0, 300.0] {
            let queue = queue();
            let (sizes, ()) = tokio::join!(
                consume(&queue, 5000, rate),
                produce(&queue, 5000, Duration::from_secs(seconds))
            );
            assert_eq!(sizes.iter().sum::<usize>(), 5000);
            assert!(sizes.iter().all(|size| *size <= MAX), "{sizes:?}");
            assert!(
                sizes.len() <= 20,
                "{} batches in {seconds} s at {rate}/s: {sizes:?}",
                sizes.len()
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_key_waits_ten_milliseconds() {
    let queue = queue();
    let mut batch_window = BatchWindow::default();
    for round in 0..3 {
        // A burst in between must not delay a later single key.
        let (_, ()) = tokio::join!(
            consume(&queue, 200, 1000.0),
            produce(&queue, 200, Duration::from_secs(1))
        );
        sleep(Duration::from_mins(1)).await;
        queue.add(1, Priority::Urgent);
        let began = Instant::now();
        assert_eq!(queue.get_batch(MAX, &mut batch_window).await, Some(vec![1]));
        assert_eq!(began.elapsed(), Duration::from_millis(10), "round {round}");
        queue.done(&1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_is_returned_at_once() {
    let queue = queue();
    let mut batch_window = BatchWindow::default();
    (0..25).for_each(|key| queue.add(key, Priority::Routine));
    let began = Instant::now();
    for _ in 0..2 {
        assert_eq!(queue.get_batch(10, &mut batch_window).await.unwrap().len(), 10);
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
    assert_eq!(queue.get_batch(10, &mut batch_window).await.unwrap().len(), 5);
    assert_eq!(began.elapsed(), Duration::from_millis(640), "a third batch in a row");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_fills_up_is_returned_early() {
    let queue = queue();
    let mut batch_window = BatchWindow::default();
    let began = Instant::now();
    let add = async {
        for key in 0..3 {
            sleep(Duration::from_millis(3)).await;
            queue.add(key, Priority::Routine);
        }
    };
    let (batch, ()) = tokio::join!(queue.get_batch(3, &mut batch_window), add);
    assert_eq!(batch, Some(vec![0, 1, 2]));
    assert_eq!(began.elapsed(), Duration::from_millis(9));
}

#[tokio::test(start_paused = true)]
async fn a_batch_collects_keys_as_they_become_due() {
    let queue = queue();
    let mut batch_window = BatchWindow::default();
    for (key, after) in [(1, 100), (2, 109), (3, 111)] {
        queue.add_after(key, Duration::from_millis(after), Priority::Routine);
    }
    assert_eq!(queue.get_batch(10, &mut batch_window).await, Some(vec![1, 2]));
    for (key, after) in [(4, 1), (5, 2)] {
        queue.add_after(key, Duration::from_millis(after), Priority::Routine);
    }
    let began = Instant::now();
    assert_eq!(queue.get_batch(3, &mut batch_window).await, Some(vec![3, 4, 5]));
    assert_eq!(began.elapsed(), Duration::from_millis(2), "full when the last one became due");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_batch_loses_no_key() {
    let queue = queue();
    let mut batch_window = BatchWindow::default();
    queue.add(7, Priority::Routine);
    let given_up =
        tokio::time::timeout(Duration::from_millis(5), queue.get_batch(10, &mut batch_window))
            .await;
    assert!(given_up.is_err());
    assert_eq!(queue.len(), 1);
    assert_eq!(queue.get_batch(10, &mut batch_window).await, Some(vec![7]));
}

#[tokio::test(start_paused = true)]
async fn a_batch_keeps_waiting_when_other_workers_take_its_keys() {
    let queue = queue();
    let mut batch_window = BatchWindow::default();
    queue.add(1, Priority::Routine);
    let other = async {
        sleep(Duration::from_millis(5)).await;
        assert_eq!(queue.get().await, Some(1));
        sleep(Duration::from_secs(5)).await;
        queue.add(2, Priority::Routine);
    };
    let (batch, ()) = tokio::join!(queue.get_batch(10, &mut batch_window), other);
    assert_eq!(batch, Some(vec![2]));
}

/// A constant flow of delayed keys must not make new ones wait as in a burst.
#[tokio::test(start_paused = true)]
async fn delayed_keys_do_not_extend_the_batch_window() {
    let queue = queue();
    let mut batch_window = BatchWindow::default();
    for key in 0..500 {
        queue.add_after(key, Duration::from_millis(20) * (key + 1), Priority::Routine);
    }
    let mut slowest = Duration::ZERO;
    let take = async {
        while let Some(batch) = queue.get_batch(MAX, &mut batch_window).await {
            for key in &batch {
                queue.done(key);
            }
        }
    };
    let add = async {
        for key in 1000..1010 {
            sleep(Duration::from_millis(977)).await;
            queue.add(key, Priority::Urgent);
            let began = Instant::now();
            while !queue.is_empty() {
                sleep(Duration::from_millis(1)).await;
            }
            slowest = slowest.max(began.elapsed());
        }
        queue.shut_down();
    };
    tokio::join!(take, add);
    assert!(slowest <= Duration::from_millis(20), "{slowest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_does_not_extend_the_batch_window() {
    let short = Duration::from_millis(1);
    let config =
        QueueConfig { waits: Backoff { first: short, longest: short }, ..QueueConfig::default() };
    let queue = WorkQueue::new("Nodes", config, &QueueMetrics::new(&Metrics::new()));
    let mut batch_window = BatchWindow::default();
    queue.add(7, Priority::Routine);
    for failures in 0..6 {
        let start = Instant::now();
        queue.get_batch(MAX, &mut batch_window).await.unwrap();
        let waited = start.elapsed();
        assert!(waited <= Duration::from_millis(50), "{waited:?} after {failures} failures");
        queue.retry(7);
        queue.done(&7);
    }
}

/// The corrections of a whole fleet widen the window of routine keys, but a new node that comes
/// in it waits as long as a new node alone.
#[tokio::test(start_paused = true)]
async fn an_urgent_key_ends_the_window_of_routine_ones() {
    let (queue, mut batch_window) = (queue(), BatchWindow::default());
    for key in 0..40 {
        queue.add(key, Priority::Routine);
        for key in queue.get_batch(MAX, &mut batch_window).await.unwrap() {
            queue.done(&key);
        }
    }
    queue.add(100, Priority::Routine);
    let start = Instant::now();
    let add = async {
        sleep(Duration::from_millis(500)).await;
        queue.add(101, Priority::Urgent);
    };
    let (batch, ()) = tokio::join!(queue.get_batch(MAX, &mut batch_window), add);
    assert_eq!(batch, Some(vec![101, 100]));
    assert!(start.elapsed() < Duration::from_millis(520), "{:?}", start.elapsed());
}

/// Keys that come again, because their nodes are not known yet, end no window.
#[tokio::test(start_paused = true)]
async fn an_urgent_key_that_comes_again_ends_no_window() {
    let (queue, mut batch_window) = (queue(), BatchWindow::default());
    for key in 0..40 {
        queue.add(key, Priority::Routine);
        for key in queue.get_batch(MAX, &mut batch_window).await.unwrap() {
            queue.done(&key);
        }
    }
    for _ in 0..2 {
        queue.add(100, Priority::Routine);
        queue.add_after(101, Duration::from_millis(500), Priority::Urgent);
        let start = Instant::now();
        let batch = queue.get_batch(MAX, &mut batch_window).await.unwrap();
        assert_eq!(batch, [101, 100]);
        assert!(start.elapsed() >= Duration::from_secs(3), "{:?}", start.elapsed());
        for key in &batch {
            queue.done(key);
        }
    }
}
