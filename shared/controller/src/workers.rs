//! Concurrent work on many keys.

use std::{hash::Hash, pin::pin};

use futures::{Stream, StreamExt as _, stream};
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;

use crate::queue::{Priority, WorkQueue};

/// The running tasks of one stage. The keys of a task that panicked would be lost, so the
/// panic resumes in the task that awaits it, and the supervisor ends the process.
#[derive(Debug, Default)]
struct Tasks(JoinSet<()>);

impl Tasks {
    /// Spawns a task.
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }

    /// Awaits another future and reaps finished tasks while it waits.
    async fn until<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = pin!(other);
        loop {
            tokio::select! {
                biased;
                Some(ended) = self.0.join_next() => resume_panic(ended),
                done = &mut other => return done,
            }
        }
    }

    /// Waits until fewer than this many tasks run; at least one may always run.
    async fn below(&mut self, limit: usize) {
        while self.0.len() >= limit.max(1) {
            if let Some(ended) = self.0.join_next().await {
                resume_panic(ended);
            }
        }
    }

    /// Waits until no task runs.
    async fn drained(&mut self) {
        while let Some(ended) = self.0.join_next().await {
            resume_panic(ended);
        }
    }
}

fn resume_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// Returns the items that arrive on a channel, until it is closed.
pub fn received<T>(mut channel: mpsc::Receiver<T>) -> impl Stream<Item = T> {
    stream::poll_fn(move |context| channel.poll_recv(context))
}

/// Returns a channel to workers, of whom at most `limit` work at once: its sender, and the stage,
/// which runs until the token is cancelled.
pub fn channel<T: Send, F>(
    capacity: usize,
    limit: impl Fn() -> usize + Send,
    token: CancellationToken,
    work: impl Fn(T) -> F + Send,
) -> (mpsc::Sender<T>, impl Future<Output = ()> + Send)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(capacity);
    (sender, pool(received(receiver), limit, token, work))
}

/// Processes the items of a stream, at most `limit` at once, until the token is cancelled.
/// When the stream has ended, running items are finished.
pub async fn pool<T, F>(
    items: impl Stream<Item = T> + Send,
    limit: impl Fn() -> usize + Send,
    token: CancellationToken,
    work: impl Fn(T) -> F + Send,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let stage = async move {
        let mut items = pin!(items);
        let mut tasks = Tasks::default();
        while let Some(item) = tasks.until(items.next()).await {
            tasks.spawn(work(item));
            tasks.below(limit()).await;
        }
        tasks.drained().await;
    };
    until_cancelled(&token, stage).await;
}

/// Runs one stage of a controller until the token is cancelled. A stage that ends earlier waits
/// for the token, because the supervisor treats the end of a task as a failure.
pub(crate) async fn until_cancelled(token: &CancellationToken, stage: impl Future<Output = ()>) {
    tokio::select! {
        // No new work is started after the cancellation.
        biased;
        () = token.cancelled() => {}
        () = stage => token.cancelled().await,
    }
}

/// A key in work. It is given back when this is dropped; if its work has not ended by then, because
/// it was cancelled, the key is queued again.
struct InWork<K: Clone + Eq + Hash + Send + Sync + 'static> {
    queue: WorkQueue<K>,
    key: K,
    has_ended: bool,
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> InWork<K> {
    /// Gives the key back.
    fn end(mut self) {
        self.has_ended = true;
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Drop for InWork<K> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.queue.add(self.key.clone(), Priority::Routine);
        }
        self.queue.done(&self.key);
    }
}

/// Processes the keys of a queue like [`pool`], and gives each key back when its work has
/// ended. To drain: shut down the queue and wait until it is drained.
pub async fn by_key<K, F>(
    queue: WorkQueue<K>,
    limit: impl Fn() -> usize + Send,
    token: CancellationToken,
    work: impl Fn(K) -> F + Send,
) where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let keys = stream::unfold(queue.clone(), |queue: WorkQueue<K>| async move {
        Some((queue.get().await?, queue))
    });
    let work = move |key: K| {
        let working = work(key.clone());
        // It is not created by the task, because a task that is cancelled before it begins must
        // give its key back as well.
        let in_work = InWork { queue: queue.clone(), key, has_ended: false };
        async move {
            working.await;
            in_work.end();
        }
    };
    pool(keys, limit, token, work).await;
}

#[cfg(test)]
mod tests;
