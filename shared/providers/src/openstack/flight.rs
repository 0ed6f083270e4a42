//! Work that many wait for and nobody owns.
//!
//! It is under way once at most, as a task of its own: a caller whose time is over leaves
//! it to the others and to those who come later.

use std::sync::Arc;

use futures::{FutureExt as _, future::Shared};
use parking_lot::Mutex;
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{Instant, timeout_at},
};

/// Where those who wait learn what came of the work.
pub(crate) type Landing<T> = Shared<oneshot::Receiver<T>>;

/// A piece of work that is done again and again. It ends with this.
#[derive(Debug)]
pub(crate) struct Flight<T> {
    landing: Arc<Mutex<Option<Landing<T>>>>,
    tasks: Mutex<JoinSet<()>>,
}

/// Why somebody who waited knows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// The caller's time was over first.
    Late,
    /// The work was cut off.
    CutOff,
}

impl<T> Default for Flight<T> {
    fn default() -> Self {
        Self { landing: Arc::default(), tasks: Mutex::default() }
    }
}

impl<T: Clone + Send + Sync + 'static> Flight<T> {
    /// The end of the work under way, if there is any.
    pub(crate) fn under_way(&self) -> Option<Landing<T>> {
        self.landing.lock().clone()
    }

    /// The end of the work under way; begins with `work` if there is none.
    pub(crate) fn join<F>(&self, work: impl FnOnce() -> F) -> Landing<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut slot = self.landing.lock();
        if let Some(landing) = &*slot {
            return landing.clone();
        }
        let (arrived, landing) = oneshot::channel();
        let landing = landing.shared();
        *slot = Some(landing.clone());
        let (work, slot) = (work(), Arc::clone(&self.landing));
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let outcome = work.await;
            *slot.lock() = None;
            // Perhaps nobody waits any more.
            arrived.send(outcome).ok();
        });
        landing
    }

    /// Waits for the end of the work, but not past `at`.
    pub(crate) async fn wait(&self, landing: Landing<T>, at: Instant) -> Result<T, Missed> {
        match timeout_at(at, landing.clone()).await {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(_dropped)) => {
                // Somebody else who waited may have begun anew already.
                let mut slot = self.landing.lock();
                if slot.as_ref().is_some_and(|under_way| under_way.ptr_eq(&landing)) {
                    *slot = None;
                }
                Err(Missed::CutOff)
            }
            Err(_elapsed) => Err(Missed::Late),
        }
    }

    /// Cuts the work off.
    pub(crate) fn cut_off(&self) {
        self.tasks.lock().abort_all();
    }
}

#[cfg(test)]
mod tests;
