//! The work queue: the keys to process, their order, and when to process them again.
//!
//! The rules are client-go's. A key that is added several times is handed out once. A
//! key that is added while it is being processed is handed out again afterwards, and
//! never to two workers at once. Failures delay a key exponentially. In addition:
//!
//! * Two priorities. Keys that a user waits for go first, but routine keys always get a share.
//! * Groups of keys take turns within a priority ([`WorkQueue::grouped`]), and a key may have a rate
//!   of its own ([`WorkQueue::add_paced`]).
//! * A back-off holds: a routine add does not end it, and an urgent one shortens it to
//!   [`QueueConfig::urgent_gap`] at most. A wait that the other side asked for
//!   ([`WorkQueue::retry_after`]) is never shortened.
//! * Batches: [`WorkQueue::get_batch`] waits a little, so that a burst of keys costs
//!   few calls. [`BatchWindow`] decides how long.
//! * [`WorkQueue::shut_down`] stops handing out at once and drops the remaining keys,
//!   because the next leader processes every key anyway.
//!
//! `state` makes all decisions and reads no clock; this file waits and wakes.

mod backoff;
mod batch_window;
mod line;
mod metrics;
mod paces;
mod rate;
mod retry;
mod state;

use std::{
    hash::Hash,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use ccm_base::{Backoff, later};
use ccm_metrics::Histogram;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Notify, futures::Notified},
    time::{Instant, sleep_until},
};

use self::state::{Core, Taken};
pub use self::{
    batch_window::{BatchWindow, BatchWindowConfig},
    metrics::QueueMetrics,
    paces::KeyRate,
    retry::{LONG_RETRY, Pace},
};

/// How urgent a key is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Priority {
    /// A user or a new node waits for it.
    Urgent,
    /// Resync, drift checks, refresh.
    #[default]
    Routine,
}

/// How a queue spaces retries and balances its priorities.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueConfig {
    /// The back-off of a failing key.
    pub waits: Backoff,
    /// The share of a wait, between 0 and 1, that is subtracted at random, so that keys that
    /// failed together do not come back together.
    pub jitter: f64,
    /// An urgent add during a key's back-off brings the key forward, but no earlier than this
    /// long after its last failure.
    pub urgent_gap: Duration,
    /// The longest wait that [`WorkQueue::retry_after`] accepts, so that a wrong
    /// `Retry-After` cannot delay a key for days.
    pub max_retry_after: Duration,
    /// How many failed keys per second may come back, counted over all keys. 0 means no limit.
    pub retry_rate: f64,
    /// How many failed keys may come back at once before `retry_rate` applies.
    pub retry_burst: u32,
    /// One routine key, if any waits, is handed out after this many urgent keys in a row.
    pub urgent_streak: u32,
    /// How often one key may be added with [`WorkQueue::add_paced`].
    pub key_rate: KeyRate,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            waits: Backoff { first: Duration::from_millis(5), longest: Duration::from_mins(1) },
            jitter: 0.2,
            urgent_gap: Duration::from_secs(1),
            max_retry_after: Duration::from_mins(5),
            retry_rate: 500.0,
            retry_burst: 1000,
            urgent_streak: 8,
            key_rate: KeyRate { burst: 1, interval: Duration::ZERO },
        }
    }
}

/// A work queue. Clones share the queue.
pub struct WorkQueue<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    core: Mutex<Core<K>>,
    /// See [`QueueConfig::waits`].
    waits: Backoff,
    /// Wakes all waiters. Create the `Notified` before reading the state: it also sees changes
    /// made in between.
    changed: Notify,
    /// How long keys waited, and how long they were in work.
    queued: Histogram,
    worked: Histogram,
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> WorkQueue<K> {
    /// Creates an empty queue. `name` is its label in metrics.
    pub fn new(name: &'static str, config: QueueConfig, metrics: &QueueMetrics) -> Self {
        Self::grouped(name, config, metrics, |_| 0)
    }

    /// Returns an empty queue in which the groups of keys take turns within a priority. `group`
    /// tells the group of a key, as a hash.
    pub fn grouped(
        name: &'static str,
        config: QueueConfig,
        metrics: &QueueMetrics,
        group: fn(&K) -> u64,
    ) -> Self {
        let (waits, core) = (config.waits, Mutex::new(Core::new(config, group)));
        let (queued, worked) = metrics.histograms(name);
        let shared = Arc::new(Shared { core, waits, changed: Notify::new(), queued, worked });
        let weak = Arc::downgrade(&shared);
        metrics.watch(name, move || {
            let shared = weak.upgrade()?;
            let snapshot = shared.core.lock().snapshot(Instant::now());
            Some(snapshot)
        });
        Self { shared }
    }

    /// Changes the state and wakes all waiters.
    fn change<R>(&self, change: impl FnOnce(&mut Core<K>, Instant) -> R) -> R {
        let result = {
            let mut core = self.shared.core.lock();
            let now = Instant::now();
            change(&mut core, now)
        };
        self.shared.changed.notify_waiters();
        result
    }

    /// Adds a key. No effect if it is waiting already, except that an urgent add makes a
    /// routine key urgent.
    pub fn add(&self, key: K, priority: Priority) {
        self.change(|core, now| core.add(key, priority, now));
    }

    /// Adds a key because its object has changed, as often as [`QueueConfig::key_rate`] allows: a
    /// key that changes all the time waits, without delaying other keys. Other adds of the key do
    /// not wait.
    pub fn add_paced(&self, key: K, priority: Priority) {
        self.change(|core, now| core.add_paced(key, priority, now));
    }

    /// Adds the key after this time. Of several such calls the earliest counts. The key can
    /// still be added earlier by other calls.
    pub fn add_after(&self, key: K, after: Duration, priority: Priority) {
        self.change(|core, now| core.add_after(key, after, priority, now));
    }

    /// Reports a failure: the key comes back after its back-off, with the priority it
    /// was handed out with. Call it before [`WorkQueue::done`].
    pub fn retry(&self, key: K) {
        let unit = rand::random::<f64>();
        self.change(|core, now| core.retry(key, unit, now));
    }

    /// Delays the key because the other side asked for it: the key comes back after this time,
    /// and not earlier, even if it is added. Does not count as a failure. Returns the time, which
    /// is at most [`QueueConfig::max_retry_after`].
    pub fn retry_after(&self, key: K, after: Duration) -> Duration {
        self.change(|core, now| core.retry_after(key, after, now))
    }

    /// Reports success: resets the key's back-off.
    pub fn forget(&self, key: &K) {
        self.shared.core.lock().forget(key);
    }

    /// Forgets a key whose object is gone. An object that is created again under the same key
    /// inherits neither failures nor waits. It inherits the rate, because it could be created again
    /// all the time. A worker that has the key still gives it back.
    pub fn remove(&self, key: &K) {
        self.shared.core.lock().remove(key);
    }

    /// Returns how often the key has failed since the last [`WorkQueue::forget`].
    pub fn failures(&self, key: &K) -> u32 {
        self.shared.core.lock().failures(key)
    }

    /// Gives back a key that was handed out. Every key must be given back, failed or not.
    pub fn done(&self, key: &K) {
        if let Some(took) = self.change(|core, now| core.done(key, now)) {
            self.shared.worked.observe(took.as_secs_f64());
        }
    }

    /// Returns how many keys wait to be handed out now.
    pub fn len(&self) -> usize {
        self.shared.core.lock().ready_len(Instant::now())
    }

    /// Returns true if no key waits to be handed out now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stops handing out keys. Adds are ignored from now on; keys that were handed out can
    /// still be given back.
    pub fn shut_down(&self) {
        self.change(|core, _| core.shut_down());
    }

    /// Waits until every key that was handed out has been given back.
    pub async fn drained(&self) {
        loop {
            let changed = pin!(self.shared.changed.notified());
            if self.shared.core.lock().processing_len() == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Waits for the next key. Returns `None` after [`WorkQueue::shut_down`].
    ///
    /// Cancel safe.
    pub async fn get(&self) -> Option<K> {
        loop {
            self.wait_for(1, None, true).await?;
            if let Some(taken) = self.take(1).pop() {
                return Some(taken.key);
            }
        }
    }

    /// Returns up to `max` keys, but at least one. Returns `None` after [`WorkQueue::shut_down`].
    ///
    /// Once the first key waits, this waits for more keys until the batch window ends or `max` keys
    /// wait. An urgent key that arrives in the window of routine keys ends it: the batch then waits
    /// as for urgent keys. Other workers may take keys at the same time. Cancel safe.
    pub async fn get_batch(&self, max: usize, batch_window: &mut BatchWindow) -> Option<Vec<K>> {
        let max = max.max(1);
        loop {
            self.wait_for(1, None, true).await?;
            let window = self.collect(max, batch_window).await?;
            let taken = self.take(max);
            if !taken.is_empty() {
                // Keys that a timer adds are not part of a burst.
                let new = |priority| taken.iter().any(|taken| taken.new == Some(priority));
                let new = (new(Priority::Urgent), new(Priority::Routine));
                batch_window.taken(new, window, Instant::now());
                return Some(taken.into_iter().map(|taken| taken.key).collect());
            }
        }
    }

    /// Waits until the batch window ends or `max` keys wait. Returns the window, or `None` once the
    /// queue is shut down.
    async fn collect(&self, max: usize, batch_window: &BatchWindow) -> Option<Duration> {
        let (was_urgent, window) = self.window(batch_window);
        let end = later(Instant::now(), window);
        self.wait_for(max, Some(end), was_urgent).await?;
        let (is_urgent, shorter) = self.window(batch_window);
        if was_urgent || !is_urgent {
            return Some(window);
        }
        let window = window.min(shorter);
        self.wait_for(max, Some(end.min(later(Instant::now(), window))), true).await?;
        Some(window)
    }

    /// Returns true if a new urgent key waits, and the window for the keys that wait.
    fn window(&self, batch_window: &BatchWindow) -> (bool, Duration) {
        let core = self.shared.core.lock();
        let oldest = |priority| Some((priority, core.oldest_new(priority)?));
        let urgent = oldest(Priority::Urgent);
        let new = urgent.or_else(|| oldest(Priority::Routine));
        (urgent.is_some(), batch_window.window(new))
    }

    /// Waits until `count` keys wait, until the deadline, or, unless `for_all`, until a new urgent
    /// key waits. Returns `None` once the queue is shut down.
    async fn wait_for(&self, count: usize, deadline: Option<Instant>, for_all: bool) -> Option<()> {
        loop {
            let changed = pin!(self.shared.changed.notified());
            let now = Instant::now();
            let due = {
                let mut core = self.shared.core.lock();
                if core.is_shut_down() {
                    return None;
                }
                let enough = core.ready_len(now) >= count
                    || (!for_all && core.oldest_new(Priority::Urgent).is_some())
                    || deadline.is_some_and(|deadline| deadline <= now);
                if enough {
                    return Some(());
                }
                core.next_due()
            };
            wait(changed, due.into_iter().chain(deadline).min()).await;
        }
    }

    /// Hands out up to `max` keys. Returns an empty list if other workers took them first.
    fn take(&self, max: usize) -> Vec<Taken<K>> {
        let taken = self.shared.core.lock().take_batch(max, Instant::now());
        for taken in &taken {
            self.shared.queued.observe(taken.waited.as_secs_f64());
        }
        taken
    }
}

/// Waits for a change, or until something is due.
async fn wait(changed: Pin<&mut Notified<'_>>, due: Option<Instant>) {
    match due {
        None => changed.await,
        Some(due) => {
            tokio::select! {
                () = changed => {}
                () = sleep_until(due) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
