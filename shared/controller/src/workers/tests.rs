use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ccm_runtime::metrics::Metrics;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::queue::{QueueConfig, QueueMetrics};

const WORK: Duration = Duration::from_secs(1);

fn queue(keys: impl IntoIterator<Item = u32>) -> WorkQueue<u32> {
    let queue = WorkQueue::new("Test", QueueConfig::default(), &QueueMetrics::new(&Metrics::new()));
    keys.into_iter().for_each(|key| queue.add(key, Priority::Routine));
    queue
}

/// Counts the tasks that run now, and the most that ran at once.
#[derive(Clone, Default)]
struct Running(Arc<(AtomicUsize, AtomicUsize)>);

impl Running {
    async fn work(self) {
        let (now, most) = &*self.0;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        sleep(WORK).await;
        now.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn keys_are_processed_concurrently_up_to_the_limit() {
    for (limit, expect, seconds) in [(0, 1, 6), (2, 2, 3), (10, 6, 1)] {
        let (queue, running, token) = (queue(0..6), Running::default(), CancellationToken::new());
        let start = Instant::now();
        let pool = by_key(queue.clone(), || limit, token.clone(), |_| running.clone().work());
        let control = async {
            while !queue.is_empty() {
                sleep(Duration::from_millis(10)).await;
            }
            queue.shut_down();
            queue.drained().await;
            assert_eq!(start.elapsed().as_secs(), seconds, "limit {limit}");
            token.cancel();
        };
        tokio::join!(pool, control);
        assert_eq!(running.most(), expect, "limit {limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn running_work_finishes_when_the_source_ends() {
    let (sender, receiver) = mpsc::channel(4);
    let (running, token) = (Running::default(), CancellationToken::new());
    let finished = Arc::new(AtomicUsize::new(0));
    sender.send(1).await.expect("room");
    drop(sender);
    let pool = pool(
        received(receiver),
        || 4,
        token.clone(),
        |_| {
            let (running, finished) = (running.clone(), Arc::clone(&finished));
            async move {
                running.work().await;
                finished.fetch_add(1, Ordering::SeqCst);
            }
        },
    );
    assert!(timeout(WORK * 2, pool).await.is_err(), "it ends with its token only");
    assert_eq!(finished.load(Ordering::SeqCst), 1);
    token.cancel();
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "broken")]
async fn a_panic_of_a_task_is_resumed_in_the_pool() {
    let token = CancellationToken::new();
    let work = |key: u32| async move { assert!(key != 1, "broken") };
    by_key(queue([0, 1]), || 1, token, work).await;
}

/// Work that is cancelled in the middle of a write gives its key back, and another worker does it
/// again.
#[tokio::test(start_paused = true)]
async fn a_key_outlives_the_cancellation_of_its_work() {
    let (queue, running, ended) = (queue([7]), Running::default(), Arc::default());
    let work = |key: u32| {
        assert_eq!(key, 7);
        let (running, ended) = (running.clone(), Arc::<AtomicUsize>::clone(&ended));
        async move {
            running.work().await;
            ended.fetch_add(1, Ordering::SeqCst);
        }
    };
    let token = CancellationToken::new();
    let cancel = async {
        sleep(WORK / 2).await;
        // The key is wanted again while a worker has it.
        queue.add(7, Priority::Routine);
        token.cancel();
    };
    tokio::join!(by_key(queue.clone(), || 4, token.clone(), work), cancel);
    assert_eq!(ended.load(Ordering::SeqCst), 0, "cancelled in the middle");
    running.0.0.store(0, Ordering::SeqCst);
    let next = by_key(queue.clone(), || 4, CancellationToken::new(), work);
    assert!(timeout(WORK * 4, next).await.is_err(), "it ends with its token only");
    assert_eq!((running.most(), ended.load(Ordering::SeqCst)), (1, 1));
    queue.shut_down();
    timeout(WORK, queue.drained()).await.expect("no key is in work");
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_work_is_cancelled_is_done_again_without_being_added() {
    let (queue, token) = (queue([7]), CancellationToken::new());
    let pool = by_key(queue.clone(), || 1, token.clone(), |_| Running::default().work());
    let cancel = async {
        sleep(WORK / 2).await;
        token.cancel();
    };
    tokio::join!(pool, cancel);
    assert_eq!(timeout(WORK, queue.get()).await, Ok(Some(7)));
}
