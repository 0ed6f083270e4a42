//! Named tasks with one token: no task is detached or ends unnoticed.
//!
//! A process that has lost one of its tasks appears alive but does only part of its work. So
//! an unexpected end or a panic of any task fails the whole process:
//! [`Supervisor::failed`] reports the first one, and the program ends.

use std::{
    any::Any, borrow::Cow, collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc,
    time::Duration,
};

use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

/// Tasks that did not end in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("still running after {} s: {}", waited.as_secs_f64(), tasks.join(", "))]
pub struct StillRunning {
    /// The wait time.
    pub waited: Duration,
    /// The names of the tasks.
    pub tasks: Vec<String>,
}

/// Owns a group of tasks. Clones share the group.
#[derive(Clone)]
pub struct Supervisor {
    token: CancellationToken,
    tracker: TaskTracker,
    names: Arc<Mutex<BTreeMap<u64, Cow<'static, str>>>>,
    /// The first failure, in words.
    failure: watch::Sender<Option<String>>,
}

impl Supervisor {
    /// Creates a group of tasks that must stop when `token` is cancelled.
    pub fn new(token: CancellationToken) -> Self {
        let (tracker, failure) = (TaskTracker::new(), watch::Sender::new(None));
        Self { token, tracker, names: Arc::default(), failure }
    }

    /// Returns another group, which stops on its own. Its failures are reported with this group's.
    #[must_use]
    pub fn sibling(&self) -> Self {
        Self { failure: self.failure.clone(), ..Self::new(CancellationToken::new()) }
    }

    /// Returns the token that stops the tasks.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Starts a task that runs until the token is cancelled. An earlier end and a panic are
    /// failures.
    pub fn spawn<F>(&self, name: impl Into<Cow<'static, str>>, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.start(name.into(), true, future);
    }

    /// Starts a task that may end when its work is done. A panic is a failure.
    pub fn spawn_job<F>(&self, name: impl Into<Cow<'static, str>>, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.start(name.into(), false, future);
    }

    fn start<F>(&self, name: Cow<'static, str>, endless: bool, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let id = {
            let mut names = self.names.lock();
            let id = names.last_key_value().map_or(0, |(last, _)| last + 1);
            names.insert(id, name.clone());
            id
        };
        let span = tracing::info_span!("run", task = %name);
        let group = self.clone();
        let watched = async move {
            let outcome = AssertUnwindSafe(future).catch_unwind().await;
            group.names.lock().remove(&id);
            let what = match outcome {
                Err(panic) => format!("panicked: {}", panic_text(panic.as_ref())),
                Ok(()) if endless && !group.token.is_cancelled() => "ended unexpectedly".to_owned(),
                Ok(()) => return,
            };
            group.failure.send_if_modified(|first| {
                let is_first = first.is_none();
                first.get_or_insert(format!("task {name} {what}"));
                is_first
            });
        };
        self.tracker.spawn(watched.instrument(span));
    }

    /// Waits for the first failure and returns it. Never returns while no task fails.
    pub async fn failed(&self) -> String {
        let mut failure = self.failure.subscribe();
        // The sender lives as long as this group: waiting cannot fail.
        let first = failure.wait_for(Option::is_some).await.ok();
        first.and_then(|first| first.clone()).unwrap_or_default()
    }

    /// Returns the names of the running tasks.
    pub fn running(&self) -> Vec<String> {
        self.names.lock().values().map(ToString::to_string).collect()
    }

    /// Waits until all tasks have ended, at most this long. Does not cancel them.
    pub async fn wait_all(&self, deadline: Duration) -> Result<(), StillRunning> {
        self.tracker.close();
        let ended = tokio::time::timeout(deadline, self.tracker.wait()).await;
        // Tasks may be started during a drain, so the group must reopen.
        self.tracker.reopen();
        ended.map_err(|_| StillRunning { waited: deadline, tasks: self.running() })
    }

    /// Cancels the tasks and waits until they have ended, at most this long.
    pub async fn stop(&self, deadline: Duration) {
        self.token.cancel();
        if let Err(late) = self.wait_all(deadline).await {
            tracing::warn!("not awaited: {late}");
        }
    }
}

/// Returns the message of a panic, if it has one.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests;
