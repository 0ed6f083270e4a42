//! One list of the project for all who ask for it at the same moment.
//!
//! Only until its first request is sent: a list is evidence, and must not have been asked
//! before the question that it answers.

use std::{future::Future, sync::Arc, time::Duration};

use ccm_cloud::{CloudError, ErrorKind, Priority};
use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use tokio::{
    task::yield_now,
    time::{Instant, timeout_at},
};

use super::super::{deadline::Deadline, nova::Listing};

/// The time of those who ask together may end so far apart.
const MOMENT: Duration = Duration::from_millis(50);

type Outcome = Result<Arc<Listing>, CloudError>;

/// The list that is about to be asked for, if any.
#[derive(Default)]
pub(super) struct Coalesced {
    next: Arc<Mutex<Option<Next>>>,
}

/// A list that has not been asked for yet. It is read by whoever waits for it.
#[derive(Clone)]
struct Next {
    ends: Instant,
    priority: Priority,
    outcome: Shared<BoxFuture<'static, Outcome>>,
}

impl Coalesced {
    /// Joins the list that is about to be asked for, or has `work` do so.
    pub(super) async fn list<F>(
        &self,
        deadline: Deadline,
        priority: Priority,
        work: impl FnOnce() -> F,
    ) -> Result<Listing, CloudError>
    where
        F: Future<Output = Result<Listing, CloudError>> + Send + 'static,
    {
        let outcome = self.join(deadline, priority, work);
        let listing = timeout_at(deadline.at, outcome).await.map_err(|_elapsed| late())??;
        Ok(Arc::unwrap_or_clone(listing))
    }

    fn join<F>(
        &self,
        deadline: Deadline,
        priority: Priority,
        work: impl FnOnce() -> F,
    ) -> Shared<BoxFuture<'static, Outcome>>
    where
        F: Future<Output = Result<Listing, CloudError>> + Send + 'static,
    {
        let mut next = self.next.lock();
        // The outcome of one whose time ends too soon, or that waits behind others, is
        // worse than a list of one's own.
        let fits = |next: &&Next| next.ends + MOMENT >= deadline.at && next.priority == priority;
        if let Some(next) = next.as_ref().filter(fits) {
            return next.outcome.clone();
        }
        let (slot, work) = (Arc::downgrade(&self.next), work());
        let ends = deadline.at;
        let outcome = async move {
            // Whoever asks in the same turn of the scheduler finds it.
            yield_now().await;
            if let Some(slot) = slot.upgrade() {
                *slot.lock() = None;
            }
            work.await.map(Arc::new)
        };
        let outcome = outcome.boxed().shared();
        *next = Some(Next { ends, priority, outcome: outcome.clone() });
        outcome
    }
}

fn late() -> CloudError {
    CloudError::new(ErrorKind::Timeout, "server_list: no answer within the time of the call")
}
