//! Single flight: many callers wait for the same work.
//!
//! At most one run is in progress. It is a separate task, so it continues when a caller's time is
//! over. Later callers get the error of a failed run for as long as the error holds.

use std::sync::Arc;

use ccm_cloud::{Call, CloudError, ErrorKind};
use futures::{FutureExt as _, future::Shared};
use parking_lot::Mutex;
use tokio::{
    sync::oneshot,
    task::{AbortHandle, JoinSet},
    time::{Instant, timeout_at},
};

use super::retry::{Failure, Repeat};

/// The result of a run, for all callers.
pub type Pending<T> = Shared<oneshot::Receiver<Result<T, Failure>>>;

/// Work that is repeated on demand. Dropping this value cancels a run in progress.
pub struct SingleFlight<T> {
    /// The name of the work, for errors.
    name: String,
    last: Arc<Mutex<Last<T>>>,
    tasks: Mutex<JoinSet<()>>,
}

struct Last<T> {
    running: Option<(AbortHandle, Pending<T>)>,
    /// The last failure, and until when it holds.
    failed: Option<(Failure, Instant)>,
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    /// Creates work of this name, which is not started yet.
    pub fn new(name: impl Into<String>) -> Self {
        let last = Last { running: None, failed: None };
        Self { name: name.into(), last: Arc::new(Mutex::new(last)), tasks: Mutex::default() }
    }

    /// Returns the running work. Starts `work` if no work runs, unless the last failure still
    /// holds.
    pub fn join<F>(&self, work: impl FnOnce() -> F) -> Result<Pending<T>, Failure>
    where
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let mut last = self.last.lock();
        if let Some((_, pending)) = last.running.as_ref().filter(|(task, _)| !task.is_finished()) {
            return Ok(pending.clone());
        }
        let now = Instant::now();
        if let Some((failure, until)) = last.failed.as_ref().filter(|(_, until)| *until > now) {
            return Err(failure.clone().with_left(*until - now));
        }
        let (sender, pending) = oneshot::channel();
        let pending = pending.shared();
        let (work, slot) = (work(), Arc::clone(&self.last));
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        let task = tasks.spawn(async move {
            let outcome = work.await;
            let failed = outcome.as_ref().err();
            let failed = failed.map(|failure| (failure.clone(), Instant::now() + failure.holds));
            *slot.lock() = Last { running: None, failed };
            // This fails if no caller waits any more.
            sender.send(outcome).ok();
        });
        last.running = Some((task, pending.clone()));
        Ok(pending)
    }

    /// Waits for the end of the work, but not beyond the deadline of the call.
    pub async fn wait(&self, pending: Pending<T>, call: Call) -> Result<T, Failure> {
        let (kind, why) = match timeout_at(call.end, pending).await {
            Ok(Ok(outcome)) => return outcome,
            Ok(Err(_dropped)) => (ErrorKind::Unavailable, "it was aborted".to_owned()),
            Err(_elapsed) => {
                let limit = call.timeout.as_secs_f64();
                (ErrorKind::Timeout, format!("no answer within the {limit} s of the call"))
            }
        };
        let error = CloudError::new(kind, format!("{}: {why}", self.name));
        let is_over = kind == ErrorKind::Timeout;
        Err(Failure { repeat: if is_over { Repeat::No } else { Repeat::Any }, ..error.into() })
    }

    /// Aborts the running work.
    pub fn abort(&self) {
        self.tasks.lock().abort_all();
    }
}

#[cfg(test)]
mod tests;
