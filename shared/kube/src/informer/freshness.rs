//! Proves that a store is not older than a moment.

use std::time::Duration;

use kube::Client;
use tokio::time::{Instant, sleep, timeout};

use super::{comparison, state::WatchState};

/// How long the watch may take to show what the API server has.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// Waits for the store of one informer. Clones refer to the same informer.
#[derive(Clone)]
pub struct Freshness {
    client: Client,
    path: String,
    state: WatchState,
}

impl Freshness {
    pub(super) fn new(client: Client, path: String, state: WatchState) -> Self {
        Self { client, path, state }
    }

    /// Waits until the store holds everything that the API server had when this was called. A new
    /// leader needs that: what the last one wrote may not have reached the store yet.
    ///
    /// Costs one small request if the watch shows the current version within a second, as that of a
    /// busy cluster does, else a list of all objects.
    pub async fn current(&self) {
        let (asked, before) = (Instant::now(), self.state.seen());
        let answer = timeout(PATIENCE, comparison::version(&self.client, &self.path)).await;
        let current = answer.ok().and_then(Result::ok).and_then(|text| text.parse::<u64>().ok());
        // A version that went back says that the store is of another time.
        if let Some(current) = current.filter(|current| before.is_some_and(|seen| seen <= *current))
            && timeout(PATIENCE, self.until(|state| state.seen() >= Some(current))).await.is_ok()
        {
            return;
        }
        self.state.want_list(asked);
        self.until(|state| state.has_listed(asked)).await;
    }

    async fn until(&self, is_reached: impl Fn(&WatchState) -> bool) {
        while !is_reached(&self.state) {
            sleep(LOOK).await;
        }
    }
}
