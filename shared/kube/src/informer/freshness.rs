//! Proves that a store is not older than a moment.

use std::{sync::Arc, time::Duration};

use kube::Client;
use tokio::time::{Instant, sleep, timeout};

use super::{comparison, health::WatchHealth, state::WatchState};

/// The number of objects in the store.
type Count = Arc<dyn Fn() -> usize + Send + Sync>;

/// The longest wait for the API server's version, and for the watch to show it.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest wait for the watch to show that version is about as long as the list that contains
/// it for sure: waiting at most doubles the cost.
const SHORTEST: Duration = Duration::from_millis(20);
const PER_OBJECT: Duration = Duration::from_micros(200);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// Waits for the store of one informer. Clones refer to the same informer.
#[derive(Clone)]
pub struct Freshness {
    client: Client,
    path: String,
    state: WatchState,
    objects: Count,
}

impl Freshness {
    pub(super) fn new(client: Client, path: String, state: WatchState, objects: Count) -> Self {
        Self { client, path, state, objects }
    }

    /// Returns the resource whose store is not proven to be current, with the last error, if any.
    pub fn lack(&self) -> String {
        let why = self.state.last_error().map(|error| format!(": {error}")).unwrap_or_default();
        format!("{}{why}", self.state.resource())
    }

    /// Waits until the store holds everything that the API server had when this was called. A new
    /// leader needs that, because the writes of the last one may not have reached the store yet.
    ///
    /// Costs one small request if the watch shows the current version about as soon as a list
    /// would, as the watch of a busy cluster does. Otherwise it costs a list of all objects.
    pub async fn current(&self) {
        let (asked, before) = (Instant::now(), self.state.read(WatchHealth::seen));
        let answer = timeout(PATIENCE, comparison::version(&self.client, &self.path)).await;
        let current = answer.ok().and_then(Result::ok).and_then(|text| text.parse::<u64>().ok());
        // A version that went back shows that the store belongs to another time.
        if let Some(current) = current.filter(|current| before.is_some_and(|seen| seen <= *current))
            && timeout(self.patience(), self.until(|health| health.seen() >= Some(current)))
                .await
                .is_ok()
        {
            return;
        }
        self.state.want_list(asked);
        self.until(|health| health.listed_at() >= asked).await;
    }

    fn patience(&self) -> Duration {
        let objects = u32::try_from((self.objects)()).unwrap_or(u32::MAX);
        (SHORTEST + PER_OBJECT.saturating_mul(objects)).min(PATIENCE)
    }

    async fn until(&self, is_reached: impl Fn(&WatchHealth) -> bool) {
        while !self.state.read(&is_reached) {
            sleep(LOOK).await;
        }
    }
}
