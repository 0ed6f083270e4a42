//! The writes to the cloud that are in flight.

use std::sync::Arc;

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

/// Tracks the writes in flight. They may outlive their term; the process waits for them.
#[derive(Default)]
pub(super) struct Writes {
    state: Arc<watch::Sender<State>>,
}

#[derive(Default)]
struct State {
    ended: bool,
    under_way: usize,
    /// The latest deadline of these writes.
    until: Option<Instant>,
}

/// A write in flight, until dropped.
pub(super) struct Write(Arc<watch::Sender<State>>);

impl Drop for Write {
    fn drop(&mut self) {
        self.0.send_modify(|state| state.under_way = state.under_way.saturating_sub(1));
    }
}

impl Writes {
    /// Starts a write, unless the gate is closing. `deadline` is its time limit.
    pub(super) fn begin(&self, deadline: Instant) -> Option<Write> {
        let begun = self.state.send_if_modified(|state| {
            if !state.ended {
                state.under_way += 1;
                state.until = state.until.max(Some(deadline));
            }
            !state.ended
        });
        begun.then(|| Write(Arc::clone(&self.state)))
    }

    /// Lets no new write start, and waits for those in flight, at most until their deadlines.
    pub(super) async fn end(&self) {
        self.state.send_modify(|state| state.ended = true);
        let mut state = self.state.subscribe();
        let (under_way, until) = {
            let now = state.borrow_and_update();
            (now.under_way, now.until)
        };
        let Some(until) = until.filter(|_| under_way > 0) else { return };
        tracing::info!(writes = under_way, "waiting for writes to the cloud that are under way");
        if timeout_at(until, state.wait_for(|state| state.under_way == 0)).await.is_err() {
            tracing::warn!("writes to the cloud were not answered in their time");
        }
    }
}
