//! Named tasks with one token: no task is detached, and none ends unnoticed.
//!
//! A process that has lost one of its tasks appears alive but does only part of its work. So
//! an unexpected end or a panic of any task fails the whole process:
//! [`Supervisor::failed`] reports the first one, and the program ends.

use std::{
    any::Any,
    borrow::Cow,
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

/// The first task that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("task {task} {what}")]
pub struct TaskFailure {
    /// The task's name.
    pub task: Cow<'static, str>,
    /// The failure: ended or panicked.
    pub what: String,
}

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
    group: Arc<Group>,
}

struct Group {
    token: CancellationToken,
    tracker: TaskTracker,
    names: Mutex<BTreeMap<u64, Cow<'static, str>>>,
    next: AtomicU64,
    failure: watch::Sender<Option<TaskFailure>>,
}

impl Supervisor {
    /// A group of tasks that must stop when `token` is cancelled.
    pub fn new(token: CancellationToken) -> Self {
        let group = Group {
            token,
            tracker: TaskTracker::new(),
            names: Mutex::default(),
            next: AtomicU64::new(0),
            failure: watch::Sender::new(None),
        };
        Self { group: Arc::new(group) }
    }

    /// The token that stops the tasks.
    pub fn token(&self) -> &CancellationToken {
        &self.group.token
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
        let id = self.group.next.fetch_add(1, Ordering::Relaxed);
        self.group.names.lock().insert(id, name.clone());
        let span = tracing::info_span!("run", task = %name);
        let group = Arc::clone(&self.group);
        let watched = async move {
            let outcome = AssertUnwindSafe(future).catch_unwind().await;
            group.names.lock().remove(&id);
            let what = match outcome {
                Err(panic) => Some(format!("panicked: {}", panic_text(panic.as_ref()))),
                Ok(()) if endless && !group.token.is_cancelled() => {
                    Some("ended though it must not".to_owned())
                }
                Ok(()) => None,
            };
            if let Some(what) = what {
                group.failure.send_if_modified(|first| {
                    let is_first = first.is_none();
                    first.get_or_insert(TaskFailure { task: name, what });
                    is_first
                });
            }
        };
        self.group.tracker.spawn(watched.instrument(span));
    }

    /// Waits for the first failure. Never returns while no task fails.
    pub async fn failed(&self) -> TaskFailure {
        let mut failure = self.group.failure.subscribe();
        loop {
            let first = failure.borrow_and_update().clone();
            if let Some(first) = first {
                return first;
            }
            if failure.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The names of the running tasks.
    pub fn running(&self) -> Vec<String> {
        self.group.names.lock().values().map(ToString::to_string).collect()
    }

    /// Waits until all tasks have ended, at most this long. Does not cancel them.
    pub async fn wait_all(&self, deadline: Duration) -> Result<(), StillRunning> {
        self.group.tracker.close();
        let ended = tokio::time::timeout(deadline, self.group.tracker.wait()).await;
        // Tasks may be started during a drain, so the group must reopen.
        self.group.tracker.reopen();
        ended.map_err(|_| StillRunning { waited: deadline, tasks: self.running() })
    }
}

/// The message of a panic, if it has one.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests;
